"""Asking an LM through a predictor: retries, the budget, and the three kinds of failure."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import dspy
from dspy.utils import exceptions as dspy_errors

from typedrag.core.call_context import call_context, use_context
from typedrag.core.errors import CallFailed, LMUnavailable, StepFailed, first_line
from typedrag.core.records import CUT_OFF, Step, Usage
from typedrag.core.redaction import Redactor, keys_of, without_keys
from typedrag.lms.lm import role_of
from typedrag.lms.replies import forget_unreadable
from typedrag.lms.streaming import stream_answer
from typedrag.lms.trace import CallCounter, CallTracker, NoCallsLeft, Stopwatch, add_step, count_tokens, record_fallback
from typedrag.text.sentences import without_repetitions
from typedrag.text.words import beginning, printable

logger = logging.getLogger(__name__)

_RETRY_TEMPERATURE = 0.7
_SHOWN = 300
"""Characters shown of a reply that cannot be read."""
_SHOWN_WORDS = 20
"""Words shown of a repeated text."""
_NO_PROVIDER = "LLM Provider NOT provided"
"""LiteLLM's words for a name that begins with no known provider."""
_OF_SCHEMA = ("response_format", "grammar", "schema")
"""Words by which a server shows that it refuses the requested form of a reply."""
_OF_ALL_CALLS = (
    dspy_errors.LMAuthError,
    dspy_errors.LMBillingError,
    dspy_errors.LMConfigurationError,
    dspy_errors.LMUnsupportedFeatureError,
)
"""Errors that every other call would meet too."""


_COUNTER = CallCounter()


class Reply(NamedTuple):
    """A prediction of an LM, with its calls, tokens and seconds.

    Attributes:
        prediction: The signature's output fields.
        usage: LM calls and tokens, with those of retries.
        seconds: Wall time.
    """

    prediction: dspy.Prediction
    usage: Usage
    seconds: float


def ask(step: str, predictor: dspy.Module, *, retries: int, **inputs: Any) -> Reply:
    """Ask the configured LM for the predictor's outputs.

    A reply that cannot be parsed, or whose answer is blank, is asked for again at a higher temperature and past
    DSPy's cache, which would replay it. The caller records a successful step. A failed step is recorded here, with its
    usage and the beginnings of its unreadable replies. Also recorded are a reply that was cut off, the items of its
    lists that were dropped, and repeated text that was removed from the ends of its texts.

    Args:
        step: Name of the step.
        predictor: A `dspy.Predict` or a module like it.
        retries: The number of times to ask again.
        inputs: The signature's input fields.
    """
    watch = Stopwatch()
    unread: list[Step] = []
    with _counting() as calls:
        try:
            with forget_unreadable():
                prediction = _predict(step, predictor, retries, inputs, unread)
        except StepFailed as failure:
            question, usage = _asked(inputs), calls.usage
            count_tokens(usage)
            add_step(Step(step, question, str(failure), usage=usage, seconds=watch.seconds, steps=tuple(unread)))
            raise
    lists = ((name, getattr(value, "dropped", ())) for name, value in prediction.items())
    dropped = [printable(f"{name}: {item}") for name, items in lists for item in items]
    dropped += _cut_repetitions(prediction)
    if dropped:
        add_step(Step(step, _asked(inputs), dropped=tuple(dropped)))
    if tokens := calls.tokens_when_cut_off:
        record_fallback(f"step '{step}': {CUT_OFF}, {tokens}", "it is taken as far as it goes")
    usage = calls.usage
    count_tokens(usage)
    return Reply(prediction, usage, watch.seconds)


def _predict(
    step: str, predictor: dspy.Module, retries: int, inputs: dict[str, Any], unread: list[Step]
) -> dspy.Prediction:
    """The LM's prediction; adds a step to `unread` for each reply that cannot be read."""
    problem = ""
    for attempt in range(retries + 1):
        again = {"config": {"rollout_id": attempt, "temperature": _RETRY_TEMPERATURE}} if attempt else {}
        try:
            with stream_answer(predictor):
                prediction = predictor(**inputs, **again)
            _note_outcome(answered=True)
            if not _is_blank(prediction):
                return _printable(prediction)
            problem = "the LM's answer is blank"
        except NoCallsLeft as limit:
            raise StepFailed(step, str(limit)) from None
        except (dspy_errors.AdapterParseError, dspy_errors.LMError) as error:
            if fault := unavailable_error(error):
                # DSPy has retried already where that may help, but not for a reply that is no reply at all
                if attempt == retries or dspy_errors.is_retryable_lm_error(error) or not isinstance(fault, CallFailed):
                    raise fault from error
                continue
            if isinstance(error, dspy_errors.LMInvalidRequestError):
                problem = f"the LM refused the request ({_words_of(error)})"
                _note_outcome(refusal=problem)
                if call_context().discreet:
                    logger.warning("%s", problem)
                    problem = "the LM refused the request"
                break
            _note_outcome(answered=True)
            problem = f"the LM's reply could not be read ({_words_of(error)})"
            if isinstance(error, dspy_errors.AdapterParseError):
                words = printable(" ".join(str(error.lm_response).split())[:_SHOWN])
                unread.append(Step("unreadable reply", output=words))
                logger.info("step %s, attempt %d: the reply begins: %s", step, attempt + 1, unread[-1].output)
        logger.info("step %s, attempt %d: %s", step, attempt + 1, problem)
    raise StepFailed(step, problem)


def hide_server_messages() -> AbstractContextManager[None]:
    """Leave a server's words out of the report that it refused a request: they may name paths and addresses."""
    return use_context(discreet=True)


def _cut_repetitions(prediction: dspy.Prediction) -> list[str]:
    """Remove repeated text from the ends of a prediction's texts; servers other than ours let an LM repeat itself.

    Returns:
        The removed texts, each with its field's name.
    """
    removed = []
    for name, value in prediction.items():
        if type(value) is str and (shortened := without_repetitions(value)) != value:
            prediction[name] = shortened
            removed.append(f"{name}: {beginning(value[len(shortened) :], _SHOWN_WORDS)} (it was there before)")
    return removed


class CallOutcome:
    """The outcome of a question's LM calls: if any was answered, and the last refusal."""

    def __init__(self) -> None:
        self.any = False
        self.refusal = ""


def _note_outcome(*, answered: bool = False, refusal: str = "") -> None:
    calls: CallOutcome | None = call_context().outcome
    if calls is not None:
        calls.any = calls.any or answered
        calls.refusal = refusal or calls.refusal


@contextmanager
def detect_refusals() -> Iterator[CallOutcome]:
    """Run the LM calls of one question within: an LM that refuses all of them is at fault, not the steps.

    Yields:
        The outcome of the calls.
    """
    calls = CallOutcome()
    failure: StepFailed | None = None
    try:
        with use_context(outcome=calls):
            yield calls
    except StepFailed as error:
        failure = error
    if calls.refusal and not calls.any:
        of_schema = any(word in calls.refusal.lower() for word in _OF_SCHEMA)
        hint = (
            "Let its server take a JSON schema, or set the LM's adapter to chat" if of_schema else "Mend what it says"
        )
        raise CallFailed(f"LM '{_lm()}' cannot be used: {calls.refusal}", hint) from failure
    if failure is not None:
        raise failure


def _is_blank(prediction: dspy.Prediction) -> bool:
    """True if an LM left its answer blank; a predictor may do so if it finds the question unanswerable."""
    answer = prediction.get("answer") if prediction.get("answered", True) else None
    return prediction.completions is not None and isinstance(answer, str) and not answer.strip()


def _printable(prediction: dspy.Prediction) -> dspy.Prediction:
    """The prediction as files and terminals take it: a reply may end amid a character, or hold the LM's key."""
    hide = Redactor(keys_of(dspy.settings.lm))
    for name, value in prediction.items():
        if type(value) is str:  # and no member of an enumeration
            prediction[name] = hide(printable(value))
    return prediction


def _asked(inputs: dict[str, Any]) -> str:
    """The question among the inputs, or else their first text."""
    texts = (value for value in inputs.values() if isinstance(value, str))
    return str(inputs.get("question") or next(texts, ""))


def unavailable_error(error: Exception) -> LMUnavailable | None:
    """The system's fault behind an error of a call; None if only the request or the reply is bad."""
    if not isinstance(error, dspy_errors.LMError):
        return None
    lm, words = f"{role_of(dspy.settings.lm)} '{_lm()}'", _words_of(error)
    if isinstance(error, dspy_errors.LMInvalidRequestError):
        if not isinstance(error, dspy_errors.LMUnsupportedModelError) and _NO_PROVIDER not in str(error):
            return None
        hint = "Write PROVIDER/MODEL as DSPy and the provider's server know them"
        return LMUnavailable(f"there is no {lm}: {words}", hint)
    if isinstance(error, dspy_errors.LMServerError) and "does not match the expected" in str(error):
        return None  # llama.cpp parses a reply by its grammar and reports one that breaks off as a fault of the server
    problem = f"{lm} cannot be used: {words}"
    if isinstance(error, dspy_errors.LMAuthError | dspy_errors.LMConfigurationError):
        return LMUnavailable(problem, "Set its API key in the environment")
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConnectionRefusedError | socket.gaierror):
        cause = cause.__cause__ or cause.__context__
    # nothing listens at the LM's address, or every other call would fail too
    kind = LMUnavailable if cause is not None or isinstance(error, _OF_ALL_CALLS) else CallFailed
    if isinstance(error, dspy_errors.LMTimeoutError):
        return kind(problem, "Look at its server, or give it longer: --timeout SECONDS")
    if isinstance(error, dspy_errors.LMTransportError):
        return kind(problem, "Is its server running? See: typedrag doctor")
    return kind(problem, "Look at its server's log")


def _words_of(error: Exception) -> str:
    """The first line of an error, without the key that a server may have put into it."""
    return without_keys(first_line(error), dspy.settings.lm)


@contextmanager
def _counting() -> Iterator[CallTracker]:
    """Count the calls made within, and pass them on to DSPy's outer tracker."""
    calls, around, callbacks = CallTracker(), dspy.settings.usage_tracker, dspy.settings.callbacks
    if not getattr(dspy.settings.lm, "counts_calls", False):
        callbacks = [_COUNTER, *callbacks]  # first: what others begin for a call that is not made would not end
    try:
        with dspy.context(usage_tracker=calls, callbacks=callbacks):
            yield calls
    finally:
        if around is not None:
            for lm, entry in calls.entries:
                around.add_usage(lm, entry)


def _lm() -> str:
    return str(getattr(dspy.settings.lm, "model", "the LM"))


def with_settings(predictor: dspy.Module, settings: Mapping[str, Any]) -> Callable[..., dspy.Prediction]:
    """A predictor that is called with these settings, on top of those that `ask` retries with.

    The rollout numbers of both are added up. Each retry of each draw thus has its own place in DSPy's
    cache, if the numbers of the draws lie further apart than there are retries.
    """

    def call(**inputs: Any) -> dspy.Prediction:
        again = inputs.pop("config", {})
        rollout = settings.get("rollout_id", 0) + again.get("rollout_id", 0)
        config = {**settings, **again, **({"rollout_id": rollout} if rollout else {})}
        return predictor(**inputs, config=config)

    return call


def allow_tokens(tokens: int) -> dict[str, int]:
    """The settings that let the configured LM write this many tokens; none if it may already."""
    limit = dspy.settings.lm.kwargs.get("max_tokens")
    return {"max_tokens": tokens} if limit and limit < tokens else {}

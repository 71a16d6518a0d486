"""Asking an LM through a predictor: retries, the budget, three kinds of failure, and the probabilities of choices."""

import json
import logging
import math
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import dspy
from dspy.utils import exceptions as dspy_errors

from typedrag.core.call_context import call_context, use_context
from typedrag.core.errors import CallFailed, LMUnavailable, StepFailed, first_line
from typedrag.core.records import CUT_OFF, Step, Usage
from typedrag.core.redaction import Redactor, lm_keys, without_keys
from typedrag.lms.client import stream_answer
from typedrag.lms.lm import ROLE, missing_key_error
from typedrag.lms.replies import forget_unreadable
from typedrag.lms.trace import CallCounter, CallTracker, NoCallsLeft, Stopwatch, add_step, count_tokens, record_fallback
from typedrag.text.sentences import without_repetitions
from typedrag.text.words import beginning, printable

logger = logging.getLogger(__name__)

_RETRY_TEMPERATURE = 0.7
_SHOWN = 300  # characters shown of a reply that cannot be read
_SHOWN_WORDS = 20  # words shown of a repeated text
_NO_PROVIDER = "LLM Provider NOT provided"  # LiteLLM's words for a name that begins with no known provider
_OF_SCHEMA = ("response_format", "grammar", "schema")
"""Words by which a server shows that it refuses the requested form of a reply."""
_UNREADABLE = "json_validate_failed"  # the code by which Groq refuses a reply of its own that breaks the schema
_OF_ALL_CALLS = (
    dspy_errors.LMAuthError,
    dspy_errors.LMBillingError,
    dspy_errors.LMConfigurationError,
    dspy_errors.LMUnsupportedFeatureError,
)
"""Errors that every other call would meet too."""


_COUNTER = CallCounter()
MOST_ALTERNATIVES = 20  # alternatives that servers give to a token: the limit of OpenAI, and vLLM's default


class Reply(NamedTuple):
    """A prediction of an LM, with its calls, tokens and seconds, those of retries included."""

    prediction: dspy.Prediction
    usage: Usage
    seconds: float


def ask(step: str, predictor: dspy.Module, *, retries: int, **inputs: Any) -> Reply:
    """Ask the configured LM for the predictor's outputs.

    A reply that cannot be parsed, or whose answer is blank, is asked for again at a higher temperature and past
    DSPy's cache, which would replay it. The caller records a successful step. A failed step is recorded here, with its
    usage and the beginnings of its unreadable replies. Also recorded are a reply that was cut off, the items of its
    lists that were dropped, and repeated text that was removed from the ends of its texts.
    """
    watch, unread = Stopwatch(), list[Step]()
    question = str(inputs.get("question") or next((v for v in inputs.values() if isinstance(v, str)), ""))
    calls, around, callbacks = CallTracker(), dspy.settings.usage_tracker, dspy.settings.callbacks
    if not getattr(dspy.settings.lm, "counts_calls", False):
        callbacks = [_COUNTER, *callbacks]  # first: what others begin for a call that is not made would not end
    try:
        with forget_unreadable(), dspy.context(usage_tracker=calls, callbacks=callbacks):
            prediction = _predict(step, predictor, retries, inputs, unread)
    except StepFailed as failure:
        add_step(Step(step, question, str(failure), usage=calls.usage, seconds=watch.seconds, steps=tuple(unread)))
        raise
    finally:
        count_tokens(calls.usage)
        for lm, entry in calls.entries if around is not None else ():
            around.add_usage(lm, entry)
    dropped = []
    for name, value in prediction.items():
        dropped += [printable(f"{name}: {item}") for item in getattr(value, "dropped", ())]
    for name, value in prediction.items():  # servers other than ours let an LM repeat itself
        if type(value) is str and (shortened := without_repetitions(value)) != value:
            prediction[name] = shortened
            cut = beginning(value[len(shortened) :], _SHOWN_WORDS)
            dropped.append(f"{name}: {cut} (it was there before)")
    if dropped:
        add_step(Step(step, question, dropped=tuple(dropped)))
    if tokens := calls.tokens_when_cut_off:
        record_fallback(f"step '{step}': {CUT_OFF}, {tokens}", "it is taken as far as it goes")
    return Reply(prediction, calls.usage, watch.seconds)


def _predict(
    step: str, predictor: dspy.Module, retries: int, inputs: dict[str, Any], unread: list[Step]
) -> dspy.Prediction:
    problem, outcome = "", call_context().outcome or CallOutcome()
    for attempt in range(retries + 1):
        again = {"config": {"rollout_id": attempt, "temperature": _RETRY_TEMPERATURE}} if attempt else {}
        try:
            with stream_answer(predictor):
                prediction = predictor(**inputs, **again)
            outcome.any = True
            # a predictor may leave its answer blank if it finds the question unanswerable
            answer = prediction.get("answer") if prediction.get("answered", True) else None
            if prediction.completions is None or not isinstance(answer, str) or answer.strip():
                # as files and terminals take it: a reply may end amid a character, or hold the LM's key
                hide = Redactor(lm_keys(dspy.settings.lm))
                for name, value in prediction.items():
                    if type(value) is str:  # and no member of an enumeration
                        prediction[name] = hide(printable(value))
                return prediction
            problem = "the LM's answer is blank"
        except NoCallsLeft as limit:
            raise StepFailed(step, str(limit)) from None
        except (dspy_errors.AdapterParseError, dspy_errors.LMError) as error:
            if fault := unavailable_error(error):
                # DSPy has retried already where that may help, but not for a reply that is no reply at all
                if attempt == retries or dspy_errors.is_retryable_lm_error(error) or not isinstance(fault, CallFailed):
                    raise fault from error
                continue
            refused = isinstance(error, dspy_errors.LMInvalidRequestError) and error.provider_code != _UNREADABLE
            if refused:
                problem = f"the LM refused the request ({_error_words(error)})"
                outcome.refusal, outcome.hint = problem, _refusal_hint(error)
                if call_context().discreet:
                    logger.warning("%s", problem)
                    problem = "the LM refused the request"
                break
            outcome.any = True
            problem = f"the LM's reply could not be read ({_error_words(error)})"
            if isinstance(error, dspy_errors.AdapterParseError):
                words = printable(" ".join(str(error.lm_response).split())[:_SHOWN])
                unread.append(Step("unreadable reply", output=words))
                logger.info("step %s, attempt %d: the reply begins: %s", step, attempt + 1, unread[-1].output)
        logger.info("step %s, attempt %d: %s", step, attempt + 1, problem)
    raise StepFailed(step, problem)


def hide_server_messages() -> AbstractContextManager[None]:
    """Leave a server's words out of reports that it refused a request: they may name paths and addresses."""
    return use_context(discreet=True)


@dataclass
class CallOutcome:
    """The outcome of a question's LM calls: if any was answered, and the last refusal with what to do about it."""

    any: bool = False
    refusal: str = ""
    hint: str = ""


@contextmanager
def detect_refusals() -> Iterator[CallOutcome]:
    """Run the LM calls of one question within: an LM that refuses all of them is at fault, not the steps."""
    calls = CallOutcome()
    failure: StepFailed | None = None
    try:
        with use_context(outcome=calls):
            yield calls
    except StepFailed as error:
        failure = error
    if calls.refusal and not calls.any:
        problem = f"LM '{dspy.settings.lm.model}' cannot be used: {calls.refusal}"
        raise CallFailed(problem, calls.hint) from failure
    if failure is not None:
        raise failure


def _refusal_hint(error: Exception) -> str:
    if isinstance(error, dspy_errors.ContextWindowExceededError):
        return "Show it less, by -o answer_passages=3 or -o passage_words=100, or serve it with a longer context"
    if any(word in _error_words(error).lower() for word in _OF_SCHEMA):
        return "Let its server take a JSON schema, or set the LM's adapter to chat: --adapter chat"
    return "Change what it refuses, or look at its server's log"


def unavailable_error(error: Exception) -> LMUnavailable | None:
    """The system's fault behind an error of a call; None if only the request or the reply is bad."""
    if not isinstance(error, dspy_errors.LMError):
        return None
    role, name = getattr(dspy.settings.lm, ROLE, "LM"), getattr(dspy.settings.lm, "model", "the LM")
    lm, words = f"{role} '{name}'", _error_words(error)
    if isinstance(error, dspy_errors.LMInvalidRequestError):
        if not isinstance(error, dspy_errors.LMUnsupportedModelError) and _NO_PROVIDER not in str(error):
            return None
        hint = "Write PROVIDER/MODEL as DSPy and the provider's server know them"
        return LMUnavailable(f"there is no {lm}: {words}", hint)
    if isinstance(error, dspy_errors.LMServerError) and "does not match the expected" in str(error):
        return None  # llama.cpp parses a reply by its grammar and reports one that breaks off as a fault of the server
    problem = f"{lm} cannot be used: {words}"
    if isinstance(error, dspy_errors.LMNotConfiguredError) and (keys := getattr(error, "env_keys", ())):
        return missing_key_error(lm, keys)
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


def _error_words(error: Exception) -> str:
    """The first line of an error, without the key that a server may have put into it, and the LM's name before it."""
    name = f"[{getattr(error, 'model', '')}] "
    return without_keys(first_line(error).removeprefix(name), dspy.settings.lm)


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
    limit = dspy.settings.lm.kwargs.get("max_tokens")
    return {"max_tokens": tokens} if limit and limit < tokens else {}


def logprob_settings() -> dict[str, Any]:
    """The call settings that add `logprobs` to a prediction; none if the LM cannot give them."""
    if "logprobs" not in dspy.settings.lm.supported_params:
        return {}
    return {"logprobs": True, "top_logprobs": MOST_ALTERNATIVES}


def number_probabilities(logprobs: Any, chosen: int, allowed: Collection[int]) -> dict[int, float] | None:
    """The probabilities of the allowed numbers at the place where an LM last wrote one of them, scaled to sum to 1.

    `logprobs` are those of a `dspy.Prediction`: the tokens written, in order, with the alternatives to each. `chosen`
    is the number that was read from the reply, and each allowed one is a token long. Servers that constrain decoding
    report the probabilities before the constraint, so a share of them can lie on other tokens. None if the number is
    not a token by itself, or the server gave no alternatives to it.
    """
    written = [token for token in _get(logprobs, "content") or () if _number(_get(token, "token")) == chosen]
    alternatives = (_get(written[-1], "top_logprobs") or ()) if written else ()
    probabilities = dict.fromkeys(allowed, 0.0)
    for alternative in alternatives:
        number = _number(_get(alternative, "token"))
        if number in probabilities:
            probabilities[number] += math.exp(_get(alternative, "logprob"))
    total = sum(probabilities.values())
    return {number: probability / total for number, probability in probabilities.items()} if total > 0 else None


def label_probabilities(logprobs: Any, chosen: str, labels: Collection[str]) -> dict[str, float] | None:
    """The probabilities of the labels at the place where an LM last began to write one of them, scaled to sum to 1.

    An alternative counts for the label that it begins, but not if it begins several. None if the reply does not hold
    the label, or the server gave no alternatives to its first token.
    """
    tokens = _get(logprobs, "content") or ()
    start = "".join(_get(token, "token") for token in tokens).rfind(chosen)
    probabilities = dict.fromkeys(labels, 0.0)
    end = 0
    for token in tokens:
        end += len(_get(token, "token"))
        if end > start >= 0:
            for alternative in _get(token, "top_logprobs") or ():
                text = _get(alternative, "token").strip(' \n{}":,')  # it can carry characters around a value
                begins = [label for label in labels if text and label.startswith(text)]
                if len(begins) == 1:
                    probabilities[begins[0]] += math.exp(_get(alternative, "logprob"))
            break
    total = sum(probabilities.values())
    return {label: probability / total for label, probability in probabilities.items()} if total > 0 else None


def _number(token: str) -> int | None:
    # a token can carry the space before a value and the brace after it
    try:
        value = json.loads(token.strip().rstrip("}"))
    except ValueError:
        return None
    return value if type(value) is int else None


def _get(record: Any, name: str) -> Any:
    # DSPy gives these records as dictionaries or as objects with attributes, depending on the engine
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)

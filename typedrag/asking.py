"""Asking an LM through a predictor: retries, the budget, and the three kinds of failure."""

from __future__ import annotations

import logging
from typing import Any

import dspy
from dspy.utils import exceptions as dspy_errors

from typedrag.errors import LMUnavailable, StepFailed, first_line
from typedrag.lm import role_of
from typedrag.records import Step, Usage
from typedrag.trail import Stopwatch, fall_back, record, take_lm_call
from typedrag.words import encodable

logger = logging.getLogger(__name__)

_RETRY_TEMPERATURE = 0.7
_NO_PROVIDER = "LLM Provider NOT provided"
"""What LiteLLM says of a name that begins with no provider's."""


class Reply:
    """What an LM predicted, and what it took.

    Attributes:
        prediction: The signature's output fields.
        usage: LM calls and tokens, retries counted in.
        seconds: Wall time.
    """

    def __init__(self, prediction: dspy.Prediction, usage: Usage, seconds: float) -> None:
        self.prediction = prediction
        self.usage = usage
        self.seconds = seconds


def ask(step: str, predictor: dspy.Module, *, retries: int, **inputs: Any) -> Reply:
    """Ask the LM that is configured for the predictor's outputs.

    A reply that cannot be parsed, or whose answer is blank, is asked for again at a higher temperature
    and past DSPy's cache, which would replay it. What comes of a reply is the caller's to record; a step that fails is
    recorded here, with what was spent on it, and so is that a reply which can be read was cut off.

    Args:
        step: Name of the step.
        predictor: A `dspy.Predict` or a module like it.
        retries: How often to ask again.
        inputs: The signature's input fields.

    Raises:
        StepFailed: If no reply can be parsed or says anything, the prompt is too long for the LM or refused by it,
            or the question's LM calls are used up.
        LMUnavailable: If the LM cannot be reached, refuses the key, or fails.
    """
    watch = Stopwatch()
    with dspy.track_usage() as tracker:
        try:
            prediction = _predict(step, predictor, retries, inputs)
        except StepFailed as failure:
            record(Step(step, _asked(inputs), str(failure), usage=_usage(tracker), seconds=watch.seconds))
            raise
    if limit := _cut_off(tracker):
        fall_back(f"step '{step}': the reply was cut off at max_tokens, {limit}", "it is taken as far as it goes")
    return Reply(prediction, _usage(tracker), watch.seconds)


def _predict(step: str, predictor: dspy.Module, retries: int, inputs: dict[str, Any]) -> dspy.Prediction:
    problem = ""
    for attempt in range(retries + 1):
        take_lm_call(step)
        again = {"config": {"rollout_id": attempt, "temperature": _RETRY_TEMPERATURE}} if attempt else {}
        try:
            prediction = predictor(**inputs, **again)
            if not _is_blank(prediction):
                return _encodable(prediction)
            problem = "the LM's answer is blank"
        except (dspy_errors.AdapterParseError, dspy_errors.LMError) as error:
            if fault := unavailable(error):
                raise fault from error
            if isinstance(error, dspy_errors.LMInvalidRequestError):
                problem = f"the LM refused the request ({first_line(error)})"
                break
            problem = f"the LM's reply could not be read ({first_line(error)})"
        logger.info("step %s, attempt %d: %s", step, attempt + 1, problem)
    raise StepFailed(step, problem)


def _is_blank(prediction: dspy.Prediction) -> bool:
    """Whether an LM has left the answer blank; predictors that ask none may."""
    answer = prediction.get("answer")
    return prediction.completions is not None and isinstance(answer, str) and not answer.strip()


def _encodable(prediction: dspy.Prediction) -> dspy.Prediction:
    """The same, as files can hold it: a reply that is cut off may end amid a character."""
    for name, value in prediction.items():
        if type(value) is str:  # and no member of an enumeration
            prediction[name] = encodable(value)
    return prediction


def _asked(inputs: dict[str, Any]) -> str:
    """What was asked about: the question, where there is one."""
    texts = (value for value in inputs.values() if isinstance(value, str))
    return str(inputs.get("question") or next(texts, ""))


def unavailable(error: Exception) -> LMUnavailable | None:
    """The fault of the system that an error of a call is; None if only its request or its reply is bad."""
    if not isinstance(error, dspy_errors.LMError):
        return None
    if isinstance(error, dspy_errors.LMInvalidRequestError):
        return _unknown(error)
    if isinstance(error, dspy_errors.LMServerError) and _is_malformed_reply(error):
        return None
    return _unavailable(error)


def _unknown(error: Exception) -> LMUnavailable | None:
    """The fault that a refused request is where it asks for an LM that there is not."""
    if not isinstance(error, dspy_errors.LMUnsupportedModelError) and _NO_PROVIDER not in str(error):
        return None
    mend = "Write PROVIDER/MODEL as DSPy and the provider's server know them"
    return LMUnavailable(f"there is no {role_of(dspy.settings.lm)} '{_lm()}': {first_line(error)}", mend)


def _is_malformed_reply(error: Exception) -> bool:
    # llama.cpp reads a reply by its grammar and calls one that breaks off a fault of the server
    return "does not match the expected" in str(error)


def _usage(tracker: Any) -> Usage:
    entries = _entries(tracker)
    return Usage(
        lm_calls=len(entries),
        prompt_tokens=sum(entry.get("prompt_tokens") or 0 for entry in entries),
        completion_tokens=sum(entry.get("completion_tokens") or 0 for entry in entries),
    )


def _cut_off(tracker: Any) -> int:
    """The tokens that the last reply was allowed, if it has as many; else 0."""
    settings = getattr(dspy.settings.lm, "kwargs", {})
    limit = settings.get("max_tokens") or settings.get("max_completion_tokens") or 0
    entries = _entries(tracker)
    return limit if entries and entries[-1].get("completion_tokens") == limit else 0


def _entries(tracker: Any) -> list[dict[str, Any]]:
    """What each call used, in their order."""
    return [entry for entries in tracker.usage_data.values() for entry in entries]


def _lm() -> str:
    return str(getattr(dspy.settings.lm, "model", "the LM"))


def _unavailable(error: Exception) -> LMUnavailable:
    problem = f"{role_of(dspy.settings.lm)} '{_lm()}' cannot be used: {first_line(error)}"
    if isinstance(error, dspy_errors.LMAuthError | dspy_errors.LMConfigurationError):
        return LMUnavailable(problem, "Set its API key in the environment")
    if isinstance(error, dspy_errors.LMTransportError | dspy_errors.LMTimeoutError):
        return LMUnavailable(problem, "Is its server running? See: typedrag doctor")
    return LMUnavailable(problem, "Look at its server's log")

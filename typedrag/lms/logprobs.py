"""The probabilities that an LM gave to the values it could choose from."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import dspy

MOST_ALTERNATIVES = 20
"""Alternatives that servers give to a token: the limit of OpenAI, and vLLM's default."""


def logprob_settings() -> dict[str, Any]:
    """The call settings that add `logprobs` to a prediction; none if the LM cannot give them."""
    if "logprobs" not in dspy.settings.lm.supported_params:
        return {}
    return {"logprobs": True, "top_logprobs": MOST_ALTERNATIVES}


def number_probabilities(logprobs: Any, chosen: int, allowed: Collection[int]) -> dict[int, float] | None:
    """The probabilities of the allowed numbers at the place where an LM last wrote one of them, scaled to sum to 1.

    Servers that constrain decoding report the probabilities before the constraint, so a share of them
    can lie on other tokens.

    Args:
        logprobs: From a `dspy.Prediction`: the tokens written, in order, with the alternatives to each.
        chosen: The number that was read from the reply.
        allowed: The numbers that the LM could choose from, each one token long.

    Returns:
        None if the number is not a token by itself, or the server gave no alternatives to it.

    Example:
        >>> half, token = math.log(0.5), {"token": "2", "logprob": math.log(0.5)}
        >>> two = {**token, "top_logprobs": [token, {"token": " 1", "logprob": math.log(0.25)}]}
        >>> brace = {"token": "}", "logprob": 0.0, "top_logprobs": []}
        >>> {n: round(p, 3) for n, p in number_probabilities({"content": [two, brace]}, 2, (1, 2, 3)).items()}
        {1: 0.333, 2: 0.667, 3: 0.0}
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

    An alternative counts for the label that it begins, but not if it begins several.

    Args:
        logprobs: See `number_probabilities`.
        chosen: The label that was read from the reply.
        labels: The labels that the LM could choose from, the chosen one among them.

    Returns:
        None if the reply does not hold the label, or the server gave no alternatives to its first token.

    Example:
        >>> written = {"token": "deb", "top_logprobs": [
        ...     {"token": "deb", "logprob": math.log(0.6)}, {"token": "re", "logprob": math.log(0.2)}]}
        >>> reply = {"content": [{"token": '{"type": "', "top_logprobs": []}, written, {"token": 'ate"}'}]}
        >>> {t: round(p, 2) for t, p in label_probabilities(reply, "debate", ("debate", "reason")).items()}
        {'debate': 0.75, 'reason': 0.25}
    """
    tokens = _get(logprobs, "content") or ()
    start = "".join(_get(token, "token") for token in tokens).rfind(chosen)
    probabilities = dict.fromkeys(labels, 0.0)
    end = 0
    for token in tokens:
        end += len(_get(token, "token"))
        if end > start >= 0:
            for alternative in _get(token, "top_logprobs") or ():
                begins = [label for label in labels if _begins(_get(alternative, "token"), label)]
                if len(begins) == 1:
                    probabilities[begins[0]] += math.exp(_get(alternative, "logprob"))
            break
    total = sum(probabilities.values())
    return {label: probability / total for label, probability in probabilities.items()} if total > 0 else None


def _begins(token: str, label: str) -> bool:
    # a token can carry characters that come before and after a value
    text = token.strip(' \n{}":,')
    return bool(text) and label.startswith(text)


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

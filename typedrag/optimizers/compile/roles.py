"""What the predictor at hand was called with, as feedback takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typedrag.metrics.feedback import PredictorCall
from typedrag.signatures.roles import role_of


def read_call(pred_name: str, pred_trace: Any) -> PredictorCall | None:
    """The call that GEPA asks for feedback on; None if the predictor's part is not known.

    Args:
        pred_name: As the program names it.
        pred_trace: The predictor, its inputs and its outputs, in a list.
    """
    if not pred_trace:
        return None
    predictor, inputs, outputs = pred_trace[0]
    role = role_of(predictor.signature)
    if role is None:
        return None
    return PredictorCall(
        role=role,
        asked=str(inputs.get("question") or ""),
        sources=_sources(inputs),
        written=str(outputs.get("answer") or ""),
        outputs=dict(outputs.items()),
    )


def _sources(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of passages, or the answers to parts of a question."""
    passages: Sequence[Any] = inputs.get("passages") or ()
    answers: Sequence[Any] = inputs.get("sub_answers") or inputs.get("perspectives") or ()
    return tuple([p.text for p in passages] or [a.answer for a in answers])

"""Does a text answer sub-questions, and by which fragment? (Sub-question coverage, section 3.2.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import dspy

from typedrag.asking import ask
from typedrag.metrics.call_settings import room_for, with_settings
from typedrag.metrics.fragments import locate_fragment
from typedrag.metrics.judgments import Judgments
from typedrag.signatures import FindAnswers, predictor
from typedrag.signatures.sub_questions import exactly, keyed, values
from typedrag.trail import run_concurrently

_TOKENS_A_VERDICT = 90
_ASKED_AGAIN = {"rollout_id": 100, "temperature": 0.7}
"""Past DSPy's cache, which would replay the reply, and past the rollouts of retries."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a judge says of one sub-question and a text.

    Attributes:
        answered: Whether the text answers it.
        fragment: The words of the text that do; empty if it does not.
        position: Where they begin, as a share of the text's words; None if it does not.
        invalid: Whether the judge claimed, even when asked again, that words answer it which do not
            stand in the text; it counts as not answered.
    """

    answered: bool
    fragment: str = ""
    position: float | None = None
    invalid: bool = False


class CoverageJudge(dspy.Module):
    """Says of each sub-question whether a text answers it, and by which of its words.

    One call judges many sub-questions. Those for which the judge quotes words that do not stand in
    the text, not even nearly (`locate_fragment`), are asked once more.

    Args:
        retries: How often a reply that cannot be parsed is asked for again.
        sub_questions_per_call: At most; 1 asks as the paper does.
        threads: Calls for one text under way at once.

    Attributes:
        sub_questions_per_call: As given.
    """

    def __init__(self, retries: int = 2, sub_questions_per_call: int = 10, threads: int = 8) -> None:
        super().__init__()
        self._retries = retries
        self._threads = threads
        self.sub_questions_per_call = sub_questions_per_call
        self.find = predictor(FindAnswers)

    def forward(self, text: str, sub_questions: Sequence[str]) -> dspy.Prediction:
        """The `verdicts`, a `Coverage` for each sub-question.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be reached.
        """
        size = self.sub_questions_per_call
        parts = [sub_questions[start : start + size] for start in range(0, len(sub_questions), size)]
        verdicts = run_concurrently(lambda part: self._judge(text, part), parts, self._threads)
        return dspy.Prediction(verdicts=[verdict for part in verdicts for verdict in part])

    def _judge(self, text: str, sub_questions: Sequence[str]) -> list[Coverage]:
        verdicts = self._ask(text, sub_questions, {})
        again = [i for i, verdict in enumerate(verdicts) if verdict.invalid]
        if again:
            for i, verdict in zip(again, self._ask(text, [sub_questions[i] for i in again], _ASKED_AGAIN), strict=True):
                verdicts[i] = verdict
        return verdicts

    def _ask(self, text: str, sub_questions: Sequence[str], settings: dict[str, float]) -> list[Coverage]:
        reply = ask(
            "judge coverage",
            with_settings(self.find, {**room_for(len(sub_questions) * _TOKENS_A_VERDICT), **settings}),
            retries=self._retries,
            signature=exactly(self.find.signature, len(sub_questions)),
            text=text,
            sub_questions=keyed(sub_questions),
        )
        return [_check(text, v.fragment, v.answered) for v in values(reply.prediction.verdicts)]


def stored_verdicts(
    judge: CoverageJudge, judgments: Judgments, text: str, sub_questions: Sequence[str]
) -> list[Coverage]:
    """What a judge says, or once said, of a text; see `CoverageJudge.forward`."""
    inputs = {"text": text, "sub_questions": list(sub_questions)}
    made = judgments.get_or_make(
        judge,
        {**inputs, "sub_questions_per_call": judge.sub_questions_per_call},
        lambda: {"verdicts": [asdict(v) for v in judge(**inputs).verdicts]},
    )
    return [Coverage(**verdict) for verdict in made["verdicts"]]


def _check(text: str, fragment: str, answered: bool) -> Coverage:
    if not answered:
        return Coverage(False)
    place = locate_fragment(text, fragment)
    if place is None:
        return Coverage(False, fragment, invalid=True)
    return Coverage(True, fragment, place.position)

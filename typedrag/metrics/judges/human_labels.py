"""What people said, as judges are asked about it: to compile judges by, and to check them by.

Each kind of labels is a metric of what a judge predicts for one example, with feedback in words,
and says by one number how well a judge agrees with people over many examples: the number that
`typedrag judges check` reports under the same name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

import dspy

from typedrag.datasets.dataset import hash_of
from typedrag.datasets.splits import group_of
from typedrag.metrics.arithmetic.agreement import ordered_pairs, share_difference, share_estimate
from typedrag.metrics.arithmetic.ranks import Convention, expected_rank
from typedrag.metrics.feedback import MOST_QUOTED, PredictorCall, quoted
from typedrag.metrics.judges.linkage import draw_references
from typedrag.metrics.metric import Metric, Scored
from typedrag.question_types import SubQuestionType
from typedrag.records import Estimate, Reference
from typedrag.signatures.fields import Verdict
from typedrag.sub_questions.coverage_judge import Coverage

Judged = Sequence[tuple[dspy.Example, dspy.Prediction]]
"""Examples, each with what a judge predicted."""


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """A labelled answer to be judged, as if a program had given it.

    Attributes:
        example: Its references are what a metric may know: other answers to the question, without one of each
            label, so that how many there are of a label does not give away the candidate's.
        candidate: The answer.
        references: Those that LINKAGE draws, of which it is none.
    """

    example: dspy.Example
    candidate: Reference
    references: tuple[Reference, ...]

    @property
    def rank(self) -> int:
        """Its place among LINKAGE's references by the labels: after all better ones, beside its equal."""
        return 1 + sum(r.label > self.candidate.label for r in self.references)


def labelled_answers(example: dspy.Example, seed: int = 0) -> list[LabelledAnswer]:
    """The labelled answers to a question that LINKAGE does not draw as references, by lot.

    Raises:
        NotMeasurable: If the question's answers have fewer than two labels.

    Example:
        >>> answers = [Reference("Yeast.", 2), Reference("Flour.", 0), Reference("Gas.", 2), Reference("Dough.", 0)]
        >>> drawn = labelled_answers(dspy.Example(id="q1", question="Why does bread rise?", references=answers))
        >>> sorted((case.candidate.label, case.rank) for case in drawn)
        [(0, 2), (2, 1)]
    """
    drawn = draw_references(example, seed)
    shown = {r.text for r in drawn}
    others = {r.text: r for r in example.references if r.text.strip() and r.text not in shown}
    by_lot = sorted(others.values(), key=lambda r: hash_of(f"candidate {example.id}:{r.text}", seed))
    first = {r.label: r.text for r in reversed(by_lot)}

    def known(candidate: Reference) -> dspy.Example:
        hidden = {**first, candidate.label: candidate.text}.values()
        return example.copy(references=tuple(r for r in example.references if r.text not in hidden))

    return [LabelledAnswer(known(r), r, drawn) for r in by_lot]


def majority(types: Iterable[SubQuestionType]) -> SubQuestionType | None:
    """The type that more annotators chose than any other; None if they are divided.

    Example:
        >>> core, background = SubQuestionType.CORE, SubQuestionType.BACKGROUND
        >>> majority([core, background, core]), majority([core, background])
        (<SubQuestionType.CORE: 'core'>, None)
    """
    counts = Counter(types).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


class HumanLabels(Metric):
    """What all kinds of labels have in common."""

    measure: ClassVar[str]
    """The number by which judges are compared."""
    output: ClassVar[str]
    """The field of the judge's predictor that is measured."""

    def counts(self, judged: Judged) -> list[tuple[float, int]]:
        """How much of what a judge predicted for a question is right, and of how much, for each question."""
        raise NotImplementedError

    def agreement(self, judged: Judged, seed: int = 0) -> Estimate | None:
        """How well a judge agrees with people, with an interval; None where that is undefined."""
        return share_estimate(self.counts(judged), seed)

    def gain(self, judged: Judged, base: Judged, seed: int = 0) -> Estimate | None:
        """How much better a judge agrees with people than another on the same examples, with the interval of the
        difference; None where it is undefined, as on few questions: see `share_difference`."""
        return share_difference(self.counts(judged), self.counts(base), seed)

    def feedback_for(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """What people said instead, to the predictor that judged."""
        return scored.feedback if self.output in call.outputs else ""


class RankLabels(HumanLabels):
    """How near a rank is to the one by people's labels: 1 if it is the same, 0 if they are the ends of the list.

    The example has the `rank` and the `label` of its candidate, `tied` (whether a reference has the
    same label), and the judge's inputs; agreement is `pairs_ordered`, of two candidates for a
    question how often the better one is ranked better.

    Args:
        convention: Of the judge. Where an answer can come after all references, one place after its
            equal is as right as one before.
        options: Of `Metric`.
    """

    name: ClassVar[str] = "rank-labels"
    measure: ClassVar[str] = "pairs_ordered"
    output: ClassVar[str] = "rank"

    def __init__(self, *, convention: Convention = Convention.TYPED_RAG, **options: Any) -> None:
        super().__init__(**options)
        self.convention = convention

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare the ranks."""
        given, right = _expected(prediction), example.rank
        both = self.convention is Convention.LINKAGE and example.tied
        off = max(right - given, given - right - both, 0)
        worst = self.convention.worst_rank(len(example.references))
        said = f"People's labels put the candidate at rank {right}{f' or {right + 1}' if both else ''} of {worst}"
        if example.tied:
            said += f", as good as {quoted(example.references[right - 1], 25)}"
        judged = f"it was ranked {prediction.rank}" + ("" if off else ", as is right")
        return Scored(1 - off / (worst - 1), f"{said}; {judged}.", {"off": float(off)})

    def counts(self, judged: Judged) -> list[tuple[float, int]]:
        """The pairs in the labels' order, and all pairs that have one."""
        groups, labels = [group_of(e) for e, _ in judged], [e.label for e, _ in judged]
        return list(ordered_pairs([-_expected(p) for _, p in judged], labels, groups).values())


class VerdictLabels(HumanLabels):
    """Whether verdicts on sub-questions are those of people, what is answered and what is not counting alike.

    The score is the mean of the share that is right of the answered sub-questions and of the
    others. The example has the `verdicts` by key, beside the judge's inputs; agreement is `ordered`,
    of an answered and another sub-question on a text how often the former is held more covered.
    """

    name: ClassVar[str] = "verdict-labels"
    measure: ClassVar[str] = "ordered"
    output: ClassVar[str] = "verdicts"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare verdict by verdict."""
        people, given = list(example.verdicts.values()), prediction.verdicts
        right = [p.answered == g.answered for p, g in zip(people, given, strict=True)]
        shares = [[r for r, p in zip(right, people, strict=True) if p.answered is kind] for kind in (True, False)]
        wrong = [
            _on_verdict(text, p, g)
            for text, p, g, r in zip(example.sub_questions.values(), people, given, right, strict=True)
            if not r
        ]
        score = fmean(fmean(share) for share in shares if share)
        return Scored(score, _on_wrong(wrong, len(right)), {"accuracy": fmean(right)})

    def counts(self, judged: Judged) -> list[tuple[float, int]]:
        """The pairs of sub-questions on a text in people's order, and all pairs that have one."""
        pairs = [(e, v, g) for e, p in judged for v, g in zip(e.verdicts.values(), p.verdicts, strict=True)]
        people, given = [int(v.answered) for _, v, _ in pairs], [int(g.answered) for _, _, g in pairs]
        of_texts = ordered_pairs(given, people, [(group_of(e), e.text) for e, _, _ in pairs])
        questions: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for (question, _), counts in of_texts.items():
            questions[question].append(counts)
        return [(sum(right for right, _ in each), sum(of for _, of in each)) for each in questions.values()]


class TypeLabels(HumanLabels):
    """The share of sub-questions that have the type which most annotators chose.

    The example has the `types` by key, beside the typer's inputs; agreement is `accuracy`.
    """

    name: ClassVar[str] = "type-labels"
    measure: ClassVar[str] = "accuracy"
    output: ClassVar[str] = "types"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare type by type."""
        compared = list(zip(example.sub_questions.values(), example.types.values(), prediction.types, strict=True))
        wrong = [
            f"{quoted(text)} is {people}, taken for {given}." for text, people, given in compared if people != given
        ]
        share = 1 - len(wrong) / len(compared)
        return Scored(share, _on_wrong(wrong, len(compared)), {"accuracy": share})

    def counts(self, judged: Judged) -> list[tuple[float, int]]:
        """The right types, and all."""
        right: dict[str, list[bool]] = defaultdict(list)
        for example, prediction in judged:
            types = zip(example.types.values(), prediction.types, strict=True)
            right[group_of(example)] += [people == given for people, given in types]
        return [(sum(each), len(each)) for each in right.values()]


def _expected(prediction: dspy.Prediction) -> float:
    probabilities: Mapping[int, float] | None = prediction.get("probabilities")
    return expected_rank(probabilities) if probabilities else float(prediction.rank)


def _on_verdict(sub_question: str, people: Verdict, given: Coverage) -> str:
    if people.answered:
        missed = " (the words quoted do not stand in the text)" if given.invalid else ""
        return f"{quoted(sub_question)} is answered by {quoted(people.fragment, 25)}{missed}."
    return f"{quoted(sub_question)} is not answered; {quoted(given.fragment, 25)} does not do so."


def _on_wrong(wrong: Sequence[str], count: int) -> str:
    if not wrong:
        return "All as people have it."
    more = f" And {len(wrong) - MOST_QUOTED} more." if len(wrong) > MOST_QUOTED else ""
    return f"{len(wrong)} of {count} are not as people have it. {' '.join(wrong[:MOST_QUOTED])}{more}"

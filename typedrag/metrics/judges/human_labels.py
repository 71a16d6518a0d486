"""People's labels, to compile judges by and to check them by.

Each kind of labels is a metric of a judge's prediction for one example, which a compile goes by. Its `Agreement` is the
metric of a test: it looks at all examples of a question together, so that no judge gains by saying the same of all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import dspy

from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Reference
from typedrag.datasets.dataset import make_id, text_hash
from typedrag.metrics.estimate import ordered_pairs
from typedrag.metrics.judges.linkage import Convention, draw_references, expected_rank
from typedrag.metrics.metric import MOST_QUOTED, Metric, PredictorCall, Scored, quoted
from typedrag.metrics.nuggets import without_texts


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """A labelled answer to be judged as if a program had written it.

    The example has other answers to the question as references, and nuggets of others. One of each label is left out,
    so that their numbers do not give away the candidate's label. `references` are those that LINKAGE draws, without the
    candidate.
    """

    example: dspy.Example
    candidate: Reference
    references: tuple[Reference, ...]

    @property
    def rank(self) -> int:
        """The candidate's place among LINKAGE's references by label: after all better ones, level with its equal."""
        return 1 + sum(r.label > self.candidate.label for r in self.references)


def labelled_answers(example: dspy.Example, seed: int = 0) -> list[LabelledAnswer]:
    """The labelled answers to a question that LINKAGE does not draw as references, in random order."""
    drawn = draw_references(example, seed)
    shown = {r.text for r in drawn}
    others = {r.text: r for r in example.references if r.text.strip() and r.text not in shown}
    by_lot = sorted(others.values(), key=lambda r: text_hash(f"candidate {example.id}:{r.text}", seed))
    first = {r.label: r.text for r in reversed(by_lot)}

    cases = []
    for candidate in by_lot:
        hidden = {**first, candidate.label: candidate.text}.values()
        known = tuple(r for r in example.references if r.text not in hidden)
        nuggets = without_texts(example.get("nuggets") or (), {make_id(text) for text in hidden})
        cases.append(LabelledAnswer(example.copy(references=known, nuggets=nuggets), candidate, drawn))
    return cases


def majority(types: Iterable[SubQuestionType]) -> SubQuestionType | None:
    """The type that most annotators chose; None if there is a tie."""
    counts = Counter(types).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


class HumanLabels(Metric):
    output: ClassVar[str]

    def agreement(self, cases: Sequence[dspy.Example], judgments: Sequence[dspy.Prediction]) -> float:
        return fmean(self.score(*judged).score for judged in zip(cases, judgments, strict=True))

    def comparable(self, cases: Sequence[dspy.Example]) -> bool:
        return True

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        return scored.feedback if self.output in call.outputs else ""


@dataclass(eq=False, repr=False)
class RankLabels(HumanLabels):
    """The closeness of a rank to the one by people's labels: 1 if equal, 0 if they are at opposite ends of the list.

    The example has the `rank` and the `label` of its candidate, `tied` (whether a reference has the same label), and
    the judge's inputs. Agreement is the share of pairs of candidates whose better one is ranked better. If an answer
    can come after all references by the judge's convention, the places before and after its equal are both right.
    """

    name: ClassVar[str] = "rank-labels"
    output: ClassVar[str] = "rank"

    convention: Convention = Convention.TYPED_RAG

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        predicted, right = _expect_rank(prediction), example.rank
        both = self.convention is Convention.LINKAGE and example.tied
        off = max(right - predicted, predicted - right - both, 0)
        worst = self.convention.worst_rank(len(example.references))
        text = f"People's labels put the candidate at rank {right}{f' or {right + 1}' if both else ''} of {worst}"
        if example.tied:
            text += f", as good as {quoted(example.references[right - 1], 25)}"
        judged = f"it was ranked {prediction.rank}" + ("" if off else ", as is right")
        return Scored(1 - off / (worst - 1), f"{text}; {judged}.", {"off": float(off)})

    def agreement(self, cases: Sequence[dspy.Example], judgments: Sequence[dspy.Prediction]) -> float:
        return _ordered_share([-_expect_rank(j) for j in judgments], [c.label for c in cases], [""] * len(cases))

    def comparable(self, cases: Sequence[dspy.Example]) -> bool:
        return len({case.label for case in cases}) > 1


class VerdictLabels(HumanLabels):
    """Agreement of verdicts on sub-questions with people's: the mean of the right shares of the answered ones and of
    the others.

    The example has the `verdicts` by key. Agreement is the share of pairs of an answered and an unanswered sub-question
    on a text in which the judge finds the former more covered.
    """

    name: ClassVar[str] = "verdict-labels"
    output: ClassVar[str] = "verdicts"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        people, predicted = list(example.verdicts.values()), prediction.verdicts
        right = [p.answered == g.answered for p, g in zip(people, predicted, strict=True)]
        shares = [[r for r, p in zip(right, people, strict=True) if p.answered is kind] for kind in (True, False)]
        wrong = []
        for text, p, g, r in zip(example.sub_questions.values(), people, predicted, right, strict=True):
            if r:
                continue
            if p.answered:
                missed = " (the words quoted do not stand in the text)" if g.invalid else ""
                wrong.append(f"{quoted(text)} is answered by {quoted(p.fragment, 25)}{missed}.")
            else:
                wrong.append(f"{quoted(text)} is not answered; {quoted(g.fragment, 25)} does not do so.")
        score = fmean(fmean(share) for share in shares if share)
        return Scored(score, _list_wrong(wrong, len(right)), {"accuracy": fmean(right)})

    def agreement(self, cases: Sequence[dspy.Example], judgments: Sequence[dspy.Prediction]) -> float:
        people = [int(verdict.answered) for case in cases for verdict in case.verdicts.values()]
        judged = [int(verdict.answered) for judgment in judgments for verdict in judgment.verdicts]
        return _ordered_share(judged, people, [case.text for case in cases for _ in case.verdicts])

    def comparable(self, cases: Sequence[dspy.Example]) -> bool:
        kinds: dict[str, set[bool]] = defaultdict(set)
        for case in cases:
            kinds[case.text] |= {verdict.answered for verdict in case.verdicts.values()}
        return any(len(of_text) > 1 for of_text in kinds.values())


class TypeLabels(HumanLabels):
    """The share of sub-questions with the type that most annotators chose: the example has the `types` by key."""

    name: ClassVar[str] = "type-labels"
    output: ClassVar[str] = "types"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        compared = list(zip(example.sub_questions.values(), example.types.values(), prediction.types, strict=True))
        wrong = [
            f"{quoted(text)} is {people}, taken for {guess}." for text, people, guess in compared if people != guess
        ]
        share = 1 - len(wrong) / len(compared)
        return Scored(share, _list_wrong(wrong, len(compared)), {"accuracy": share})


@dataclass(eq=False, repr=False, kw_only=True)
class Agreement(Metric):
    """A judge's agreement with people on the `cases` of a question, by its `judgments` of them."""

    name: ClassVar[str] = "agreement"

    labels: HumanLabels

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        return Scored(self.labels.agreement(example.cases, prediction.judgments))


def _ordered_share(scores: Sequence[float], labels: Sequence[float], groups: Sequence[str]) -> float:
    counts = ordered_pairs(scores, labels, groups).values()
    return sum(right for right, _ in counts) / sum(of for _, of in counts)


def _expect_rank(prediction: dspy.Prediction) -> float:
    probabilities: Mapping[int, float] | None = prediction.get("probabilities")
    return expected_rank(probabilities) if probabilities else float(prediction.rank)


def _list_wrong(wrong: Sequence[str], count: int) -> str:
    if not wrong:
        return "All as people have it."
    more = f" And {len(wrong) - MOST_QUOTED} more." if len(wrong) > MOST_QUOTED else ""
    return f"{len(wrong)} of {count} are not as people have it. {' '.join(wrong[:MOST_QUOTED])}{more}"

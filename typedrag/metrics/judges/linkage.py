"""LINKAGE: the rank of an answer among references in descending order of quality (Typed-RAG, section 4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.records import Reference
from typedrag.datasets.dataset import text_hash
from typedrag.lms.asking import ask, logprob_settings, number_probabilities, with_settings
from typedrag.metrics.judges.combined import names, quality, worths
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric, quoted, touched, untouched
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.judging import PlaceAmongReferences, RankAmongReferences, with_ranks
from typedrag.signatures.roles import Role
from typedrag.text.sentences import sentences
from typedrag.text.words import content_words


class Convention(StrEnum):
    """A convention of the ranks that an answer can have among n references.

    Example:
        >>> [c.worst_rank(4) for c in Convention]
        [4, 5]
    """

    TYPED_RAG = "typed-rag"
    LINKAGE = "linkage"

    def worst_rank(self, references: int) -> int:
        """The worst rank among some references."""
        return references if self is Convention.TYPED_RAG else references + 1


def reciprocal_rank(rank: float) -> float:
    """The reciprocal of a rank: 1 for the best.

    Example:
        >>> reciprocal_rank(4)
        0.25
    """
    _check_rank(rank)
    return 1 / rank


def percentile_rank(rank: float, references: int) -> float:
    """A rank's place within a list of references, in percent: 100 for the best (eq. 4, one term).

    Of n references, rank n gets 100/n, and rank n + 1 gets 0.

    Example:
        >>> [percentile_rank(rank, references=4) for rank in (1, 2, 4, 5)]
        [100.0, 75.0, 25.0, 0.0]
    """
    _check_rank(rank)
    if rank > references + 1:
        raise ValueError(f"rank {rank} is beyond {references} references")
    return (1 - (rank - 1) / references) * 100


def mrr(ranks: Iterable[float]) -> float:
    """Mean reciprocal rank, from 0 to 1 (eq. 3).

    Example:
        >>> mrr([1, 2, 4])
        0.5833333333333334
    """
    return fmean(reciprocal_rank(rank) for rank in ranks)


def mpr(ranks: Iterable[tuple[float, int]]) -> float:
    """Mean percentile rank, from 0 to 100 (eq. 4).

    Args:
        ranks: Ranks, each with the number of references it is among.

    Example:
        >>> mpr([(1, 4), (2, 2)])
        75.0
    """
    return fmean(percentile_rank(rank, references) for rank, references in ranks)


def chance_mrr(references: int, convention: Convention = Convention.TYPED_RAG) -> float:
    """The mean reciprocal rank of a judge who draws ranks at random.

    Example:
        >>> round(chance_mrr(4), 3), round(chance_mrr(4, Convention.LINKAGE), 3)
        (0.521, 0.457)
    """
    return mrr(_all_ranks(references, convention))


def chance_mpr(references: int, convention: Convention = Convention.TYPED_RAG) -> float:
    """The mean percentile rank of a judge who draws ranks at random.

    Example:
        >>> chance_mpr(4), chance_mpr(4, Convention.LINKAGE)
        (62.5, 50.0)
    """
    return mpr((rank, references) for rank in _all_ranks(references, convention))


def expected_rank(probabilities: Mapping[int, float]) -> float:
    """The mean of the allowed ranks, weighted by the judge's probabilities of them.

    Args:
        probabilities: The probabilities of the allowed ranks. They need not sum to 1, since other tokens
            have probabilities too: they are scaled to do so.

    Example:
        >>> expected_rank({1: 0.5, 2: 0.25, 4: 0.25})
        2.0
        >>> expected_rank({1: 0.3, 2: 0.1})
        1.25
    """
    for rank, probability in probabilities.items():
        _check_rank(rank)
        if probability < 0:
            raise ValueError(f"rank {rank} has the probability {probability}")
    # scaled by the greatest first, so that tiny probabilities are not lost in the sum
    greatest = max(probabilities.values(), default=0.0)
    if not greatest > 0:
        raise ValueError("no allowed rank has a probability above 0")
    weights = {rank: probability / greatest for rank, probability in probabilities.items()}
    return sum(rank * weight for rank, weight in weights.items()) / sum(weights.values())


def _all_ranks(references: int, convention: Convention) -> range:
    if references < 1:
        raise ValueError(f"{references} references leave nothing to rank among")
    return range(1, convention.worst_rank(references) + 1)


def _check_rank(rank: float) -> None:
    if not rank >= 1:
        raise ValueError(f"{rank} is no rank: ranks count from 1")


MOST_REFERENCES = 8
"""The most references: a rank after all of them, 9, is still one digit, hence one token."""

Make: TypeAlias = Literal["lm", "combined", "both"]
"""The kinds of judges: an LM that ranks answers, a model of what they share with references, or both."""

_SIGNATURES: Mapping[Convention, type[dspy.Signature]] = {
    Convention.TYPED_RAG: RankAmongReferences,
    Convention.LINKAGE: PlaceAmongReferences,
}
_DRAWN = {"temperature": 0.8, "top_p": 0.95}
"""The sampling settings of Typed-RAG's scorer (appendix B.4)."""
_ROLLOUTS_PER_DRAW = 100
"""More than the retries of a draw, so that each reply of each draw has its own place in DSPy's cache."""
_LOOKED_THROUGH = 30
"""The number of sentences of better references that are looked for in an answer's sources."""


class LinkageJudge(dspy.Module):
    """Ranks a candidate among references.

    The type of the field that the LM fills allows only the ranks among these references. The signature
    that is compiled and saved allows any rank.

    Args:
        convention: Whether the worst rank among n references is n or n + 1.
        retries: How often to ask again for a reply that cannot be parsed.
        token_probabilities: Whether to ask the server for the probabilities of all ranks. Some models of
            OpenAI refuse to give them.
    """

    def __init__(
        self,
        convention: Convention | str = Convention.TYPED_RAG,
        retries: int = 2,
        token_probabilities: bool = True,
    ) -> None:
        super().__init__()
        self.convention = Convention(convention)
        self._retries = retries
        self.token_probabilities = token_probabilities
        self.rank = predictor(_SIGNATURES[self.convention])

    def forward(self, question: str, references: Sequence[str], candidate: str, draw: int = 0) -> dspy.Prediction:
        """A prediction with the `rank`, from 1, and the `probabilities` of all ranks.

        Args:
            question: The question.
            references: Answers, best first; their `convention.worst_rank` is below 10.
            candidate: The answer to rank.
            draw: 0 asks at the LM's own temperature; each other number draws another answer at
                Typed-RAG's temperature, 0.8.

        Returns:
            Prediction: `probabilities` is None for drawn answers, and if the LM's server gives no token
                probabilities.
        """
        worst = self.convention.worst_rank(len(references))
        settings: dict[str, Any] = {}
        if draw:
            settings = {**_DRAWN, "rollout_id": draw * _ROLLOUTS_PER_DRAW}
        elif self.token_probabilities:
            settings = logprob_settings()
        reply = ask(
            "rank",
            with_settings(self.rank, settings),
            retries=self._retries,
            signature=with_ranks(self.rank.signature, worst),
            question=question,
            references=list(references),
            candidate=candidate,
        ).prediction
        probabilities = number_probabilities(reply.get("logprobs"), reply.rank, range(1, worst + 1))
        return dspy.Prediction(rank=reply.rank, probabilities=probabilities)


def draw_references(
    example: dspy.Example, seed: int = 0, max_references: int = MOST_REFERENCES
) -> tuple[Reference, ...]:
    """The references that all answers to a question are ranked among: one for each label, best first.

    The draw among references of one label depends only on the example's id, their texts and the seed,
    so that all programs get the same list on every machine. If there are more labels than
    `max_references`, the best, the worst and others evenly between them are kept.

    Example:
        >>> answers = [Reference("Yeast.", 2), Reference("Gas from yeast.", 3), Reference("Flour.", 0)]
        >>> [r.label for r in draw_references(dspy.Example(id="q1", references=answers))]
        [3, 2, 0]
    """
    by_label: dict[int, list[Reference]] = defaultdict(list)
    for reference in example.get("references") or ():
        if reference.text.strip():
            by_label[reference.label].append(reference)
    if len(by_label) < 2:
        raise NotMeasurable(
            f"question '{example.get('id')}' has references of {len(by_label)} labels; ranking needs two or more"
        )
    labels = sorted(by_label, reverse=True)
    if len(labels) > max_references:
        gap = (len(labels) - 1) / (max_references - 1)
        labels = [labels[round(i * gap)] for i in range(max_references)]
    return tuple(min(by_label[label], key=lambda r: text_hash(f"{example.id}:{r.text}", seed)) for label in labels)


QUALITY = "quality"
"""The name of the measure of the makes `combined` and `both`."""


@metric
class Linkage(Metric):
    """The rank of an answer among references of different quality.

    With r the rank that the judge names, p its probabilities of all ranks and n the number of
    references, the measures are

    - `rank`: r
    - `mrr`: 1 / r, whose mean is eq. 3
    - `mpr`: (1 - (r - 1) / n) * 100, whose mean is eq. 4
    - `expected_rank`: the sum of p(k) * k over all ranks k
    - `expected_mrr`: the sum of p(k) / k, the reciprocal rank to be expected; it is not one over
      the expected rank

    p are token probabilities if the server gives them, otherwise the frequencies among `draws`
    answers; with one draw, the rank is certain. The score is the expected rank's place between the
    worst rank, 0, and the first, 1.

    The make `combined` asks no LM: its measure, and its score, is

    - `quality`: the answer's quality by what it shares with the question's good and bad references,
      from 0 to 1; see `combined.features`

    The make `both` has all these measures, and `quality` as its score.

    Args:
        scorer: The LM behind the judge; the make `combined` needs none.
        make: `lm`, `combined` or `both`.
        convention: `typed-rag`: the worst rank is n; `linkage`: it is n + 1, after all references.
        draws: The number of answers to ask for if there are no token probabilities.
        seed: The seed of the draw of references.
        max_references: The most references in a list, from 2 to 8.
        judge: The judge; by default a new `LinkageJudge` of this convention.

    Raises:
        InputError: If an option has no such value.
    """

    name: ClassVar[str] = "linkage"
    measures = ("rank", "mrr", "mpr", "expected_rank", "expected_mrr")
    judged: ClassVar[bool] = True

    def __init__(
        self,
        scorer: dspy.LM | None = None,
        *,
        make: Make = "lm",
        convention: str = Convention.TYPED_RAG,
        draws: int = 1,
        seed: int = 0,
        max_references: int = MOST_REFERENCES,
        judge: LinkageJudge | None = None,
    ) -> None:
        if make not in get_args(Make):
            raise InputError(f"LINKAGE has no make '{make}'", f"Makes: {', '.join(get_args(Make))}")
        self.make = make
        super().__init__(scorer)
        ranks = () if make == "combined" else type(self).measures
        self.measures = ranks if make == "lm" else (*ranks, QUALITY)  # type: ignore[misc]
        if convention not in list(Convention):
            raise InputError(f"LINKAGE has no convention '{convention}'", f"Conventions: {', '.join(Convention)}")
        if draws < 1:
            raise InputError(f"{draws} draws rank nothing", "Use 1 or more")
        if not 2 <= max_references <= MOST_REFERENCES:
            raise InputError(f"lists of {max_references} references cannot be ranked", f"Use 2 to {MOST_REFERENCES}")
        self.convention = Convention(convention)
        self.draws = draws
        self.seed = seed
        self.max_references = max_references
        self.judge = judge or LinkageJudge(self.convention)
        if self.judge.convention is not self.convention:
            raise InputError(
                f"a judge of the convention {self.judge.convention} cannot rank by {self.convention}",
                "Give both the same",
            )

    @classmethod
    def takes_scorer(cls, options: Mapping[str, Any]) -> bool:
        """True if its make asks an LM."""
        return options.get("make") != "combined"

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """Raise `NotMeasurable` if the example's references have fewer than two labels."""
        draw_references(example, self.seed, self.max_references)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Rank an answer among the references drawn for its question, or compare it with all of them."""
        references = draw_references(example, self.seed, self.max_references)
        if self.make == "lm":
            return self._ranked(example, prediction, references)
        value = quality(example.question, prediction.answer, example.references)
        feedback = _on_quality(value, references, example.question, prediction.answer)
        if self.make == "combined":
            return Scored(value, feedback, {QUALITY: value})
        by_lm = self._ranked(example, prediction, references)
        return Scored(value, f"{feedback} {by_lm.feedback}", {**by_lm.measures, QUALITY: value}, by_lm.details)

    def _ranked(self, example: dspy.Example, prediction: dspy.Prediction, references: Sequence[Reference]) -> Scored:
        inputs = {
            "question": example.question,
            "references": [r.text for r in references],
            "candidate": prediction.answer,
        }
        rank, probabilities = self._judge(inputs)
        worst = self.convention.worst_rank(len(references))
        expected = expected_rank(probabilities)
        return Scored(
            score=(worst - expected) / (worst - 1),
            feedback=_in_words(rank, expected, worst, references, example.question, prediction.answer),
            measures={
                "rank": float(rank),
                "mrr": reciprocal_rank(rank),
                "mpr": percentile_rank(rank, len(references)),
                "expected_rank": expected,
                "expected_mrr": sum(p * reciprocal_rank(k) for k, p in probabilities.items()),
            },
            details={
                "convention": self.convention.value,
                "labels": [r.label for r in references],
                "probabilities": list(probabilities.values()),
            },
        )

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """The content of better references that the answer lacks, for the predictor that lost it.

        Content that no passage has was lost by the predictor that searched; content that a predictor's
        sources have, but its text has not, by that predictor.
        """
        references, question = draw_references(example, self.seed, self.max_references), example.question
        if QUALITY in scored.measures:
            better = _better(references, scored.measures[QUALITY])
            place = _place(scored.measures[QUALITY])
        else:
            rank = round(scored.measures["rank"])
            better = [r.text for r in references[: rank - 1]]
            worst = self.convention.worst_rank(len(references))
            place = f"The answer ranks {rank} of {worst} among reference answers, best first."
        if call.role is Role.SEARCHER:
            passages = [passage.text for passage in prediction.get("passages") or ()]
            lost = untouched(better, [*passages, prediction.answer], question)
            return f"{place} Better ones say what no passage found speaks of: {listed(lost)}." if lost else ""
        if not call.role.writes:
            return ""
        messages = [place]
        lost = untouched(better, [call.written], question, most=_LOOKED_THROUGH)
        if call.role is not Role.TELLER:
            lost = [sentence for sentence in lost if touched(sentence, call.sources, question)]
        if lost:
            where = "" if call.role is Role.TELLER else ", and its sources too"
            messages.append(f"Better ones say this{where}, but it does not: {listed(lost)}.")
        if better and (strayed := untouched([call.written], better, question)):
            messages.append(f"No better one says: {listed(strayed)}.")
        return " ".join(messages)

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The measures of chance for these numbers of references: `chance_mrr`, `chance_mpr`, `chance_rank`."""
        if self.make == "combined":
            return {}
        lengths = [len(s.details["labels"]) for s in scored]
        return {
            "chance_mrr": fmean(chance_mrr(n, self.convention) for n in lengths),
            "chance_mpr": fmean(chance_mpr(n, self.convention) for n in lengths),
            "chance_rank": fmean((1 + self.convention.worst_rank(n)) / 2 for n in lengths),
        }

    def _judge(self, inputs: dict[str, Any]) -> tuple[int, dict[int, float]]:
        """The rank that the judge names, and the probability of each rank, in their order."""
        first = self.judge(**inputs)
        worst = self.convention.worst_rank(len(inputs["references"]))
        if first.probabilities:
            return first.rank, first.probabilities
        drawn = [first.rank, *(self.judge(**inputs, draw=n).rank for n in range(1, self.draws))]
        frequencies = Counter(drawn)
        return first.rank, {rank: frequencies[rank] / len(drawn) for rank in range(1, worst + 1)}


def _better(references: Sequence[Reference], value: float) -> list[str]:
    """The references that are worth more than a value."""
    return [r.text for r, worth in zip(references, worths(references), strict=True) if worth > value]


def _place(value: float) -> str:
    return f"The answer is worth {value:.2f}, where the worst references are worth 0 and the best 1."


def _on_quality(value: float, references: Sequence[Reference], question: str, answer: str) -> str:
    messages = [_place(value)]
    better = _better(references, value)
    if better:
        messages.append(f"This one is better: {quoted(better[0])}")
    if better and (lost := untouched(better[:1], [answer], question)):
        messages.append(f"Of it the answer lacks: {listed(lost)}")
    known = frozenset().union(*(content_words(text) for text in (question, *(r.text for r in references))))
    within = (word for sentence in sentences(answer) for word in sentence.split()[1:])  # the first has a capital anyway
    strange = [word for word in dict.fromkeys(within) if (name := names(word)) and not name & known]
    if better and strange:
        messages.append(f"No reference speaks of {listed(strange)}, which may be made up.")
    return " ".join(messages)


def _in_words(
    rank: int, expected: float, worst: int, references: Sequence[Reference], question: str, answer: str
) -> str:
    messages = [
        f"Rank {rank} of {worst} (expected: {expected:.1f}) within {len(references)} reference answers, best first."
    ]
    if rank == 1:
        messages.append(f"It is as good as the best one or better: {quoted(references[0].text)}")
    elif rank == worst:
        messages.append("It is as poor as the worst one or poorer." if worst == len(references) else "All are better.")
    else:
        messages.append(f"It comes before this one: {quoted(references[rank - 1].text)}")
    if rank > 1:
        messages.append(f"This one is better: {quoted(references[rank - 2].text)}")
    if rank > 2:
        messages.append(f"The best one: {quoted(references[0].text)}")
    if rank > 1 and (lost := untouched([references[0].text], [answer], question)):
        messages.append(f"Of the best one it lacks: {listed(lost)}")
    return " ".join(messages)

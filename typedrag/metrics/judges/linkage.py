"""LINKAGE: the rank of an answer among references in descending order of quality (Typed-RAG, section 4).

Ranks count from 1, the best. The worst rank among n references is n in Typed-RAG, where the candidate shares a place
with the worst reference, or n + 1 in the LINKAGE paper, where it can come after all of them. Expected ranks need not be
whole.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import dspy

from typedrag.core.errors import InputError, NotMeasurable, StepFailed, names_hint
from typedrag.core.records import Reference
from typedrag.datasets.dataset import text_hash
from typedrag.lms.asking import ask, logprob_settings, number_probabilities, with_settings
from typedrag.metrics.judges.combined import names, quality, worths
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric, quoted, touched, untouched
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.judging import PlaceAmongReferences, RankAmongReferences, RankPlainly, with_ranks
from typedrag.signatures.roles import Role
from typedrag.text.sentences import sentences
from typedrag.text.words import content_words


class Convention(StrEnum):
    """A convention of the ranks that an answer can have among n references."""

    TYPED_RAG = "typed-rag"
    LINKAGE = "linkage"

    def worst_rank(self, references: int) -> int:
        return references if self is Convention.TYPED_RAG else references + 1


def percentile_rank(rank: float, references: int) -> float:
    """A rank's place within a list of references, in percent: 100 for the best, 0 after all (eq. 4, one term)."""
    if not 1 <= rank <= references + 1:
        raise ValueError(f"rank {rank} is beyond {references} references: ranks count from 1")
    return (1 - (rank - 1) / references) * 100


def chance_measures(references: int, convention: Convention = Convention.TYPED_RAG) -> dict[str, float]:
    """The mean measures of a judge who draws ranks at random: `mrr` (eq. 3), `mpr` (eq. 4) and `rank`."""
    if references < 1:
        raise ValueError(f"{references} references leave nothing to rank among")
    ranks = range(1, convention.worst_rank(references) + 1)
    return {
        "mrr": fmean(1 / rank for rank in ranks),
        "mpr": fmean(percentile_rank(rank, references) for rank in ranks),
        "rank": (1 + ranks[-1]) / 2,
    }


def expected_rank(probabilities: Mapping[int, float]) -> float:
    """The mean of the allowed ranks, weighted by the judge's probabilities of them."""
    for rank, probability in probabilities.items():
        if not rank >= 1 or probability < 0:
            raise ValueError(f"rank {rank} has the probability {probability}: ranks count from 1")
    # scaled by the greatest first, so that tiny probabilities are not lost in the sum
    greatest = max(probabilities.values(), default=0.0)
    if not greatest > 0:
        raise ValueError("no allowed rank has a probability above 0")
    weights = {rank: probability / greatest for rank, probability in probabilities.items()}
    return sum(rank * weight for rank, weight in weights.items()) / sum(weights.values())


MOST_REFERENCES = 8
"""The most references: a rank after all of them, 9, is still one digit, hence one token."""

Make: TypeAlias = Literal["lm", "combined", "both"]
Unreadable: TypeAlias = Literal["missing", "worst"]

_DRAWN = {"temperature": 0.8, "top_p": 0.95}
"""The sampling settings of Typed-RAG's scorer (appendix B.4)."""
_ROLLOUTS_PER_DRAW = 100
"""More than the retries of a draw, so that each reply of each draw has its own place in DSPy's cache."""
_PLACE = "The answer is worth {:.2f}, where the worst references are worth 0 and the best 1."
_LOOKED_THROUGH = 30
"""The number of sentences of better references that are looked for in an answer's sources."""


class Judge(dspy.Module):
    """Chooses an answer of two, or a rank, and tells the probabilities of all if the server gives token probabilities.

    Args:
        retries: How often to ask again for a reply that cannot be parsed.
        token_probabilities: Whether to ask for them. Some models of OpenAI refuse to give them.
    """

    def __init__(self, retries: int = 2, token_probabilities: bool = True) -> None:
        super().__init__()
        self._retries = retries
        self.token_probabilities = token_probabilities

    def choose(
        self, step: str, predict: dspy.Module, settings: Mapping[str, Any] | None = None, **inputs: Any
    ) -> dspy.Prediction:
        settings = settings or (logprob_settings() if self.token_probabilities else {})
        return ask(step, with_settings(predict, settings), retries=self._retries, **inputs).prediction


class LinkageJudge(Judge):
    """Ranks a candidate among references, given best first: its `rank`, and the `probabilities` of all ranks if known.

    `draw` 0 asks at the LM's own temperature; each other number draws another answer at Typed-RAG's temperature. The
    type of the field that the LM fills allows only the ranks among these references by the convention. The signature
    that is compiled and saved allows any rank.
    """

    def __init__(
        self,
        convention: Convention | str = Convention.TYPED_RAG,
        retries: int = 2,
        token_probabilities: bool = True,
        *,
        plain: bool = False,
    ) -> None:
        super().__init__(retries, token_probabilities)
        self.convention = Convention(convention)
        ranks = RankPlainly if plain else RankAmongReferences
        self.rank = predictor(ranks if self.convention is Convention.TYPED_RAG else PlaceAmongReferences)

    def forward(self, question: str, references: Sequence[str], candidate: str, draw: int = 0) -> dspy.Prediction:
        worst = self.convention.worst_rank(len(references))
        reply = self.choose(
            "rank",
            self.rank,
            {**_DRAWN, "rollout_id": draw * _ROLLOUTS_PER_DRAW} if draw else None,
            signature=with_ranks(self.rank.signature, worst),
            question=question,
            references=list(references),
            candidate=candidate,
        )
        probabilities = number_probabilities(reply.get("logprobs"), reply.rank, range(1, worst + 1))
        return dspy.Prediction(rank=reply.rank, probabilities=probabilities)


def draw_references(
    example: dspy.Example, seed: int = 0, max_references: int = MOST_REFERENCES
) -> tuple[Reference, ...]:
    """The references that all answers to a question are ranked among: one for each label, best first. The draw depends
    only on the example's id, their texts and the seed. Of too many labels, the best, the worst and others evenly
    between them are kept."""
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
        plain: Whether the judge gets no more than in the paper (Typed-RAG, figure 3), in the convention `typed-rag`;
            otherwise also what to judge by.
        retries: How often to ask again for a rank that cannot be read; the authors' code does so up to 40 times.
        unreadable: `missing`: an answer whose rank cannot be read has none; `worst`: it has the worst, as in the
            authors' code.
        judge: The judge; by default a new `LinkageJudge` of this convention.

    Raises:
        InputError: If an option has no such value.
    """

    name: ClassVar[str] = "linkage"
    measures = ("rank", "mrr", "mpr", "expected_rank", "expected_mrr")
    judged: ClassVar[bool] = True

    make: Make = "lm"
    convention: str = Convention.TYPED_RAG
    draws: int = 1
    seed: int = 0
    max_references: int = MOST_REFERENCES
    plain: bool = False
    retries: int = 2
    unreadable: Unreadable = "missing"
    judge: Any = None

    def __post_init__(self) -> None:
        if self.make not in get_args(Make):
            raise InputError(f"LINKAGE has no make '{self.make}'", names_hint("Makes", self.make, get_args(Make)))
        super().__post_init__()
        ranks = () if self.make == "combined" else type(self).measures
        self.measures = ranks if self.make == "lm" else (*ranks, QUALITY)  # type: ignore[misc]
        if self.convention not in list(Convention):
            hint = names_hint("Conventions", self.convention, Convention)
            raise InputError(f"LINKAGE has no convention '{self.convention}'", hint)
        if self.draws < 1:
            raise InputError(f"{self.draws} draws rank nothing", "Use 1 or more")
        if not 2 <= self.max_references <= MOST_REFERENCES:
            problem = f"lists of {self.max_references} references cannot be ranked"
            raise InputError(problem, f"Use 2 to {MOST_REFERENCES}")
        self._convention = Convention(self.convention)
        if self.unreadable not in get_args(Unreadable):
            raise InputError(f"an unreadable rank cannot be '{self.unreadable}'", "Use missing or worst")
        self.judge = self.judge or LinkageJudge(self._convention, self.retries, plain=self.plain)
        if self.judge.convention is not self._convention:
            problem = f"a judge of the convention {self.judge.convention} cannot rank by {self.convention}"
            raise InputError(problem, "Give both the same")

    @classmethod
    def takes_scorer(cls, options: Mapping[str, Any]) -> bool:
        return options.get("make") != "combined"

    def require(self, example: dspy.Example, measure: str = "") -> None:
        draw_references(example, self.seed, self.max_references)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        references = draw_references(example, self.seed, self.max_references)
        if self.make == "lm":
            return self._rank(example, prediction, references)
        value, feedback = self._value(example, prediction, references)
        if self.make == "combined":
            return Scored(value, feedback, {QUALITY: value})
        by_lm = self._rank(example, prediction, references)
        return Scored(value, f"{feedback} {by_lm.feedback}", {**by_lm.measures, QUALITY: value}, by_lm.details)

    def _value(
        self, example: dspy.Example, prediction: dspy.Prediction, references: Sequence[Reference]
    ) -> tuple[float, str]:
        """The quality of an answer beside all references, with feedback by those that are drawn."""
        question, answer = example.question, prediction.answer
        value = quality(question, answer, example.references)
        messages = [_PLACE.format(value)]
        better = [r.text for r, worth in zip(references, worths(references), strict=True) if worth > value]
        if better:
            messages.append(f"This one is better: {quoted(better[0])}")
            if lost := untouched(better[:1], [answer], question):
                messages.append(f"Of it the answer lacks: {listed(lost)}")
            known = frozenset().union(*(content_words(text) for text in (question, *(r.text for r in references))))
            # the first word of a sentence has a capital anyway
            within = (word for sentence in sentences(answer) for word in sentence.split()[1:])
            if strange := [word for word in dict.fromkeys(within) if (name := names(word)) and not name & known]:
                messages.append(f"No reference speaks of {listed(strange)}, which may be made up.")
        return value, " ".join(messages)

    def _rank(self, example: dspy.Example, prediction: dspy.Prediction, references: Sequence[Reference]) -> Scored:
        """The rank that the LM gives, with feedback by the references next to it and the best one."""
        question, answer, texts = example.question, prediction.answer, [r.text for r in references]
        inputs = {"question": question, "references": texts, "candidate": answer}
        worst = self._convention.worst_rank(len(texts))
        try:
            first = self.judge(**inputs)
        except StepFailed:
            if self.unreadable == "missing":
                raise
            first = dspy.Prediction(rank=worst, probabilities={worst: 1.0})
        rank: int = first.rank
        probabilities: dict[int, float] = first.probabilities
        if not probabilities:
            drawn = [rank, *(self.judge(**inputs, draw=n).rank for n in range(1, self.draws))]
            probabilities = {rank: drawn.count(rank) / len(drawn) for rank in range(1, worst + 1)}
        expected = expected_rank(probabilities)
        messages = [
            f"Rank {rank} of {worst} (expected: {expected:.1f}) within {len(texts)} reference answers, best first."
        ]
        if rank == 1:
            messages.append(f"It is as good as the best one or better: {quoted(texts[0])}")
        elif rank == worst:
            messages.append("It is as poor as the worst one or poorer." if worst == len(texts) else "All are better.")
        else:
            messages.append(f"It comes before this one: {quoted(texts[rank - 1])}")
        if rank > 1:
            messages.append(f"This one is better: {quoted(texts[rank - 2])}")
        if rank > 2:
            messages.append(f"The best one: {quoted(texts[0])}")
        if rank > 1 and (lost := untouched(texts[:1], [answer], question)):
            messages.append(f"Of the best one it lacks: {listed(lost)}")
        return Scored(
            score=(worst - expected) / (worst - 1),
            feedback=" ".join(messages),
            measures={
                "rank": float(rank),
                "mrr": 1 / rank,
                "mpr": percentile_rank(rank, len(texts)),
                "expected_rank": expected,
                "expected_mrr": sum(p / k for k, p in probabilities.items()),
            },
            details={
                "convention": self._convention.value,
                "labels": [r.label for r in references],
                "probabilities": list(probabilities.values()),
            },
        )

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        references, question = draw_references(example, self.seed, self.max_references), example.question
        if QUALITY in scored.measures:
            place = _PLACE.format(value := scored.measures[QUALITY])
            better = [r.text for r, worth in zip(references, worths(references), strict=True) if worth > value]
        else:
            rank = round(scored.measures["rank"])
            better = [r.text for r in references[: rank - 1]]
            worst = self._convention.worst_rank(len(references))
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
        if self.make == "combined":
            return {}
        chances = [chance_measures(len(s.details["labels"]), self._convention) for s in scored]
        return {f"chance_{name}": fmean(one[name] for one in chances) for name in ("mrr", "mpr", "rank")}

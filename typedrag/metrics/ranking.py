"""Rankings of passages, by labels of relevance and by the coverage of sub-answers (RichRAG, appendix C), and the
cycles of a search (HANRAG, section 5).

Measures by labels come from ir-measures, which takes them from trec_eval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

import dspy
import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.extras import import_extras
from typedrag.core.records import ELSEWHERE, Passage, Step
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric
from typedrag.metrics.overlap import needed_passages
from typedrag.metrics.similarity import Part, rouge
from typedrag.retrieval import reciprocal_rank_fusion
from typedrag.signatures.roles import Role

_AT_ONCE = "sub-queries"
"""The step whose sub-steps run at once."""


def retrieval_cycles(steps: Iterable[Step]) -> int:
    """The number of successive cycles of retrieval and generation. Queries that are retrieved for at once are one
    cycle, and of sub-queries answered at once only the longest counts (HANRAG, table 8)."""
    cycles = 0
    for step in steps:
        if step.name == "retrieve":
            cycles += 1
        elif step.name == _AT_ONCE:
            cycles += max((retrieval_cycles([way]) for way in step.steps), default=0)
        else:
            cycles += retrieval_cycles(step.steps)
    return cycles


def knows_passages(prediction: dspy.Prediction) -> bool:
    """False if an answer was made elsewhere and does not tell its passages."""
    steps: Sequence[Step] = prediction.get("steps") or ()
    return bool(prediction.get("passages")) or all(step.name != ELSEWHERE for step in steps)


def _known_steps(prediction: dspy.Prediction) -> Sequence[Step]:
    """The steps of an answer; `NotMeasurable` if it was made elsewhere."""
    steps: Sequence[Step] = prediction.get("steps") or ()
    if any(step.name == ELSEWHERE for step in steps):
        raise NotMeasurable("the answer was made elsewhere, and does not tell how it was searched for")
    return steps


@metric
class Steps(Metric):
    """The retrieval-generation cycles of an answer, fewer being better.

    Measure: `steps`, the count. The score is 1 / (1 + steps).
    """

    name: ClassVar[str] = "steps"
    measures = ("steps",)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        cycles = retrieval_cycles(_known_steps(prediction))
        return Scored(1 / (1 + cycles), f"{cycles} retrieval-generation cycles", {"steps": float(cycles)})


def ranking_measures(ranked: Sequence[str], relevance: Mapping[str, int], k: int = 10) -> dict[str, float]:
    """Recall@k, MRR@k (of this one ranking), MAP (its average precision) and nDCG@k, each from 0 to 1. Passages with a
    label above 0 are relevant, and nDCG uses it as gain. If an id is ranked twice, the first place counts."""
    with import_extras("ir_measures"):
        from ir_measures import AP, RR, R, calc_aggregate, nDCG

    if not any(label > 0 for label in relevance.values()):
        raise ValueError("no passage is relevant")
    distinct = list(dict.fromkeys(ranked))
    measures = {"recall": R @ k, "mrr": RR @ k, "map": AP, "ndcg": nDCG @ k}
    scores = {passage: float(len(distinct) - place) for place, passage in enumerate(distinct)}
    values = calc_aggregate(measures.values(), {"q": dict(relevance)}, {"q": scores})
    return {name: float(values[measure]) for name, measure in measures.items()}


def coverage_table(passages: Sequence[str], sub_answers: Sequence[str], part: Part = "recall") -> NDArray[np.float64]:
    """The coverage of each sub-answer (column) by each passage (row): the mean of ROUGE-2 and ROUGE-L (φ of eq. 13).
    The paper does not say which part of ROUGE; here it is recall, as for `com_rouge`."""
    table = [[fmean(rouge(passage, answer, part).values()) for answer in sub_answers] for passage in passages]
    return np.array(table, dtype=float).reshape(len(passages), len(sub_answers))


def comprehensiveness(ranking: Sequence[int], table: Any) -> float:
    """The sum of what each ranked row of a `coverage_table` adds where earlier rows cover least (eq. 13)."""
    rows = np.asarray(table, dtype=float)
    covered = np.zeros(rows.shape[1])
    total = 0.0
    for passage in ranking:
        total += float(_weights(covered) @ rows[passage])
        covered = np.maximum(covered, rows[passage])
    return total


def greedy_ranking(table: Any, k: int) -> list[int]:
    """The silver list: at each place the passage that adds most, with ties broken by row (eq. 8)."""
    rows = np.asarray(table, dtype=float)
    covered = np.zeros(rows.shape[1])
    chosen: list[int] = []
    while len(chosen) < min(k, len(rows)):
        gains = rows @ _weights(covered)
        gains[chosen] = -np.inf
        chosen.append(int(np.argmax(gains)))
        covered = np.maximum(covered, rows[chosen[-1]])
    return chosen


def ncom(ranking: Sequence[int], table: Any) -> float | None:
    """Comprehensiveness divided by that of the pool's silver list of the same length (NCOM), which may exceed 1, as
    greedy choice is not always best. None if nothing in the `coverage_table` covers anything."""
    if len(set(ranking)) < len(ranking):
        raise ValueError("a passage is ranked twice")
    most = comprehensiveness(greedy_ranking(table, len(ranking)), table)
    return comprehensiveness(ranking, table) / most if most > 0 else None


def _weights(covered: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of each sub-answer by how far it is covered (eq. 9)."""
    total = covered.sum()
    return 1 - covered / total if total > 0 else 1 - covered


_AT_CUTOFFS = ("recall", "mrr")


@dataclass(eq=False, repr=False)
class _FoundPassages(Metric):
    """The base of both metrics: a ranking against the passages labelled as needed.

    The score is recall. Measures: `recall`, `mrr`, `map` and `ndcg`, see `ranking_measures`.
    Feedback is for predictors that write queries.

    Args:
        k: The cutoff.
        cutoffs: Further cutoffs, each of which adds two measures, such as `recall@3` and `mrr@3`; `recall@mean` and
            `mrr@mean` are the means over these cutoffs.
    """

    measures: ClassVar[tuple[str, ...]] = ("recall", "mrr", "map", "ndcg")
    needs = needed_passages

    k: int = 10
    cutoffs: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (least := min((self.k, *self.cutoffs))) < 1:
            raise InputError(f"a cutoff of {least} leaves no passage", "Use 1 or more")
        places = (*self.cutoffs, *(["mean"] if self.cutoffs else []))
        further = tuple(f"{name}@{place}" for place in places for name in _AT_CUTOFFS)
        self.measures = (*type(self).measures, *further)  # type: ignore[misc]

    def ranking(self, prediction: dspy.Prediction) -> list[str]:
        """The ids of passages, best first; `NotMeasurable` if they are not known."""
        raise NotImplementedError

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        needed = list(needed_passages(example))
        ranking = self.ranking(prediction)
        relevance = dict.fromkeys(needed, 1)
        measures = ranking_measures(ranking, relevance, self.k)
        for name in _AT_CUTOFFS if self.cutoffs else ():
            at = {k: ranking_measures(ranking, relevance, k)[name] for k in self.cutoffs}
            measures |= {f"{name}@{k}": value for k, value in at.items()} | {f"{name}@mean": fmean(at.values())}
        missing = [i for i in needed if i not in ranking[: self.k]]
        feedback = f"Not among the first {self.k}: {', '.join(missing)}" if missing else "All needed passages are there"
        return Scored(measures["recall"], feedback, measures, {"missing": missing})

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        missing = scored.details["missing"]
        if call.role is not Role.SEARCHER or not missing:
            return ""
        needed = needed_passages(example)
        counts = f"{len(needed) - len(missing)} of {len(needed)} needed passages were found. Not found:"
        return f"{counts} {listed([needed[i] or i for i in missing])}."


@metric
class Retrieval(_FoundPassages):
    """The passages that an answer was written from, against those labelled as needed (`passage_ids`)."""

    name: ClassVar[str] = "retrieval"

    def ranking(self, prediction: dspy.Prediction) -> list[str]:
        if not knows_passages(prediction):
            raise NotMeasurable("the answer was made elsewhere, and does not tell which passages it was written from")
        return [passage.id for passage in prediction.get("passages") or ()]


@metric
class Rewrite(_FoundPassages):
    """The passages that a program's queries find, against those labelled as needed (`passage_ids`).

    It shows the worth of sub-queries and keywords before reranking and reading: the rankings of all
    queries are fused as in pooling.
    """

    name: ClassVar[str] = "rewrite"

    def ranking(self, prediction: dspy.Prediction) -> list[str]:
        rankings = [[Passage(i, "") for i in query.passage_ids] for query in query_steps(_known_steps(prediction))]
        return [passage.id for passage in reciprocal_rank_fusion(rankings)]


def searches(prediction: dspy.Prediction) -> list[tuple[str, ...]]:
    """The ids of the passages that each query of a program found, best first."""
    return [s.passage_ids for s in query_steps(prediction.get("steps") or ())]


def query_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps of single queries to a retriever, or to a part of one."""
    retrieved = [s for step in steps for s in step.walk() if s.name == "retrieve"]
    return [query for step in retrieved for query in (step.steps or (step,))]

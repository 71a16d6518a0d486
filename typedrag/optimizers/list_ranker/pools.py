"""Build pools from graded passages, from answers to sub-aspects, or from runs whose passages were judged."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import dspy

from typedrag.core.errors import InputError
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Passage, Reference
from typedrag.datasets.dataset import text_hash
from typedrag.datasets.richrag import CandidateRow, Pool
from typedrag.experiments.results import QuestionResult, Run
from typedrag.metrics.ranking import coverage_table
from typedrag.metrics.similarity import rouge
from typedrag.optimizers.list_ranker.measures import graded_table
from typedrag.programs.richrag import Pool as Merged
from typedrag.programs.richrag import SubAspectExplorer, aspect_queries, merge
from typedrag.retrieval import Retriever
from typedrag.runs.work import Stages
from typedrag.text.words import folded

COVERAGE = "coverage"
"""The metric whose judgments say which sub-questions a passage answers."""
RELEVANT = 0.5
"""The ROUGE with the answer above which a passage is relevant, besides those people named (RichRAG, appendix B)."""
DEEPEST = 1000
"""The depth to which labelled passages are searched for, so that a pool holds them in the retriever's order."""


class Scale(NamedTuple):
    """A dataset's labels of passages."""

    lowest: int
    relevant_from: int


def find_scale(examples: Sequence[dspy.Example]) -> Scale:
    """The scale of labels in a dataset whose references are passages; the first of them are those of `passage_ids`."""
    labels = {r.label for e in examples for r in e.get("references") or ()}
    needed = [_references(e)[: len(e.get("passage_ids") or ())] for e in examples]
    relevant = {r.label for references in needed for r in references}
    if len(labels) < 2 or not relevant or min(relevant) == min(labels):
        raise InputError(
            "the dataset's references are no graded passages, and it has no answers to sub-aspects",
            "Name antique, trec-dl-nf or wikiasp",
        )
    return Scale(min(labels), min(relevant))


def pools_from_labels(
    examples: Sequence[dspy.Example], retriever: Retriever, scale: Scale, *, depth: int = 50, missed: bool = True
) -> Iterator[Pool]:
    """Yield a pool for each question: the retriever's passages, with the labels that people gave."""
    rankings = retriever.search([e.question for e in examples], max(depth, DEEPEST) if missed else depth)
    for example, ranking in zip(examples, rankings, strict=True):
        labels: dict[str, int] = {}
        texts: dict[str, str] = {}
        for reference in _references(example):
            words = folded(reference.text)
            labels[words] = max(labels.get(words, 0), reference.label - scale.lowest)
            texts[words] = reference.text
        pooled: dict[str, Passage] = {}  # the first passages, and those further down that have a label; each text once
        for rank, passage in enumerate(ranking):
            words = folded(passage.text)
            if rank < depth or words in labels:
                pooled.setdefault(words, passage)
        passages = list(pooled.values())
        if missed:
            there = {folded(p.text) for p in passages}
            absent = sorted((words for words in labels if words not in there), key=text_hash)
            passages += [Passage(f"{example.id}-{n}", texts[words]) for n, words in enumerate(absent)]
        passage_labels = [labels.get(folded(p.text)) for p in passages]
        relevant_from = scale.relevant_from - scale.lowest
        if any((label or 0) >= relevant_from for label in passage_labels):
            grades = [label or 0 for label in passage_labels]
            table = graded_table([p.text for p in passages], grades, relevant_from).tolist()
            rows = [
                {**_row(p), "coverage": _rounded(covers), **({} if label is None else {"label": label})}
                for p, label, covers in zip(passages, passage_labels, table, strict=True)
            ]
            fields = {"id": str(example.id), "question": example.question, "relevant_from": relevant_from}
            yield Pool.model_validate({**fields, "passages": rows})


def has_sub_answers(examples: Sequence[dspy.Example]) -> bool:
    return all(e.get("sub_answers") for e in examples)


def golden_aspects(examples: Iterable[dspy.Example]) -> dict[str, list[str]]:
    """The sub-aspects that a dataset gives its questions, by the examples' ids."""
    golden = {str(e.id): list(dict.fromkeys(e.get("aspects") or ())) for e in examples}
    if lacking := next((i for i, aspects in golden.items() if not aspects), None):
        raise InputError(f"question '{lacking}' has no sub-aspects", "Let an LM name them: --aspects predicted")
    return golden


def predicted_aspects(
    examples: Sequence[dspy.Example], explorer: SubAspectExplorer, stages: Stages
) -> dict[str, list[str]]:
    """The sub-aspects that the LM in use names for questions, by the examples' ids, as `richrag` would."""
    aspects = stages.run("sub-aspects", lambda e: list(explorer(question=e.question).sub_aspects), examples)
    return {str(e.id): a if isinstance(a, list) else [] for e, a in zip(examples, aspects, strict=True)}


def pools_from_sub_answers(
    examples: Iterable[dspy.Example],
    retriever: Retriever,
    aspects: Mapping[str, Sequence[str]],
    *,
    depth: int = 50,
    limit: int | None = 60,
    fuse: bool = False,
) -> Iterator[Pool]:
    """Yield RichRAG's pool for each question: the passages retrieved for its sub-aspects (eq. 3 and 4)."""
    for example in examples:
        searched = list(aspects.get(str(example.id), ()))
        rankings = retriever.search(aspect_queries(example.question, searched), depth)
        merged = merge(rankings, searched, limit, fuse=fuse)
        if merged.passages:
            yield _covered_pool(example, searched, merged)


def pools_from_candidates(
    examples: Iterable[dspy.Example], candidates: Iterable[CandidateRow], *, limit: int | None = None
) -> Iterator[Pool]:
    """Yield the pool of each question as RichRAG's authors publish it; the rows of a question asked twice are in the
    order of the examples."""
    rows: dict[str, deque[CandidateRow]] = {}
    for row in candidates:
        rows.setdefault(row.question, deque()).append(row)
    for example in examples:
        if not rows.get(example.question):
            raise InputError(f"the candidates have no passages for '{example.question}'", "Name the file of its part")
        row_passages = rows[example.question].popleft().passages[:limit]
        passages = [Passage(f"{example.id}-{n}", c.doc.text, c.doc.heading) for n, c in enumerate(row_passages)]
        found_for = {p.id: tuple(c.subqs) for p, c in zip(passages, row_passages, strict=True)}
        aspects = list(dict.fromkeys(aspect for c in row_passages for aspect in c.subqs))
        yield _covered_pool(example, aspects, Merged(passages, found_for))


def _covered_pool(example: dspy.Example, aspects: Sequence[str], merged: Merged) -> Pool:
    answers = list(example.sub_answers)
    best = max(_references(example), key=lambda r: r.label, default=None)
    answer = best.text if best else " ".join(answers)
    table = coverage_table([p.text for p in merged.passages], answers).tolist()
    needed = example.get("passage_ids") or ()
    rows = [
        {
            **_row(p),
            "label": int(p.id in needed or fmean(rouge(p.text, answer).values()) > RELEVANT),
            "coverage": _rounded(covers),
            "sub_aspects": [aspects.index(a) for a in merged.aspects[p.id]],
        }
        for p, covers in zip(merged.passages, table, strict=True)
    ]
    fields = {"id": str(example.id), "question": example.question, "answer": answer}
    return Pool.model_validate({**fields, "sub_aspects": aspects, "sub_answers": answers, "passages": rows})


def pools_from_runs(runs: Sequence[Run]) -> list[Pool]:
    """The pools of questions in runs whose passages were judged by the metric `coverage`."""
    answered: dict[str, list[QuestionResult]] = {}
    for run in runs:
        for question in run.questions:
            judged = question.metrics.get(COVERAGE)
            if question.answer and question.answer.passages and judged and judged.score is not None:
                answered.setdefault(question.id, []).append(question)
    pools = [pool for results in answered.values() if (pool := _judged_pool(results)) is not None]
    if not pools:
        raise InputError("the runs hold no judged passages", f"Evaluate with --metric {COVERAGE}")
    return pools


def _references(example: dspy.Example) -> list[Reference]:
    return list(example.get("references") or ())


def _judged_pool(results: Sequence[QuestionResult]) -> Pool | None:
    first = results[0]
    details = [r.metrics[COVERAGE].details.get("sub_questions") or () for r in results]
    core = [[s["text"] for s in subs if s["type"] == SubQuestionType.CORE] for subs in details]
    if any(texts != core[0] for texts in core):
        raise InputError(
            f"the runs judged question '{first.id}' by different sub-questions", "Let them share their judgments"
        )
    rows: dict[str, dict[str, Any]] = {}
    aspects: list[str] = []
    for result, sub_questions in zip(results, details, strict=True):
        judged = [s["retrieved"] for s in sub_questions if s["type"] == SubQuestionType.CORE]
        assert result.answer is not None, "only answered questions are pooled"
        joined = f"{result.answer.question} "
        found_for = {  # what was searched for together with the question
            s.input.removeprefix(joined): s.passage_ids
            for step in result.answer.steps
            for s in step.walk()
            if s.name in ("query", "retrieve") and s.input.startswith(joined)
        }
        aspects += [a for a in found_for if a not in aspects]
        for place, passage in enumerate(result.answer.passages):
            if core[0] and all(len(retrieved) > place for retrieved in judged):
                covers = [float(retrieved[place]) for retrieved in judged]
                row = rows.setdefault(passage.id, {**_row(passage), "coverage": covers, "sub_aspects": []})
                held = {aspects.index(a) for a, ids in found_for.items() if passage.id in ids}
                row["sub_aspects"] = sorted({*row["sub_aspects"], *held})
    if not rows:
        return None
    fields = {"id": first.id, "question": first.question, "sub_aspects": aspects}
    return Pool.model_validate({**fields, "passages": list(rows.values())})


def _row(passage: Passage) -> dict[str, Any]:
    return {"id": passage.id, "text": passage.text, "title": passage.title, "score": round(float(passage.score), 4)}


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]

"""Conditions that read what a dataset says of the question."""

from itertools import cycle

import pytest

from tests.datasets.files import write_jsonl
from tests.experiments.evaluations import evaluation_of
from typedrag.core.question_types import DocumentScope
from typedrag.datasets import sample_questions
from typedrag.experiments import read_config, run_evaluation


@pytest.fixture
def evaluate(server, sample_index, tmp_path):
    """Evaluate programs on eight questions of both scopes, each with up to three passages of the sample."""
    asked = zip(sample_questions()[:8], cycle(DocumentScope), strict=False)
    rows = [
        {"id": str(n), "question": q.question, "subset": scope, "passage_ids": [*q.passage_ids[:3]]}
        for n, (q, scope) in enumerate(asked)
    ]
    questions = write_jsonl(tmp_path / "questions.jsonl", *rows)

    def run(*programs, **settings):
        values = evaluation_of(
            server, programs=[*programs], metrics=["retrieval"], index=str(sample_index), **settings
        ) | {"dataset": {"name": "file", "path": str(questions)}}
        done = run_evaluation(read_config(None, values), tmp_path / "runs")
        return {evaluated.run.name: evaluated.run.questions for evaluated in done}

    return run


def test_an_oracle_routes_each_question_by_its_subset_and_a_forced_scope_all(evaluate):
    named = {"oracle": "oracle", "single": "single-document"}
    programs = [{"name": n, "program": "preqrag", "options": {"preqrag": {"classifier": c}}} for n, c in named.items()]
    runs = evaluate(*programs)
    assert [q.answer.route for q in runs["oracle"]] == [q.subset for q in runs["oracle"]]
    assert {q.answer.route for q in runs["oracle"]} == set(DocumentScope)
    assert {q.answer.route for q in runs["single"]} == {"single-document"}


@pytest.mark.parametrize("program", ["preqrag", "rag"])
def test_an_ideal_context_is_the_passages_that_the_dataset_labels(evaluate, program):
    runs = evaluate({"name": "ideal", "program": program, "retriever": "gold"})
    gold = {q.question: q.passage_ids for q in sample_questions()}
    for question in runs["ideal"]:
        assert tuple(p.id for p in question.answer.passages) == gold[question.question][:3]
        assert question.metrics["retrieval"].measures["recall"] == 1.0

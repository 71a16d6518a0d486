from __future__ import annotations

import dspy
import pytest
from dspy.lm15 import Request, Response

from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.ways import EACH_ANSWERED
from tests.scripted import respond, scripted
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets.sample import load_sample
from typedrag.experiments.question_typing import infer_type
from typedrag.metrics import Objective
from typedrag.optimizers.compile.prompt_optimizers.candidates import read_call
from typedrag.optimizers.compile.targets import ALONE, mute_writers
from typedrag.programs import TypedRAG
from typedrag.signatures.typed_rag import DecomposeReason

REASON = ALONE["reason-sub-queries-alone"]


@pytest.fixture(scope="module")
def program(sample_retriever):
    return TypedRAG(sample_retriever)


def test_queries_are_scored_by_what_they_find_and_nobody_answers(program):
    examples = REASON.examples(load_sample())
    assert {e.question_type for e in examples} == {QuestionType.REASON}
    student, metric = REASON.student(program), REASON.metric
    example = next(e for e in examples if infer_type(dspy.Example(question=e.question)) is QuestionType.REASON)
    with scripted() as engine:
        prediction = student(question=example.question)
    assert engine.asked() == ["DecomposeReason"]
    assert prediction.answer == "" and prediction.passages
    found = metric(example, prediction)
    assert 0 <= found.score <= 1 and set(found.details["missing"]) <= set(example.passage_ids)


def test_silent_predictors_ask_no_lm():
    published = TypedRAG(WordRetriever(), options=EACH_ANSWERED)
    silent = mute_writers(published)
    with scripted() as engine:
        prediction = silent(question="Why is homemade bread dense?")
        assert engine.asked() == ["DecomposeReason"]
        published(question="Why is homemade bread dense?")
    assert prediction.answer == "" and {p.id for p in prediction.passages} == {"cold", "flour"}
    assert engine.asked()[1:] == ["DecomposeReason", "AnswerSubQuery", "AnswerSubQuery", "AggregateReasons"]


def test_better_queries_score_better(program):
    [example] = [e for e in REASON.examples(load_sample()) if "bread" in e.question.lower()]
    student, metric = REASON.student(program), REASON.metric
    scores = []
    worse = ["Why does a cat sleep?", "Why is it bread?"]
    better = ["Why does yeast fail in bread dough?", "Does too much flour make bread dense?"]
    for sub_queries in (worse, better):
        with scripted({DecomposeReason: {"sub_queries": sub_queries}}):
            scores.append(metric(example, student(question=example.question)).score)
    assert scores[1] >= scores[0] and scores[1] > 0


class Reflecting:
    """An LM that proposes the same instruction whatever it is shown."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def complete(self, request: Request) -> Response:
        self.prompts.append("\n".join(message.text for message in request.messages))
        return respond(request, {"new_instruction": "Ask about dough and flour."})

    def __deepcopy__(self, memo: dict) -> Reflecting:
        return self


def test_gepa_reflects_on_it_and_its_proposal_goes_back_into_the_program():
    program, reflecting = TypedRAG(WordRetriever()), Reflecting()
    examples = [
        dspy.Example(id=question, question=question, passage_ids=("cold", "walls")).with_inputs("question")
        for question in ("Why is homemade bread dense?", "Why does bread get heavy?")
    ]

    gepa = dspy.GEPA(
        metric=Objective([(REASON.metric, 1.0)], read_call),
        reflection_lm=dspy.LM("scripted/reflecting", engine=reflecting, cache=False),
        max_metric_calls=8,
        reflection_minibatch_size=1,
        num_threads=1,
        use_merge=False,
    )
    queries = ["Where do penguins live?", "Does cold dough make bread dense?", "Is bread dough wet?"]
    with scripted({DecomposeReason: {"sub_queries": queries}}) as engine:
        compiled = gepa.compile(REASON.student(program), trainset=examples[:1], valset=examples)
    assert set(engine.asked()) == {"DecomposeReason"}
    assert "Dropped before the search: «Where do penguins live? (off the topic)»." in reflecting.prompts[0]
    assert REASON.merge_into(program, compiled).strategies["reason"].decomposer.demos


def test_questions_without_labelled_passages_are_of_no_use():
    dataset = load_sample()
    assert all(e.passage_ids for e in REASON.examples(dataset))
    with pytest.raises(InputError, match="antique"):
        REASON.check_dataset(dspy.Example(name="nf-cats"))

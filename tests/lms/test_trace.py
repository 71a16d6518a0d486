"""The calls made in the threads of a question reach DSPy's trace, its usage and MLflow's spans."""

import random
import time

import dspy
import pytest

from tests.mlflow_stores import new_store
from tests.programs.ways import EACH_ANSWERED
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import StepFailed
from typedrag.lms.adapter import ChatAdapter
from typedrag.lms.asking import ask
from typedrag.lms.trace import (
    Stopwatch,
    add_replay,
    calls_left,
    count_replays,
    limit_calls,
    limit_tokens,
    run_concurrently,
)
from typedrag.programs import TypedRAG

QUESTION = "Why does homemade bread turn out dense and heavy?"
SUB_QUERIES = [f"Does bread get dense by cause number {n}?" for n in "abcde"]


def slow_at_random(prompt):
    time.sleep(random.random() / 20)
    return {"answer": prompt.split("[[ ## question ## ]]\n")[1].split("\n")[0], "citations": [1]}


REPLIES = {s.DecomposeReason: {"sub_queries": SUB_QUERIES}, s.AnswerSubQuery: slow_at_random}


def test_the_trace_holds_every_call_in_the_order_of_the_sub_queries(sample_retriever):
    program = TypedRAG(sample_retriever, options=EACH_ANSWERED)
    with scripted(REPLIES, trace=[]):
        program(question=QUESTION)
        trace = dspy.settings.trace
    assert [t[0].signature.__name__ for t in trace] == [
        "DecomposeReason",
        *["AnswerSubQuery"] * 5,
        "AggregateReasons",
    ]
    assert [t[2].answer for t in trace[1:-1]] == SUB_QUERIES
    predictors = {id(p) for p in program.predictors()}
    assert {id(t[0]) for t in trace} <= predictors


def test_mlflow_spans_are_nested_in_one_trace(sample_retriever, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(new_store(tmp_path))
    mlflow.set_experiment("spans")  # not that of a test before
    mlflow.dspy.autolog()
    try:
        with scripted(REPLIES):
            TypedRAG(sample_retriever, options=EACH_ANSWERED)(question=QUESTION)
        mlflow.flush_trace_async_logging()
        [trace] = mlflow.search_traces(return_type="list")
    finally:
        mlflow.dspy.autolog(disable=True)
        dspy.settings.configure(track_usage=False, callbacks=[])
        mlflow.set_tracking_uri(before)
    spans = {span.span_id: span for span in trace.data.spans}
    lm_calls = [span for span in spans.values() if span.span_type == "CHAT_MODEL"]
    assert len(lm_calls) == 7
    for span in lm_calls:
        ancestors = []
        while span.parent_id:
            span = spans[span.parent_id]
            ancestors.append(span.name)
        assert ancestors[-1] == "TypedRAG.forward"


def test_a_budget_is_shared_by_threads_and_ends():
    def call(_):
        return ask("answer", dspy.Predict(s.AnswerWithoutPassages), retries=0, question="Why?").prediction.answer

    with scripted() as engine, limit_calls(3):
        assert all(run_concurrently(call, [1, 2, 3], threads=3))
        assert calls_left(default=9) == 0
        with pytest.raises(StepFailed, match="max_lm_calls"):
            call(4)
        assert len(engine.prompts) == 3
    assert calls_left(default=9) == 9


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_no_call_is_made_beyond_the_budget_by_an_adapter_either(calls):
    """DSPy's chat adapter asks once more, for JSON, where it cannot read a reply."""
    with scripted({s.AnswerWithoutPassages: "no fields"}) as engine, dspy.context(adapter=ChatAdapter()):
        with limit_calls(calls), pytest.raises(StepFailed, match="max_lm_calls"):
            ask("answer", dspy.Predict(s.AnswerWithoutPassages), retries=9, question="Why?")
        assert len(engine.prompts) == calls


def test_no_call_is_made_once_the_tokens_are_used_up():
    def call():
        return ask("answer", dspy.Predict(s.AnswerWithoutPassages), retries=0, question="Why?")

    with scripted() as engine, limit_tokens(20), limit_calls(9):  # a call takes 15
        call(), call()
        with pytest.raises(StepFailed, match="tokens are used up"):
            call()
    assert len(engine.prompts) == 2


def test_replayed_calls_count_as_long_as_they_took_and_at_once_where_they_were():
    with count_replays():
        watch = Stopwatch()
        add_replay(10)
        run_concurrently(add_replay, [20, 30, 5], threads=3)
        with count_replays():  # a program within a program
            add_replay(1)
        assert 41 <= watch.seconds < 45
        assert Stopwatch().seconds < 1
    add_replay(100)
    assert Stopwatch().seconds < 1

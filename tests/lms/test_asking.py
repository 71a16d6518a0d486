"""Asking an LM over HTTP, where it says how much it wrote."""

from contextlib import nullcontext

import dspy
import pytest

from tests.scripted import scripted, signatures
from typedrag.core.errors import CallFailed, LMUnavailable, StepFailed
from typedrag.core.events import listen
from typedrag.core.records import FALLBACK
from typedrag.lms.asking import ask, detect_refusals, with_settings
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.replies import use_reply_store
from typedrag.lms.trace import collect_steps
from typedrag.signatures import predictor

CUT = "step 'answer': the reply was cut off at max_tokens, 10; it is taken as far as it goes"


def notes_of(lm):
    with use_lm(lm), collect_steps() as steps:
        assert ask("answer", dspy.Predict("question -> answer"), retries=1, question="Why?").prediction.answer
    return [step.output for step in steps if step.name == FALLBACK]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("finish_reason", "max_tokens"), [("length", 10), ("length", 99), ("stop", 10), ("stop", 99)])
def test_a_reply_that_was_cut_off_is_taken_and_noted(server, finish_reason, max_tokens, streamed):
    """The server says of each reply that it has ten tokens: a reply may end by itself there, or be cut off before."""
    server.finish_reason = finish_reason
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False, max_tokens=max_tokens)
    with listen(lambda event: None) if streamed else nullcontext():
        assert notes_of(lm) == ([CUT] if finish_reason == "length" else [])
    assert len(server.calls) == 1


@pytest.mark.parametrize("of_run", [False, True])
def test_that_a_kept_reply_was_cut_off_is_noted_too(server, monkeypatch, tmp_path, of_run):
    monkeypatch.setenv("TYPEDRAG_CACHE", str(tmp_path))
    monkeypatch.delattr(dspy, "cache", raising=False)
    server.finish_reason = "length"
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=True)
    with use_reply_store(tmp_path / "replies.sqlite") if of_run else nullcontext():
        assert [notes_of(lm), notes_of(lm)] == [[CUT], [CUT if of_run else CUT.replace("10;", "1024;")]]
    assert len(server.calls) == 1


@pytest.mark.parametrize("blanks", [1, 2])
def test_a_blank_answer_is_none(server, blanks):
    server.reply = lambda call: {"answer": " \n"} if len(server.calls) <= blanks else None
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        if blanks == 1:
            assert ask("answer", dspy.Predict("question -> answer"), retries=1, question="Why?").prediction.answer
        else:
            with pytest.raises(StepFailed, match="the LM's answer is blank"):
                ask("answer", dspy.Predict("question -> answer"), retries=1, question="Why?")
    assert len(server.calls) == 2


def test_half_a_character_at_the_end_of_a_reply_is_replaced(server):
    server.reply = lambda call: {"answer": "A \x1b[31m\x00smile \ud83d"}
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        answer = ask("answer", dspy.Predict("question -> answer"), retries=0, question="Why?").prediction.answer
    assert answer == "A [31msmile \ufffd"


def test_a_reply_that_cannot_be_read_is_shown(scripted_prose, caplog):
    caplog.set_level("INFO", logger="typedrag")
    with scripted_prose, collect_steps() as steps, pytest.raises(StepFailed):
        ask("decompose", predictor(signatures.DecomposeReason), retries=1, question="Why?")
    (failed,) = steps
    assert [(s.name, s.output) for s in failed.steps] == [("unreadable reply", ("Well, " * 60)[:300])] * 2
    assert ("Well, " * 60)[:300] in caplog.text


def test_items_that_do_not_fit_are_dropped_and_named():
    replies = {signatures.DecomposeReason: {"sub_queries": ["Is it old?", "Is it cold?", 3]}}
    with scripted(replies) as engine, collect_steps() as steps:
        reply = ask("decompose", predictor(signatures.DecomposeReason), retries=1, question="Why?")
    assert reply.prediction.sub_queries.root == ["Is it old?", "Is it cold?"]
    assert [(s.name, s.dropped) for s in steps] == [("decompose", ("sub_queries: 3 (it does not fit)",))]
    assert len(engine.prompts) == 1


def test_a_text_that_repeats_itself_is_shortened_and_that_is_told():
    said = "Cold dough rises slowly in winter."
    replies = {signatures.AnswerSubQuery: {"citations": [1], "answer": f"Bread is dense. {said} {said} Cold dough"}}
    with scripted(replies), collect_steps() as steps:
        predict = predictor(signatures.AnswerSubQuery)
        reply = ask("answer", predict, retries=1, passages=[], question="Why?")
    assert reply.prediction.answer == f"Bread is dense. {said}"
    assert [(s.name, s.dropped) for s in steps] == [("answer", (f"answer: {said} Cold dough (it was there before)",))]


@pytest.fixture
def scripted_prose():
    return scripted({signatures.DecomposeReason: "Well, " * 100})


@pytest.mark.parametrize("pages", [2, 3])
def test_what_is_no_reply_is_asked_for_again(server, pages):
    server.reply = lambda call: "<html>Login please</html>" if len(server.calls) <= pages else None
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        if pages == 2:
            assert ask("answer", dspy.Predict("question -> answer"), retries=2, question="Why?").prediction.answer
        else:
            with pytest.raises(CallFailed, match="Login please"):
                ask("answer", dspy.Predict("question -> answer"), retries=2, question="Why?")
    assert len(server.calls) == 3


def test_nobody_at_its_address_is_the_fault_of_no_question(server):
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False, num_retries=0)
    lm.engine.lm.kwargs["api_base"] = "http://127.0.0.1:9/v1"
    with use_lm(lm), pytest.raises(LMUnavailable) as raised:
        ask("answer", dspy.Predict("question -> answer"), retries=2, question="Why?")
    assert not isinstance(raised.value, CallFailed)


@pytest.mark.parametrize("answered", [True, False])
def test_an_lm_that_refuses_all_that_it_is_asked_cannot_be_used(server, answered):
    server.reply = lambda call: None if call.question == "Who?" else (400, "the prompt is too long")
    fault = StepFailed if answered else CallFailed
    asked = ["Who?", "Why?"] if answered else ["Why?"]

    def ask_all() -> None:
        with detect_refusals():
            for question in asked:
                ask("answer", dspy.Predict("question -> answer"), retries=2, question=question)

    with (
        use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)),
        pytest.raises(fault, match="the prompt is too long"),
    ):
        ask_all()
    assert len(server.calls) == len(asked)


class Unreadable(dspy.Module):
    """Gives a blank answer, and keeps the numbers that it was asked under."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[int] = []

    def forward(self, question: str, config: dict | None = None) -> dspy.Prediction:
        self.rollouts.append((config or {}).get("rollout_id", 0))
        return dspy.Prediction.from_completions([{"answer": " "}])


def test_each_retry_of_each_draw_has_a_place_of_its_own_in_the_cache():
    plain, drawn = Unreadable(), Unreadable()
    for predictor_ in (plain, with_settings(drawn, {"rollout_id": 100})):
        with use_lm(dspy.utils.DummyLM([{}])), pytest.raises(StepFailed, match="blank"):
            ask("answer", predictor_, retries=2, question="Why?")
    assert (plain.rollouts, drawn.rollouts) == ([0, 1, 2], [100, 101, 102])

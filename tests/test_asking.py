"""Asking an LM over HTTP, where it says how much it wrote."""

from __future__ import annotations

import dspy
import pytest

from tests.scripted import scripted
from typedrag import signatures
from typedrag.asking import ask
from typedrag.errors import StepFailed
from typedrag.lm import open_lm, use_lm
from typedrag.records import FALLBACK
from typedrag.trail import recording


@pytest.mark.parametrize(("max_tokens", "noted"), [(10, True), (11, False), (None, False)])
def test_a_reply_that_was_cut_off_is_taken_and_noted(server, max_tokens, noted):
    """The server says of each reply that it has ten tokens."""
    settings = {} if max_tokens is None else {"max_tokens": max_tokens}
    lm = open_lm("vllm:stub", api_base=server.api_base, cache=False, **settings)
    with use_lm(lm), recording() as steps:
        reply = ask("answer", dspy.Predict("question -> answer"), retries=1, question="Why?")
    assert reply.prediction.answer
    assert len(server.calls) == 1
    notes = [step.output for step in steps if step.name == FALLBACK]
    said = "step 'answer': the reply was cut off at max_tokens, 10; it is taken as far as it goes"
    assert notes == ([said] if noted else [])


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
    caplog.set_level("INFO")
    with scripted_prose, recording() as steps, pytest.raises(StepFailed):
        ask("decompose", signatures.predictor(signatures.DecomposeReason), retries=1, question="Why?")
    (failed,) = steps
    assert [(s.name, s.output) for s in failed.steps] == [("unreadable reply", ("Well, " * 60)[:300])] * 2
    assert ("Well, " * 60)[:300] in caplog.text


def test_items_that_do_not_fit_are_dropped_and_named():
    replies = {signatures.DecomposeReason: {"sub_queries": ["Is it old?", "Is it cold?", 3]}}
    with scripted(replies) as engine, recording() as steps:
        reply = ask("decompose", signatures.predictor(signatures.DecomposeReason), retries=1, question="Why?")
    assert reply.prediction.sub_queries.root == ["Is it old?", "Is it cold?"]
    assert [(s.name, s.dropped) for s in steps] == [("decompose", ("sub_queries: 3 (it does not fit)",))]
    assert len(engine.prompts) == 1


@pytest.fixture
def scripted_prose():
    return scripted({signatures.DecomposeReason: "Well, " * 100})

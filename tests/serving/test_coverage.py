import threading
import time

import pytest

from tests.lm_server import lm_server
from tests.serving import uniforms
from tests.serving.server import program, served
from typedrag.lms import models
from typedrag.sub_questions.coverage_judge import SimilarityCoverageJudge

BODY = {"question": uniforms.QUESTION, "answer": uniforms.ANSWER}


@pytest.fixture
def _minilm() -> None:
    models.fetch("all-minilm-l6-v2")
    SimilarityCoverageJudge()(text="Bread rises.", sub_questions=["What rises?"])  # loads it, which takes seconds


@pytest.mark.usefixtures("_minilm")
def test_says_which_sub_questions_an_answer_covers():
    with lm_server(reply=uniforms.reply) as lm, served(program(lm)) as server:
        reply = server.client.post("/v1/coverage", json=BODY)
    assert reply.status_code == 200
    said = {one["text"]: one for one in reply.json()["sub_questions"]}
    assert {text: one["type"] for text, one in said.items()} == uniforms.SUB_QUESTIONS
    cost = said["How much does a school uniform cost a family?"]
    assert cost["covered"]
    assert "400 euros" in cost["fragment"]
    assert not said["Which companies make school uniforms?"]["covered"]
    assert reply.json()["usage"]["lm_calls"] == len(lm.calls) == 2


def test_without_the_model_for_meaning_the_lm_says_it(monkeypatch, tmp_path):
    monkeypatch.setattr("typedrag.retrieval.rerankers.cosines.__defaults__", (str(tmp_path),))

    def reply(call):
        if "verdicts" in call.wanted:
            return {"verdicts": {f"q{n}": int(n == 2) for n in range(1, 11)}}
        return uniforms.reply(call)

    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        said = server.client.post("/v1/coverage", json=BODY).json()["sub_questions"]
        assert not server.service.refusing
    assert [one["covered"] for one in said] == [n == 2 for n in range(1, 11)]


def test_it_counts_among_the_questions_at_once():
    with lm_server(seconds=1) as lm, served(program(lm), running=1, queue=0) as server:
        asking = threading.Thread(target=server.ask, args=("Why?",))
        asking.start()
        while not lm.calls:
            time.sleep(0.01)
        reply = server.client.post("/v1/coverage", json=BODY)
        asking.join()
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "busy")
    assert reply.headers["Retry-After"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**BODY, "answer": " "}, 422),
        ({**BODY, "question": ""}, 422),
        ({**BODY, "question": "x" * 5000}, 422),
        ({**BODY, "program": "other"}, 404),
        ({"question": "Why?"}, 422),
    ],
)
def test_bad_requests_ask_no_lm(body, status):
    with lm_server() as lm, served(program(lm)) as server:
        assert server.client.post("/v1/coverage", json=body).status_code == status
        assert not lm.calls

import json
import time

import pytest

from tests.lm_server import lm_server
from tests.serving import uniforms
from tests.serving.server import program, served


def test_says_which_sentence_of_which_passage_supports_an_answer(sample_retriever):
    with lm_server(reply=uniforms.reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        answer = server.ask(uniforms.QUESTION).json()
        calls = len(lm.calls)
        cited = [{"id": p["id"], "text": p["text"]} for p in answer["passages"] if p["id"] in answer["citations"]]
        body = {"question": answer["question"], "answer": answer["answer"], "passages": cited}
        found = server.client.post("/v1/support", json=body).json()["support"]
        assert len(lm.calls) == calls
    texts = {passage["id"]: passage["text"] for passage in cited}
    assert all(one["passage_sentence"] in texts[one["passage_id"]] for one in found)
    assert all(one["sentence"] in answer["answer"] for one in found)
    by_passage = {one["passage_id"]: one for one in found if one["sentence"].startswith("Opponents reply")}
    assert set(by_passage) == {"uniforms-3"}
    assert by_passage["uniforms-3"]["passage_sentence"].startswith("Rules on hair, skirts or head coverings")


def test_a_sentence_that_no_passage_says_has_no_support():
    body = {"question": "Why?", "answer": "Cats purr.", "passages": [{"id": "a", "text": "Bread rises."}]}
    with lm_server() as lm, served(program(lm)) as server:
        assert server.client.post("/v1/support", json=body).json() == {"support": []}
        assert server.client.post("/v1/support", json={**body, "passages": []}).json() == {"support": []}
        assert (
            server.client.post("/v1/support", json={**body, "passages": [body["passages"][0]] * 101}).status_code == 422
        )


@pytest.mark.parametrize("place", ["question", "passages.0.id", "passages.0.text"])
def test_half_of_a_surrogate_pair_is_refused(place):
    body = {"question": "Why?", "answer": "Bread rises.", "passages": [{"id": "a", "text": "Bread rises."}]}
    *_, name = place.split(".")
    (body if name in body else body["passages"][0])[name] = "\ud83d"
    with lm_server() as lm, served(program(lm)) as server:
        headers = {"Content-Type": "application/json"}
        refused = server.client.post("/v1/support", content=json.dumps(body), headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
    assert refused.json()["error"]["message"].startswith(f"{place}: ")


def test_a_text_of_nothing_but_short_sentences_takes_no_time():
    said = " ".join(f"Ab{n} cd." for n in range(1_500))
    passages = [{"id": "a", "text": " ".join(f"Ab{n} cd." for n in range(3_500))}]
    with lm_server() as lm, served(program(lm)) as server:
        begun = time.monotonic()
        reply = server.client.post("/v1/support", json={"question": "Why?", "answer": said, "passages": passages})
    assert reply.status_code == 200
    assert len(reply.json()["support"]) == 200
    assert time.monotonic() - begun < 10


def test_long_texts_are_refused_and_long_sentences_cut():
    long = "Bread rises because of gas " + "and gas " * 1000
    body = {"question": "Why?", "answer": "Gas lets bread rise.", "passages": [{"id": "a", "text": long}]}
    with lm_server() as lm, served(program(lm)) as server:
        [found] = server.client.post("/v1/support", json=body).json()["support"]
        refused = server.client.post("/v1/support", json={**body, "passages": body["passages"] * 9})
    assert found["passage_sentence"] == long[:1000]
    assert (refused.status_code, "65,536 characters at most" in refused.text) == (422, True)

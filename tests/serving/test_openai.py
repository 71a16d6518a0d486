import asyncio
import json
import time
from unittest.mock import ANY

import openai
import pytest

from tests.lm_server import Call, lm_server, words
from tests.serving.server import Server, program, served
from typedrag.core.records import NOT_FROM_COLLECTION
from typedrag.serving.openai import SUPERSEDED

QUESTION = "Why does homemade bread turn out dense and heavy?"
YEAST = "Old or little yeast makes little gas."
ANSWER = f"There are several causes. {YEAST}"
ALONE = "Why does rye bread turn out dense?"
CHAT = [
    {"role": "system", "content": "Answer as a pirate."},
    {"role": "user", "content": "Why does white bread rise?"},
    {"role": "assistant", "content": "Yeast makes gas."},
    {"role": "user", "content": "And why not with rye?"},
]


def reply(call: Call) -> dict:
    said = {"citations": [1, 2], "answer": ANSWER, "standalone_question": ALONE}
    return {name: said[name] for name in call.wanted if name in said}


def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def ask(server: Server, messages=None, model: str = "", **settings):
    messages = messages or [{"role": "user", "content": QUESTION}]
    return client(server).chat.completions.create(model=model, messages=messages, **settings)


def texts(chunks) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_the_client_gets_an_answer_with_its_citations(sample_retriever):
    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        made = ask(server, model="typed_rag")
    assert (made.object, made.model, made.choices[0].finish_reason) == ("chat.completion", "typed_rag", "stop")
    message = made.choices[0].message
    assert (message.role, message.content) == ("assistant", ANSWER)
    cited = [annotation.url_citation for annotation in message.annotations]
    assert cited and all(c.title and c.passage_id and c.url.startswith("urn:typedrag:passage:") for c in cited)
    assert {message.content[c.start_index : c.end_index] for c in cited} <= {YEAST, ANSWER}
    assert YEAST in {message.content[c.start_index : c.end_index] for c in cited}
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (200, 20, 220)
    more = made.typedrag
    assert (more["question_type"], more["answered"], more["grounded"]) == ("reason", "passages", True)
    assert (more["question"], more["fallback"]) == (QUESTION, "")
    assert {p["id"] for p in more["passages"]} == {c.passage_id for c in cited}


def test_a_stream_comes_in_chunks_with_the_same_content_and_citations(sample_retriever):
    with lm_server(reply=reply, pause=0.05) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        whole = ask(server)
        chunks = list(ask(server, stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert texts(chunks) == ANSWER
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 2
    [annotations] = [c.choices[0].delta.annotations for c in chunks if c.choices and c.choices[0].delta.model_extra]
    assert annotations == [a.model_dump() for a in whole.choices[0].message.annotations]
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert whole.typedrag == chunks[-2].typedrag
    assert (whole.typedrag["answer_start"], whole.typedrag["answer_end"]) == (0, len(ANSWER))
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)


def test_what_the_lm_knows_is_marked_as_such_before_it_is_read():
    marked = f"{NOT_FROM_COLLECTION}\n{ANSWER}"
    with lm_server(reply=reply, pause=0.01) as lm, served(program(lm)) as server:
        whole = ask(server)
        chunks = list(ask(server, stream=True))
    assert whole.choices[0].message.content == texts(chunks) == marked
    assert whole.choices[0].message.annotations == []
    assert whole.typedrag["answered"] == "knowledge" and not whole.typedrag["grounded"]
    first = next(c.choices[0].delta.content for c in chunks if c.choices[0].delta.content)
    assert first == f"{NOT_FROM_COLLECTION}\n"


def test_a_text_that_was_streamed_and_given_up_is_called_a_draft(sample_retriever):
    answer = f"{YEAST} {words(60)}"
    with (
        lm_server(reply=lambda call: {"citations": [1], "answer": answer}, pause=0.01, cut=(1, 30)) as lm,
        served(program(lm, "rag", sample_retriever, num_retries=1)) as server,
    ):
        chunks = list(ask(server, stream=True))
    draft, separator, last = texts(chunks).partition(SUPERSEDED)
    assert separator
    assert draft and answer.startswith(draft) and draft != answer
    assert last == answer
    told = chunks[-1].typedrag
    assert texts(chunks)[told["answer_start"] : told["answer_end"]] == answer
    cited = next(c.choices[0].delta.annotations for c in chunks if c.choices[0].delta.model_extra)
    assert texts(chunks)[cited[0]["url_citation"]["start_index"] :].startswith(YEAST)


def test_where_no_reply_can_be_read_the_answer_follows_what_was_streamed(sample_retriever):
    with (
        lm_server(reply=lambda call: {"answered": "perhaps", "citations": [1], "answer": "Cats make noise."}) as lm,
        served(program(lm, "rag", sample_retriever)) as server,
    ):
        chunks = list(ask(server, stream=True))
        best = ask(server).choices[0].message.content
    drafts, _, last = texts(chunks).rpartition(SUPERSEDED)
    assert drafts == SUPERSEDED.join(["Cats make noise."] * 3)  # asked three times
    assert last == best
    told = chunks[-1].typedrag
    assert texts(chunks)[told["answer_start"] : told["answer_end"]] == best
    assert "the best passage found" in told["fallback"]


def test_models_are_the_programs_that_are_served(sample_retriever):
    with lm_server() as lm, served(program(lm), program(lm, "rag", sample_retriever)) as server:
        models = list(client(server).models.list())
        assert [m.id for m in models] == ["direct_lm", "rag"]
        assert client(server).models.retrieve("rag") == models[1]
        assert models[0].created == int(server.service.program().since.timestamp())
        assert ask(server, model="rag").typedrag["answered"] == "passages"
        assert ask(server).model == "direct_lm"
        with pytest.raises(openai.NotFoundError) as failure:
            ask(server, model="gpt-4o")
        with pytest.raises(openai.NotFoundError):
            client(server).models.retrieve("gpt-4o")
    assert failure.value.code == "model_not_found" and "gpt-4o" in failure.value.message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"messages": []}, "invalid_request"),
        ({"messages": [{"role": "system", "content": "Be brief."}]}, "invalid_request"),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_question"),
        ({"messages": [{"role": "user", "content": "Why?"}], "n": 2}, "invalid_request"),
        ({"messages": CHAT, "response_format": {"type": "json_object"}}, "invalid_request"),
        ({"messages": CHAT, "tool_choice": "required"}, "invalid_request"),
        ({"messages": CHAT, "function_call": {"name": "f"}}, "invalid_request"),
        ({"messages": CHAT, "audio": {"voice": "alloy", "format": "wav"}}, "unsupported"),
        ({"messages": CHAT, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "invalid_request"),
        ({"messages": [{"role": "user", "content": "Why?"}], "n": 0}, "invalid_request"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "unsupported",
        ),
        ({"messages": [{"role": "user", "content": "x" * 5000}], "stream": True}, "invalid_question"),
        ({"messages": [{"role": "user", "content": {"text": "Why?"}}]}, "invalid_request"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_openai_s_shape(body, code):
    with lm_server() as lm, served(program(lm)) as server:
        with pytest.raises(openai.BadRequestError) as failure:
            client(server).chat.completions.create(**{"model": "direct_lm", **body})
        assert (failure.value.code, failure.value.type) == (code, "invalid_request_error")
        *_, field = body  # the last one is wrong, or the question that it holds
        assert failure.value.param is None or failure.value.param.startswith(field)
        assert not lm.calls


HALF = "half a smile: \ud83d"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [{"role": "user", "content": HALF}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": HALF}], "stream": True}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]}, "messages.0"),
        ({"messages": [*CHAT[:2], {"role": "assistant", "content": HALF}, CHAT[-1]]}, "messages.2"),
        ({"messages": CHAT, "model": HALF}, "model"),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_in_openai_s_shape(body, place):
    headers = {"Content-Type": "application/json"}
    with lm_server() as lm, served(program(lm)) as server:
        refused = server.client.post("/v1/chat/completions", content=json.dumps(body), headers=headers)
        assert not lm.calls
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["type"]) == (400, "invalid_request", "invalid_request_error")
    assert error["param"] == place
    assert error["message"].startswith(f"{place}: ") and "half of a surrogate pair" in error["message"]


def test_an_lm_that_fails_amid_a_stream_ends_it_in_an_error(sample_retriever):
    with (
        lm_server(reply=lambda call: (500, "out of memory at /srv/lm")) as lm,
        served(program(lm, "typed_rag", sample_retriever)) as server,
    ):
        with pytest.raises(openai.APIError) as failure:
            list(ask(server, stream=True))
        with pytest.raises(openai.InternalServerError) as plain:
            ask(server)
        raw = server.client.post("/v1/chat/completions", json={"messages": CHAT[:2], "stream": True})
    assert failure.value.code == plain.value.code == "lm_failed"
    assert (failure.value.type, failure.value.body["request_id"]) == ("server_error", ANY)
    *_, last, done = raw.text.strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["request_id"] == raw.headers["X-Request-ID"]
    assert done == "data: [DONE]"
    assert "/srv" not in f"{failure.value} {plain.value} {plain.value.body}"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_says_so(stream):
    with lm_server(reply=reply, finish_reason="length") as lm, served(program(lm)) as server:
        made = ask(server, stream=stream)
        reasons = [c.choices[0].finish_reason for c in (made if stream else [made]) if c.choices]
    assert reasons[-1] == "length"


def test_what_asks_for_text_without_tools_is_answered():
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        made = ask(server, tools=[tool], tool_choice="auto", response_format={"type": "text"}, n=1)
    assert made.choices[0].message.content.endswith(ANSWER)


def test_earlier_turns_make_the_question_stand_alone():
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        made = ask(server, CHAT)
        assert lm.asked("standalone_question") == ["And why not with rye?"]
        assert lm.asked("answer") == [ALONE]
        asked = json.dumps(lm.calls[0].request)
        assert "Yeast makes gas" in asked and "pirate" not in asked
    assert made.typedrag["question"] == ALONE
    assert made.usage.total_tokens == 220


def test_the_server_can_be_told_not_to_and_what_was_a_draft_is_no_turn():
    with lm_server(reply=reply) as lm, served(program(lm), standalone=False) as server:
        assert ask(server, CHAT).typedrag["question"] == "And why not with rye?"
        assert len(lm.calls) == 1
    chat = [*CHAT[:2], {"role": "assistant", "content": f"A draft{SUPERSEDED}Yeast makes gas."}, CHAT[-1]]
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        ask(server, chat)
        assert "A draft" not in json.dumps(lm.calls[0].request)


def test_that_counts_against_the_deadline_and_the_tokens(sample_retriever):
    with (
        lm_server(reply=reply, seconds=0.5) as lm,
        served(program(lm), deadline=0.8) as server,
        pytest.raises(openai.APIStatusError) as failure,
    ):
        ask(server, CHAT)
    assert failure.value.code == "deadline" and lm.asked("standalone_question")
    with lm_server(reply=reply) as lm, served(program(lm, "rag", sample_retriever), question_tokens=50) as server:
        assert "tokens are used up" in ask(server, CHAT).typedrag["fallback"]
        assert len(lm.calls) == 1


def test_two_chats_that_end_alike_are_two_questions():
    other = [{"role": "user", "content": "Why does spelt bread rise?"}, *CHAT[2:]]

    async def both(server: Server) -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking:
            await asyncio.gather(
                *(asking.chat.completions.create(model="", messages=messages) for messages in (CHAT, CHAT, other))
            )

    with lm_server(reply=reply, seconds=0.3) as lm, served(program(lm)) as server:
        asyncio.run(both(server))
        assert len(lm.asked("standalone_question")) == 2


def test_a_client_that_leaves_amid_a_stream_ends_the_question():
    with lm_server(reply=lambda call: {"answer": words(500)}, pause=0.05) as lm, served(program(lm)) as server:
        with ask(server, stream=True) as chunks:
            next(chunk for chunk in chunks if chunk.choices[0].delta.content)
        end = time.monotonic() + 60
        while not lm.left and time.monotonic() < end:
            time.sleep(0.05)
        assert lm.left == 1
        assert server.under_way == 0


@pytest.mark.parametrize("stream", [False, True])
def test_people_can_say_what_they_think_of_an_answer(stream, tmp_path):
    body = {"messages": [{"role": "user", "content": "Why?"}], "stream": stream}
    with lm_server() as lm, served(program(lm), feedback=tmp_path / "feedback.sqlite") as server:
        made = server.client.post("/v1/chat/completions", json=body)
        said = {"request_id": made.headers["X-Request-ID"], "rating": "up"}
        assert server.client.post("/v1/feedback", json=said).status_code == 204


def test_open_webui_s_requests_are_answered(sample_retriever):
    """As its backend sends them: the models, then the chat with what its front end adds to it."""
    headers = {"Authorization": "Bearer sk-none", "Content-Type": "application/json", "X-OpenWebUI-User-Id": "1"}
    said = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    body = {"stream": True, "model": "typed_rag", "messages": [{"role": "system", "content": "Context:"}, *said]}
    body |= {"params": {"function_calling": "native", "stop": None}, "tool_servers": [], "tool_ids": None}
    body |= {"features": {"web_search": False}, "variables": {"{{USER_NAME}}": "Ada"}, "model_item": {"urlIdx": 0}}
    body |= {"metadata": {"chat_id": "7b0a", "task": None}, "background_tasks": {"title_generation": True}}
    body |= {"chat_id": "7b0a", "id": "51ce", "session_id": "WbK", "stream_options": {"include_usage": True}}
    body |= {"temperature": 0.8, "max_tokens": 512, "logit_bias": {}, "reasoning_effort": None}
    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        listed = server.client.get("/v1/models", headers=headers).json()
        made = server.client.post("/v1/chat/completions", json=body, headers=headers)
    assert listed["object"] == "list"
    assert [(m["id"], m["object"], m["owned_by"]) for m in listed["data"]] == [("typed_rag", "model", "typedrag")]
    assert made.headers["Content-Type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in made.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    [cited] = [delta["annotations"] for delta in deltas if "annotations" in delta]
    assert all(annotation["type"] == "url_citation" for annotation in cited)
    assert chunks[-1]["usage"]["total_tokens"] == 220

import openai
import pytest

from tests.lm_server import lm_server, words
from tests.serving.server import Server, program, served
from tests.serving.test_openai import ALONE, ANSWER, CHAT, QUESTION, YEAST, client, reply
from typedrag.core.records import NOT_FROM_COLLECTION
from typedrag.serving.openai import SUPERSEDED

SPOKEN = CHAT[1:]
TOOL = {"type": "function", "name": "f", "parameters": {}, "strict": False}


def ask(server: Server, asked=QUESTION, **settings):
    return client(server).responses.create(input=asked, **settings)


def test_the_client_gets_an_answer_with_its_sources(sample_retriever):
    with lm_server(reply=reply) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        made = ask(server, model="typed_rag", metadata={"chat": "7"})
    assert (made.object, made.model, made.status, made.error) == ("response", "typed_rag", "completed", None)
    assert made.output_text == ANSWER
    [message] = made.output
    [text] = message.content
    assert (message.type, message.role, message.status, text.type) == (
        "message",
        "assistant",
        "completed",
        "output_text",
    )
    sources = text.annotations
    assert sources and all(s.type == "url_citation" and s.title and s.passage_id for s in sources)
    assert YEAST in {text.text[s.start_index : s.end_index] for s in sources}
    assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (200, 20, 220)
    assert {p["id"] for p in made.typedrag["passages"]} == {s.passage_id for s in sources}
    assert made.metadata == {"chat": "7"}
    assert (made.store, made.tools, made.instructions, made.previous_response_id) == (False, [], None, None)


def test_a_stream_has_the_events_of_openai_in_sequence(sample_retriever):
    with lm_server(reply=reply, pause=0.05) as lm, served(program(lm, "typed_rag", sample_retriever)) as server:
        whole = ask(server)
        events = list(ask(server, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 2 and "".join(deltas) == events[-4].text == ANSWER
    sources = [event.annotation for event in events if event.type == "response.output_text.annotation.added"]
    [message] = events[-1].response.output
    assert [dict(source) for source in sources] == [source.model_dump() for source in message.content[0].annotations]
    assert events[-2].item == message
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {message.id}
    assert len({event.response.id for event in (events[0], events[1], events[-1])}) == 1
    assert events[0].response.status == "in_progress" and events[0].response.output == []
    same = {"id", "created_at", "output"}
    assert events[-1].response.model_dump(exclude=same) == whole.model_dump(exclude=same)
    assert message.content == whole.output[0].content


def test_the_stream_helper_of_the_client_reads_it():
    with (
        lm_server(reply=reply) as lm,
        served(program(lm)) as server,
        client(server).responses.stream(model="direct_lm", input=QUESTION) as stream,
    ):
        kinds = [event.type for event in stream]
        made = stream.get_final_response()
    assert made.output_text == f"{NOT_FROM_COLLECTION}\n{ANSWER}" and kinds[-1] == "response.completed"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_is_incomplete(stream):
    with lm_server(reply=reply, finish_reason="length") as lm, served(program(lm)) as server:
        made = ask(server, stream=stream)
        if stream:
            *_, last = made
            assert last.type == "response.incomplete"
            made = last.response
    assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert made.output[0].status == "incomplete"


def test_a_draft_is_followed_by_the_answer(sample_retriever):
    answer = f"{YEAST} {words(60)}"
    with (
        lm_server(reply=lambda call: {"citations": [1], "answer": answer}, pause=0.01, cut=(1, 30)) as lm,
        served(program(lm, "rag", sample_retriever, num_retries=1)) as server,
    ):
        made = list(ask(server, stream=True))[-1].response
    assert made.output_text.partition(SUPERSEDED)[2] == answer
    assert made.output_text[made.typedrag["answer_start"] : made.typedrag["answer_end"]] == answer
    assert made.output_text[made.output[0].content[0].annotations[0].start_index :].startswith(YEAST)


def test_earlier_messages_make_the_question_stand_alone():
    parts = [{**SPOKEN[0], "content": [{"type": "input_text", "text": SPOKEN[0]["content"]}]}, *SPOKEN[1:]]
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        assert ask(server, parts).typedrag["question"] == ALONE
        first = ask(server, SPOKEN[0]["content"])
        again = [SPOKEN[0], *(item.model_dump(exclude_none=True) for item in first.output), SPOKEN[-1]]
        assert ask(server, again).typedrag["question"] == ALONE
        assert "There are several causes" in str(lm.calls[-2].request)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"input": ""}, "invalid_question"),
        ({"input": []}, "invalid_request"),
        ({"input": [{"role": "assistant", "content": "Bread rises."}]}, "invalid_request"),
        ({"input": [{"role": "developer", "content": "Be brief."}, SPOKEN[0]]}, "unsupported"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "7"}]}, "invalid_request"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "unsupported"),
        ({"instructions": "Answer as a pirate."}, "unsupported"),
        ({"previous_response_id": "resp_1"}, "unsupported"),
        ({"conversation": "conv_1"}, "unsupported"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported"),
        ({"tools": [TOOL]}, "unsupported"),
        ({"tool_choice": "required"}, "invalid_request"),
        ({"background": True}, "unsupported"),
        ({"text": {"format": {"type": "json_object"}}}, "invalid_request"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(body, code):
    with lm_server() as lm, served(program(lm)) as server:
        with pytest.raises(openai.BadRequestError) as failure:
            client(server).responses.create(**{"input": QUESTION, **body})
        assert (failure.value.code, failure.value.type) == (code, "invalid_request_error")
        [field] = body
        assert failure.value.param is None or failure.value.param.startswith(field)
        assert not lm.calls


def test_what_clients_send_by_default_is_answered_and_not_called_done():
    sent = {"temperature": 0.1, "top_p": 1.0, "max_output_tokens": 50, "truncation": "auto", "store": True, "tools": []}
    sent |= {
        "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
    }
    with lm_server(reply=reply) as lm, served(program(lm)) as server:
        made = ask(server, **sent, tool_choice="auto", instructions="")
        with pytest.raises(openai.NotFoundError):
            client(server).responses.retrieve(made.id)
    assert (made.temperature, made.top_p, made.max_output_tokens, made.truncation) == (None, None, None, "disabled")
    assert (made.store, made.parallel_tool_calls) == (False, False)


def test_an_lm_that_fails_amid_a_stream_ends_it_in_both_errors(sample_retriever):
    events = []
    with (
        lm_server(reply=lambda call: (500, "out of memory at /srv/lm")) as lm,
        served(program(lm, "typed_rag", sample_retriever)) as server,
    ):
        with pytest.raises(openai.APIError) as failure:
            events.extend(ask(server, stream=True))
        with pytest.raises(openai.InternalServerError) as plain:
            ask(server)
    assert failure.value.code == plain.value.code == "lm_failed" and failure.value.body["request_id"]
    assert events[-1].type == "response.failed"
    assert (events[-1].response.status, events[-1].response.error.code) == ("failed", "server_error")
    assert "/srv" not in f"{failure.value} {events[-1]}"

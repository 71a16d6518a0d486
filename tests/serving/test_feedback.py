import json
import resource
import sqlite3

import pytest
from click.testing import CliRunner

from tests.lm_server import lm_server
from tests.serving.server import program, served
from typedrag.cli.main import cli
from typedrag.core.records import Answer
from typedrag.datasets import load_dataset
from typedrag.datasets.feedback import Feedback, FeedbackFile, Rating, rows_from_feedback


def said_of(question: str, answer: str, rating: str, correction: str = "", citations: tuple[str, ...] = ()):
    return Answer(question, answer, citations=citations), Feedback("r", Rating(rating), correction)


def test_feedback_on_an_answer_becomes_a_dataset(sample_retriever, tmp_path):
    """The loop: ask, say what is wrong, make a dataset of it, load it as one to compile on."""
    file = tmp_path / "feedback.sqlite"
    with lm_server() as lm, served(program(lm, "rag", sample_retriever), feedback=file) as server:
        good, bad, stream = (
            server.ask("Why does bread rise?"),
            server.ask("Why is it red?"),
            server.client.post(
                "/v1/answer", json={"question": "How do I paint?"}, headers={"Accept": "text/event-stream"}
            ),
        )
        for reply, body in (
            (good, {"rating": "up"}),
            (bad, {"rating": "down"}),
            (bad, {"rating": "down", "correction": "Since it is painted so."}),
            (stream, {"rating": "down"}),
        ):
            sent = {"request_id": reply.headers["X-Request-ID"], **body}
            assert server.client.post("/v1/feedback", json=sent).status_code == 204
    out = tmp_path / "asked.jsonl"
    done = CliRunner().invoke(cli, ["datasets", "from-traces", str(file), "--out", str(out)])
    assert (done.exit_code, done.stderr) == (0, f"2 questions of 3 that something was said of: {out}\n")
    rise, red = load_dataset("file", out).examples
    assert (rise.question, rise.references[0].text) == ("Why does bread rise?", good.json()["answer"])
    assert list(rise.passage_ids) == good.json()["citations"]
    assert [(r.text, r.label) for r in red.references] == [("Since it is painted so.", 3), (bad.json()["answer"], 0)]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"request_id": "unknown", "rating": "up"}, 404, "no_such_request"),
        ({"request_id": "unknown", "rating": "so-so"}, 422, "invalid_request"),
        ({"rating": "up"}, 422, "invalid_request"),
        ({"request_id": "r"}, 422, "invalid_request"),
        ({"request_id": "r", "question_type": "quiz"}, 422, "invalid_request"),
        ({"request_id": "r", "rating": "up", "correction": "x" * 20_001}, 422, "invalid_request"),
    ],
)
def test_feedback_that_cannot_be_kept_is_refused(body, status, code, tmp_path):
    with lm_server() as lm, served(program(lm), feedback=tmp_path / "feedback.sqlite") as server:
        reply = server.client.post("/v1/feedback", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_without_a_file_none_is_kept():
    with lm_server() as lm, served(program(lm)) as server:
        reply = server.client.post("/v1/feedback", json={"request_id": "r", "rating": "up"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "no_feedback")


def test_a_disk_that_is_full_loses_no_answer(tmp_path):
    """A limit on file sizes stands in for it: writes fail as they would."""
    file = tmp_path / "feedback.sqlite"
    with lm_server() as lm, served(program(lm), feedback=file) as server:
        assert server.ask("Why?").status_code == 200
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, limits[1]))
        try:
            replies = [server.ask(f"Why {n}?") for n in range(20)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert {reply.status_code for reply in replies} == {200}
        assert all(reply.json()["answer"] for reply in replies)
    with sqlite3.connect(file) as kept:
        assert kept.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_who_speaks_again_takes_back_what_was_said(tmp_path):
    file = FeedbackFile(tmp_path / "feedback.sqlite")
    file.keep("r", Answer("Why?", "So."))
    assert file.add(Feedback("r", Rating.UP, who="ann"))
    assert file.add(Feedback("r", Rating.DOWN, who="ann"))
    assert file.add(Feedback("r", Rating.UP, who="bob"))
    assert sorted((said.who, said.rating) for _, said in file) == [("ann", "down"), ("bob", "up")]
    assert not file.add(Feedback("other", Rating.UP))


def test_a_type_that_is_said_makes_a_labelled_question_and_outlives_a_rating(sample_retriever, tmp_path):
    file, out = tmp_path / "feedback.sqlite", tmp_path / "asked.jsonl"
    with lm_server() as lm, served(program(lm, "typed_rag", sample_retriever), feedback=file) as server:
        said = [
            (server.ask("bread yeast"), {"question_type": "debate"}, {"question_type": "comparison"}, {"rating": "up"}),
            (server.ask("bread oven"), {"rating": "down", "correction": "Hotter."}, {"question_type": "instruction"}),
            (server.ask("bread salt"), {"rating": "down"}),
        ]
        for reply, *bodies in said:
            for body in bodies:
                sent = {"request_id": reply.headers["X-Request-ID"], **body}
                assert server.client.post("/v1/feedback", json=sent).status_code == 204
    done = CliRunner().invoke(cli, ["datasets", "from-traces", str(file), "--out", str(out)])
    assert done.stderr == f"2 questions of 3 that something was said of: {out}\n"
    yeast, oven = load_dataset("file", out).examples
    assert (yeast.question, yeast.question_type, len(yeast.references)) == ("bread yeast", "comparison", 1)
    assert (oven.question_type, oven.references[0].text) == ("instruction", "Hotter.")


def test_references_are_labelled_by_how_they_came_about():
    rows = rows_from_feedback(
        [
            said_of("Why?", "Good.", "up", citations=("p1", "p2")),
            said_of("Why?", "Bad.", "down", "Better."),
            said_of("How?", "Bad.", "down"),
        ]
    )
    assert rows == [
        {
            "question": "Why?",
            "references": [
                {"text": "Better.", "label": 3},
                {"text": "Good.", "label": 2},
                {"text": "Bad.", "label": 0},
            ],
            "passage_ids": ["p1", "p2"],
        }
    ]
    assert json.loads(json.dumps(rows)) == rows

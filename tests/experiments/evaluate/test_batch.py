import gzip
import threading
import time
import tracemalloc
from typing import ClassVar

import dspy
import pytest

from typedrag.core.errors import InputError, LMUnavailable, RetrievalError
from typedrag.core.records import Passage
from typedrag.experiments import AskedQuestion, answer_questions, read_question_file, read_questions
from typedrag.experiments.batch import open_answers
from typedrag.files import text_files
from typedrag.programs import Program

QUESTIONS = [AskedQuestion(f"q{n}", f"Why {n}? ß😀") for n in range(8)]


class Echo(Program):
    """Answers with the question, and remembers what it was asked."""

    name: ClassVar[str] = "echo"
    retrieves: ClassVar[bool] = False

    def __init__(self, fails: dict[str, Exception] | None = None, seconds: float = 0.0) -> None:
        super().__init__()
        self.fails = fails or {}
        self.seconds = seconds
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def respond(self, question: str) -> dspy.Prediction:
        with self.lock:
            self.asked.append(question)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.seconds)
        with self.lock:
            self.at_once -= 1
        if question in self.fails:
            raise self.fails[question]
        return dspy.Prediction(answer=question.upper(), passages=(Passage("p1", "naïve"),), citations=("p1",))


# reading questions


def test_questions_are_lines_of_text_or_of_json():
    lines = ["Why?\n", "\n", '{"question": "How?", "id": "h", "type": "x"}\n', '  {"question": "Who?"}\n', "  When? "]
    assert read_questions(lines, "test") == [
        AskedQuestion("1", "Why?"),
        AskedQuestion("h", "How?"),
        AskedQuestion("4", "Who?"),
        AskedQuestion("5", "When?"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"question": "Why?"', "questions.txt, line 2 cannot be used: it is not JSON"),
        ('{"query": "Why?"}', "questions.txt, line 2 cannot be used: it has no field 'question' .fields: query"),
        ('{"question": 5}', "questions.txt, line 2 cannot be used: question: Input should be a valid string"),
        ('{"question": "Why \\ud83d?"}', "questions.txt, line 2 cannot be used: question: .* half of a surrogate pair"),
        ('{"question": "Why?", "id": "\\ud83d"}', "line 2 cannot be used: id: .* half of a surrogate pair"),
        ('{"question": ' + "[" * 100_000, "questions.txt, line 2 cannot be used: it is nested too deeply"),
        (
            '{"question": "Why?", "id": ' + "9" * 6_000 + "}",
            "line 2 cannot be used: it holds a number with more digits",
        ),
        (
            '{"question": "Why?", "id": "' + "9" * 40_000 + '"}',
            "line 2 cannot be used: id: .* it has 40,000 characters",
        ),
    ],
)
def test_a_line_that_is_no_question_is_named(line, problem):
    with pytest.raises(InputError, match=problem):
        read_questions(["Why?", line, "How?"], "questions.txt")
    with pytest.raises(InputError, match=r"questions\.txt holds no question"):
        read_questions(["\n", "  \n"], "questions.txt")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("q.csv", 'id,question\nq7,"Why, then?"\n,How?\n', [("q7", "Why, then?"), ("2", "How?")]),
        ("Q.TSV", "question\tid\nWhy?\tq7\n", [("q7", "Why?")]),
        ("q.csv", "question\nWhy?\n", [("1", "Why?")]),
        ("q.jsonl.gz", '{"question": "Why?"}\n', [("1", "Why?")]),
        ("q", "Why?\n", [("1", "Why?")]),
    ],
)
def test_a_file_of_questions_is_read_by_its_kind(tmp_path, name, text, expected):
    file = tmp_path / name
    (gzip.open if name.endswith(".gz") else open)(file, "wt").write(text)
    assert read_question_file(file) == [AskedQuestion(*fields) for fields in expected]


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ('id;question\r\n7;"Why; then?"\r\n'.encode("utf-8-sig"), {}),
        ("sep=;\r\nid;question\r\n7;Warum für Bäcker?\r\n".encode("cp1252"), {}),
        ("id\tquestion\r\n7\tWarum für Bäcker?\r\n".encode("utf-16"), {}),
        ("id,question\n7,Warum für Bäcker?\n".encode("utf-16-le"), {}),
        (b'\xef\xbb\xbfQuestion,Id\r\n"Why; then?",7\r\n', {"question": "Question", "id": "Id"}),
    ],
)
def test_a_file_of_excel_is_read_whatever_its_delimiter_and_code_page(tmp_path, data, fields):
    file = tmp_path / "q.csv"
    file.write_bytes(data)
    [question] = read_question_file(file, fields)
    assert question.id == "7"
    assert question.question in ("Why; then?", "Warum für Bäcker?")


def test_a_heading_that_is_nearly_right_is_named_with_the_option_that_maps_it(tmp_path):
    (tmp_path / "q.csv").write_text("Question\nWhy?\n")
    with pytest.raises(InputError, match="--field 'question=Question'"):
        read_question_file(tmp_path / "q.csv")


def test_a_line_that_no_memory_holds_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 100)
    for name in ("q.jsonl.gz", "q.csv.gz"):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write("question\n" + "w" * 100_000_000)
        tracemalloc.start()
        with pytest.raises(InputError, match=f"{name}, line 2 cannot be used: it is longer than 100 characters"):
            read_question_file(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()


# answering them, kept in a folder


@pytest.mark.parametrize("fault", [LMUnavailable("no server"), RetrievalError("no index"), KeyError("a bug")])
def test_a_fault_of_the_system_ends_the_run_and_keeps_what_was_done(tmp_path, fault):
    program, outcomes = Echo({QUESTIONS[3].question: fault}, seconds=0.02), []
    with open_answers(tmp_path / "out", QUESTIONS, {}, resume=True) as run:
        with pytest.raises(type(fault)) as raised:
            answer_questions(program, QUESTIONS, threads=2, store=run.store, on_outcome=outcomes.append)
        assert raised.value is fault
        assert {0, 1, 2} <= {o.index for o in outcomes}
        assert len(program.asked) < len(QUESTIONS)
        assert len(run.store.read().results) == len(outcomes)
    mended = Echo()
    with open_answers(tmp_path / "out", QUESTIONS, {}, resume=True) as run:
        assert len(answer_questions(mended, QUESTIONS, threads=2, store=run.store)) == len(QUESTIONS)
    assert len(mended.asked) == len(QUESTIONS) - len(outcomes)
    with pytest.raises(InputError, match="other questions"):
        open_answers(tmp_path / "out", [AskedQuestion("q0", "Another?"), *QUESTIONS[1:]], {}, resume=True)


def test_a_file_that_is_of_no_run_is_left_alone(tmp_path):
    (tmp_path / "out").write_text("notes")
    for resume in (False, True):
        with pytest.raises(InputError, match="out exists already"):
            open_answers(tmp_path / "out", QUESTIONS, {}, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

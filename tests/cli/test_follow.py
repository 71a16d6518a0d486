import io
import os
import pty
import subprocess
import sys

from rich.console import Console

from tests.lm_server import MODEL, lm_server, words
from tests.scripted import scripted
from typedrag.cli.ask import Drawing, follow
from typedrag.core import events
from typedrag.core.records import NOT_FROM_COLLECTION, Passage
from typedrag.programs import build_program


def drawn(drawing: Drawing) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(drawing)
    return console.file.getvalue()


def test_nothing_is_drawn_where_there_is_no_terminal(sample_retriever):
    console = Console(file=io.StringIO())
    with scripted():
        answer = follow(build_program("rag", sample_retriever), "Why does bread rise?", None, console)
    assert answer.answer == "AnswerFromPassages says so."
    assert console.file.getvalue() == ""


def test_the_tree_shows_sub_queries_without_the_question_before_them():
    drawing = Drawing("Why does bread rise? ")
    drawing.add(events.Searched(queries=("Why does bread rise? yeast", "Why does bread rise?")))
    drawing.add(events.Read(part="yeast", passages=(Passage("yeast-1", "Yeast makes gas."),)))
    lines = [line.strip("│├└─ ") for line in drawn(drawing).splitlines()]
    assert lines[:4] == ["Why does bread rise?", "yeast", "yeast-1", "Why does bread rise?"]
    assert lines[4].endswith(" 0 s")


def test_a_terminal_shows_the_answer_while_it_is_written_and_stdout_has_it_once():
    """Stderr is a terminal, stdout a pipe: what is drawn does not get into what is kept."""
    controller, terminal = pty.openpty()
    with lm_server(reply=lambda call: {"answer": words(60)}, pause=0.03) as server:
        command = [sys.executable, "-m", "typedrag", "ask", "Why?", "--program", "direct_lm", "--no-cache"]
        options = ["--lm", f"vllm:{MODEL}", "--api-base", server.api_base]
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 4096)
            except OSError:  # the terminal was closed by its last process
                break
            shown += piece
            if not piece:
                break
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert stdout.decode() == f"{NOT_FROM_COLLECTION}\n{words(60)}\n"
    first, last = shown.find(b"w000"), shown.find(b"w059")
    assert 0 < first < last
    assert b"\x1b[" in shown[first:last]  # drawn anew in between

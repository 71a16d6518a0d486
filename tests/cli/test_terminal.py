"""What strangers wrote is shown at a terminal and never steers it, on every way out."""

import json
import logging
import re
from pathlib import Path

import pytest

import typedrag.cli
from tests.commands import invoke
from tests.lm_server import MODEL
from typedrag.cli.terminal import _Lines, draw_table, make_console, wide_console

ATTACK = "red \x1b[31m, \x1b]0;title\x07, \x9b2J, \r, \x08, \x7f and \u202egnihton\u2069"
SHOWN = "red \\u001b[31m, \\u001b]0;title\\u0007, \\u009b2J, \\u000d, \\u0008, \\u007f and \\u202egnihton\\u2069"
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text(json.dumps({"id": "a\x1b[2J", "title": f"yeast {ATTACK}", "text": f"yeast {ATTACK}"}))
    assert invoke("index", "build", "p.jsonl", "--out", "i").exit_code == 0
    return "i"


def test_a_search_shows_control_characters(index):
    done = invoke("index", "search", index, "yeast")
    assert not STEERING.search(done.stdout)
    assert SHOWN in done.stdout
    as_json = invoke("index", "search", index, "yeast", "--json").stdout
    assert not STEERING.search(as_json)
    assert json.loads(as_json)["text"] == f"yeast {ATTACK}"


@pytest.mark.parametrize("options", [[], ["--trace"], ["--json"], ["--json", "--trace"]])
def test_an_answer_its_steps_and_its_sources_show_them(index, server, options):
    server.reply = lambda call: {"answer": f"It is {ATTACK} [1]", "citations": [1]}
    lm = ["--lm", f"vllm:{MODEL}", "--api-base", server.api_base, "--no-cache"]
    done = invoke("ask", f"why yeast {ATTACK}?", "--index", index, "--program", "rag", *lm, *options)
    assert done.exit_code == 0
    assert not STEERING.search(done.stdout + done.stderr)
    assert "\\u001b" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments", [["index", "build", f"no{ATTACK}", "--out", "i"], [f"com{ATTACK}"], ["ask", "x", f"--{ATTACK}"]]
)
def test_an_error_shows_them(arguments, run_command):
    done = run_command(*arguments)
    assert done.returncode == 2
    assert not STEERING.search(done.stderr)
    assert "\\u001b[31m" in done.stderr or "\\x1b[31m" in done.stderr  # click escapes some of them, as Python does


def test_a_log_line_shows_them():
    record = logging.LogRecord("typedrag.x", logging.WARNING, "", 0, "left out: %s", (ATTACK,), None)
    assert _Lines("%(name)s: %(message)s").format(record) == f"Warning: left out: {SHOWN}"


def test_what_is_drawn_in_colour_shows_them(capsys):
    console = make_console(force_terminal=True, color_system="standard", width=200)
    console.print(f"[bold]{ATTACK}[/bold]", highlight=False)
    drawn = capsys.readouterr().out
    assert drawn.startswith("\x1b[1m")
    assert not STEERING.search(drawn.removeprefix("\x1b[1m").removesuffix("\x1b[0m\n"))
    assert "red \\u001b[31m" in drawn


def test_every_command_prints_through_the_same_functions():
    for file in Path(typedrag.cli.__file__).parent.glob("*.py"):
        if file.name != "terminal.py":
            assert not re.search(r"click\.s?echo|\bConsole\(", file.read_text("utf-8")), file


def test_a_table_that_is_too_wide_is_printed_in_parts_that_all_name_their_rows(capsys):
    names = [f"a-run-of-a-long-name-{n}" for n in range(6)]
    draw_table(["", *names], [["truthfulness", *("0.123" for _ in names)]], gives_way=(), console=wide_console(80))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if "truth" in line] == 3 * [["truthfulness", "0.123", "0.123"]]
    assert all(any(name in line for line in lines) for name in names)


def test_columns_that_give_way_are_named(capsys):
    draw_table(("name", "x" * 30, "y" * 30), [("n", "1", "2")], gives_way=("y" * 30,), console=wide_console(50))
    shown = capsys.readouterr().out
    assert "x" * 30 in shown and f"no room for: {'y' * 30}" in shown

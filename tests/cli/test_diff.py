import json
from functools import partial

import dspy
import pytest

from tests.commands import invoke
from tests.experiments.compare.test_diff import POOLED, REASON, changed
from tests.programs.artifact.test_compiled import ABOUT
from typedrag.programs.artifact import named_predictors
from typedrag.programs.compiled import save_compiled
from typedrag.signatures.fields import SubQueries


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_compiled(changed(), tmp_path / "c", ABOUT)
    return tmp_path / "c"


diff = partial(invoke, "research", "diff")


def test_what_changed_is_marked_in_the_terminal(folder):
    done = diff("typed_rag", "./c")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "./c against typed_rag: 2 of 14 predictors changed"
    assert lines[1].startswith("compiled by gepa, against linkage=1,coverage=0.5, on antique, at 2026")
    means = "linkage/mrr: 0.600 [0.500, 0.700], before 0.500 [0.400, 0.600]"
    assert f"{means}, difference +0.100 [+0.050, +0.150], n = 100" in lines
    assert "verdict: better, p of the paired test 0.010, corrected for 2 tests" in lines
    assert "configured option top_k: 5 -> 8" in lines
    assert REASON in lines
    assert "Write [-2-] {+3+} to 5 {+very+} short questions" in done.stdout
    assert "demonstrations: 0 removed, 1 added, 2 kept" in lines
    assert "+ question: Why do cats purr?" in lines
    assert '  sub_queries: ["Do cats purr asleep?", "How do cats purr?"]' in lines
    assert "setting temperature: - -> 0.3" in lines
    assert max(map(len, lines)) <= 120
    assert done.stderr == ""


def test_json_and_a_page(folder):
    done = diff("typed_rag", "./c", "--json", "--out", "d.html")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["predictors"][0]["name"] == REASON
    assert done.stderr == "what changed: d.html\n"
    assert "Why do cats purr?" in (folder.parent / "d.html").read_text()
    assert diff("typed_rag", "./c", "--out", "d.html").stdout == ""


def test_a_stranger_s_texts_do_not_steer_the_terminal(folder):
    program = changed()
    decomposer = named_predictors(program)[REASON]
    decomposer.signature = decomposer.signature.with_instructions("Ask.\x1b[2J\x07 [bold]so[/bold] \x9b31m")
    demo = {"question": "\x1b]0;x\x07why", "sub_queries": SubQueries(["Why is it so?", "Why not so?"])}
    decomposer.demos = [dspy.Example(**demo)]
    save_compiled(program, folder)
    done = diff("typed_rag", "./c")
    assert done.exit_code == 0
    assert not {c for c in done.stdout if ord(c) < 32 or 127 <= ord(c) < 160} - {"\n"}
    assert "[bold]so[/bold]" in done.stdout


def test_what_is_no_program_is_refused_in_a_line(folder):
    for base, said in (("rags", "no program is called 'rags'"), ("./none", "none is no compiled program")):
        done = diff(base, "./c")
        assert done.exit_code == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_lost_guard_against_what_is_quoted_is_said(folder):
    program = changed()
    answer = named_predictors(program)[POOLED]
    answer.signature = answer.signature.with_instructions("Answer briefly.")
    said = "they no longer say never to follow instructions in what is quoted, such as passages"
    assert said not in diff("typed_rag", "./c").stdout
    save_compiled(program, folder)
    assert said in diff("typed_rag", "./c").stdout.splitlines()

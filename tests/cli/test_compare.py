import json

import pytest

from tests.commands import invoke
from tests.experiments.runs import question, run, write_run
from typedrag.cli.terminal import wide_console


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Runs over 24 questions; typed_rag is better by a rank, dearer, and failed twice."""
    home = tmp_path_factory.mktemp("runs")
    before = [question(i, {"mrr": 1 / (2 + i % 3), "expected_rank": 2.5}) for i in range(24)]
    after = [question(i, {"mrr": 1 / (1 + i % 3), "expected_rank": 2.0 + i % 2}, tokens=2000 + i) for i in range(22)]
    after += [question(22, answer=None), question(23, judge_failed=True)]
    other = run("other", *before, **{"dataset fingerprint": "ffff"})
    made = [run("rag", *before), run("typed_rag", *after), other]
    return [str(write_run(r, home / r.name)) for r in made]


def compared(*arguments: str) -> str:
    done = invoke("compare", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows_of(printed: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in printed.splitlines() if line.startswith("  ") and line.strip()}


def test_it_begins_with_a_sentence_and_shows_one_measure_of_each_metric(folders):
    printed = compared(*folders[:2])
    assert max(map(len, printed.splitlines()[1:])) <= 120
    assert printed.startswith("typed_rag is no better than rag by linkage (-0.0")
    assert "23 questions) and takes 1,827 more tokens an answer." in printed.splitlines()[0]
    assert "typed_rag against rag" in printed
    assert "linkage/mrr " not in printed
    score = rows_of(printed)["linkage/score"]
    assert score[1] == "23" and score[-2] == "1.000"


def test_in_80_columns_names_stay_and_numbers_give_way(folders, monkeypatch):
    monkeypatch.setattr("typedrag.cli.compare.wide_console", lambda width: wide_console(80))
    printed = compared(*folders[:2])
    lines = printed.splitlines()
    assert max(len(line) for line in lines[1:]) <= 80
    assert {"linkage/score", "cost/tokens", "cost/lm_calls", "cost/seconds"} <= rows_of(printed).keys()
    assert "corrected p" in printed and "no room for: p, n" in printed


def test_the_table_is_readable_in_120_columns(folders):
    printed = compared(*folders[:2], "--all-measures")
    assert max(map(len, printed.splitlines()[1:])) <= 120
    cells = rows_of(printed)["linkage/mrr"]
    assert cells[:4] == ["linkage/mrr", "23", "0.366", "0.601"]
    assert "+" not in cells  # of linkage the score is tested
    printed = compared(*folders[:2], "--measure", "linkage/mrr", "--measure", "cost")
    cells = next(line for line in printed.splitlines() if line.strip().startswith("linkage/mrr")).split()
    assert "+" in cells and "<0.001" in cells
    [tokens] = (line for line in printed.splitlines() if line.strip().startswith("cost/tokens"))
    assert " - " in tokens
    assert "+ better, - worse" in printed
    assert "typed_rag: 1 of 24 failed; 0 (0 %) not answered, 0 (0 %) from the LM's knowledge" in printed
    assert "rag: 0 of 24 failed; 0 (0 %) not answered" in printed
    assert "linkage/mrr over the 22 questions that both answered: +0.26" in printed
    assert "left out of linkage/mrr: 1 judge failed" in printed
    assert "left out of cost/tokens, cost/lm_calls, cost/seconds: 1 no answer" in printed


def test_subsets_on_demand_and_types_with_enough_questions(folders):
    printed = compared(*folders[:2], "--measure", "linkage/mrr", "--by", "subset", "--by", "type")
    assert max(map(len, printed.splitlines()[1:])) <= 120
    assert rows_of(printed).keys() >= {"NQ-NF", "HQA-NF"}
    assert "debate" not in rows_of(printed) and "not shown, with fewer than 5 questions: evidence-based," in printed
    assert "cost/tokens" not in printed


def test_json_for_machines(folders):
    data = json.loads(compared(*folders[:2], "--measure", "linkage/mrr", "--json"))
    assert data["runs"] == ["typed_rag"]
    [line] = data["differences"]
    assert line["verdict"] == "better"
    assert line["left_out"] == {"judge failed": 1}
    assert (line["n"], line["answered"]["n"]) == (23, 22)  # the failed answer counts as a wrong one


def test_runs_over_other_data_are_refused_unless_forced(folders):
    refused = invoke("compare", folders[0], folders[2])
    assert refused.exit_code == 2
    assert "other: another dataset fingerprint (ffff, not 0123456789ab)" in refused.stderr
    assert refused.stdout == ""
    forced = invoke("compare", folders[0], folders[2], "--force")
    assert forced.exit_code == 0
    assert "in spite of other: another dataset fingerprint" in forced.stderr

import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.commands import invoke
from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from typedrag.cli.sweep import _next_command
from typedrag.cli.terminal import wide_console
from typedrag.optimizers.sweep.space import all_knobs, sweep_schema

typedrag = partial(invoke, "sweep")


@pytest.fixture
def file(server, tmp_path, monkeypatch):
    monkeypatch.setenv("STUB", server.api_base)
    lm = {"spec": "vllm:stub", "api_base": "${STUB}", "num_retries": 0}
    values = {
        "program": {"program": "direct_lm"},
        "knobs": {"lm.temperature": [0.0, 0.5], "lm.top_p": [0.5, 1.0]},
        "objectives": ["length/score", "cost/tokens"],
        "sampler": {"name": "grid"},
        "dataset": {"name": "sample", "split": "train", "limit": 4},
        "held_out": {"limit": 3},
        "metrics": ["tiny", "length"],
        "lm": lm,
        "scorer": lm,
        "tracking": {"enabled": False},
    }
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def test_an_objective_that_no_question_can_give_is_refused_before_the_first_trial(file, server, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_text("question,gold\n" + "".join(f"Why is {n} so?,because\n" for n in range(20)))
    values = yaml.safe_load(file.read_text())
    values |= {"dataset": {"name": "file", "path": str(mine), "split": "train", "limit": 4}, "metrics": ["f1"]}
    file.write_text(yaml.safe_dump({**values, "objectives": ["f1/f1"]}))
    swept = typedrag(file, "--out", tmp_path / "out")
    assert swept.exit_code == 2 and server.calls == []
    assert "'f1' can be measured on none of the 4 questions of dataset 'file'" in swept.stderr
    assert "the file has 'question', 'gold'" in swept.stderr
    file.write_text(yaml.safe_dump({**values, "objectives": ["f1/f2"]}))
    misspelt = typedrag(file, "--out", tmp_path / "out", "--field", "answers=gold")
    assert misspelt.exit_code == 2 and server.calls == [] and "Measures: f1, score" in misspelt.stderr
    kept = [{"measure": "f1/f1", "at_least": 0}]
    file.write_text(yaml.safe_dump({**values, "objectives": ["f1/score"], "constraints": kept}))
    mapped = typedrag(file, "--out", tmp_path / "out", "--field", "answers=gold")
    assert mapped.exit_code == 0, mapped.stderr
    assert "sweep best" in mapped.stderr and "--field answers=gold" in mapped.stderr


def test_a_file_is_all_that_is_needed(file, server, tmp_path, monkeypatch):
    server.reply = lambda call: (
        {"answer": "word " * round(100 * call.request["temperature"] + 20)} if "answer" in call.wanted else None
    )
    out = tmp_path / "out"
    swept = typedrag(file, "--out", out)
    assert swept.exit_code == 0, swept.output
    assert "the front" in swept.stdout
    assert "trials: 4 complete" in swept.stderr
    asked = len(server.calls)
    again = typedrag(file, "--out", out, "--json")
    assert len(server.calls) == asked
    best = json.loads(again.stdout.splitlines()[0])
    assert best["knobs"]["lm.temperature"] == 0.5
    assert set(best["values"]) == {"length/score", "cost/tokens"}
    assert server.api_base not in (out / "sweep.yaml").read_text()

    monkeypatch.setattr("typedrag.cli.terminal.wide_console", lambda: wide_console(60))
    chosen = typedrag("best", out, "--within", "2%-of-best", "--cheapest")
    assert chosen.exit_code == 0, chosen.output
    assert {"length/score", "cost/tokens"} <= {line.split()[0] for line in chosen.stdout.splitlines() if line.strip()}
    assert "no room for: gain lost" in chosen.stdout
    assert "verdict: " in chosen.stdout
    assert "saved: " in chosen.stderr
    assert (out / "best" / "program" / "program.json").is_file()
    monkeypatch.setenv("STUB", "http://127.0.0.1:1/v1")  # a page is written from what is known
    made = typedrag("report", out, "--out", tmp_path / "page.md", "--note", "On two cores.")
    assert made.exit_code == 0, made.output
    page = (tmp_path / "page.md").read_text()
    assert "page.md --note …\n" in page and "\nOn two cores.\n\n## The front" in page
    assert "## The best, measured again" in page
    assert (out / "figures" / "history-1.png").read_bytes().startswith(b"\x89PNG")
    assert "<script" not in (out / "figures" / "figures.html").read_text()


def test_a_sweep_of_which_no_trial_keeps_to_the_constraints_says_what_to_change(file, tmp_path):
    values = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**values, "constraints": [{"measure": "cost/tokens", "at_most": 1}]}))
    swept = typedrag(file, "--out", tmp_path / "out")
    assert "sweep best" not in swept.stderr
    assert "no trial keeps to the constraints: there is no best. The nearest, trial " in swept.stderr
    assert "misses cost/tokens at most 1 by 109. Loosen the constraints" in swept.stderr
    assert "Loosen the constraints" in typedrag("best", tmp_path / "out").stderr


def test_settings_of_the_command_line_have_the_last_word(file, tmp_path):
    swept = typedrag(file, "--out", tmp_path / "out", "--set", "stop.tokens=1", "--set", "dataset.limit=2")
    assert swept.exit_code == 1
    assert "tokens are spent of the 1 allowed" in swept.stderr
    other = typedrag(file, "--out", tmp_path / "out")
    assert other.exit_code == 2
    assert "belongs to a run with another questions" in other.stderr
    assert "name another --out" in other.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nothing.yaml", "--out", "x"), "nothing.yaml cannot be read (No such file or directory). Name another file"),
        (("best", "tests", "--within", "a lot"), "'a lot' is no share of the best"),
        (("best", "tests"), "tests holds no sweep"),
        (("report", "nothing"), "does not exist"),
    ],
)
def test_bad_input_is_named(args, said):
    result = typedrag(*args)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_sweep_that_is_refused_leaves_the_file_of_the_one_before(file, tmp_path):
    out = tmp_path / "out"
    refused = typedrag(file, "--out", out, "--set", "objectives=[linkage/mrr]")
    assert refused.exit_code == 2
    assert not (out / "sweep.yaml").exists()
    assert typedrag(file, "--out", out, "--set", "stop.trials=1", "--set", "dataset.limit=2").exit_code == 0
    kept = (out / "sweep.yaml").read_text()
    values = yaml.safe_load(kept)
    file.write_text(yaml.safe_dump({**values, "name": "other", "knobs": {"lm.temperature": [0.5]}}))
    for changed in (["--set", "objectives=[linkage/mrr]"], ["--set", "name=sweep"]):
        assert typedrag(file, "--out", out, *changed).exit_code == 2
        assert (out / "sweep.yaml").read_text() == kept


def test_the_next_command_is_of_the_same_study_and_tells_no_password(file, tmp_path):
    out, limits = tmp_path / "out", ("--set", "stop.trials=1", "--set", "dataset.limit=2")
    swept = typedrag(file, "--out", out, *limits)
    assert f"next: typedrag sweep best {out} --set stop.trials=1 --set dataset.limit=2\n" in swept.stderr
    url = "postgresql://me:secret@localhost/sweeps"
    for given in ((url, ()), (None, (f"storage={url}",))):
        assert _next_command(Path("a b"), *given, {}) == "typedrag sweep best 'a b' --storage …"


def test_the_schema_is_closed_and_documents_every_setting():
    schema = json.loads(typedrag("--schema").stdout)
    assert schema == sweep_schema()
    for part in (schema, *schema["$defs"].values()):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, part["title"]
            for name, setting in part["properties"].items():
                meant = schema["$defs"].get(setting.get("$ref", "").removeprefix("#/$defs/"), setting)
                assert setting.get("description") or meant["description"], f"{part.get('title')}.{name}"
    knobs = schema["properties"]["knobs"]["properties"]
    assert knobs.keys() == all_knobs().keys()
    assert knobs["top_k"]["description"] == "By default 1 to 20."


def test_all_knobs_are_listed_with_their_ranges():
    listed = typedrag("--knobs").stdout.splitlines()
    assert "top_k: 1 to 20" in listed
    assert "bm25.k1: 0.4 to 2" in listed
    assert "reranker: none, bi-encoder" in listed
    assert "by_type.debate.top_k: 1 to 20" in listed
    assert "lm.adapter: schema, json, chat" in listed
    assert "optimizer: no values of its own" in listed

"""RichRAG's explorer, compiled by name."""

from pathlib import Path

from click.testing import CliRunner

from tests.datasets.files import write_jsonl
from tests.lm_server import Call
from typedrag.cli.main import cli
from typedrag.programs.compiled import Compiled

ASPECTS = ["early life", "career", "death"]


def explore(call: Call):
    """Knows what is wanted once it is shown."""
    if "sub_aspects" not in call.wanted:
        return None
    shown = "".join(message["content"] for message in call.request["messages"])
    return {"sub_aspects": ASPECTS if "early life" in shown else ["equipment", "costs"]}


def test_the_explorer_is_compiled_alone(server, tmp_path, monkeypatch, sample_index, sample_retriever):
    server.reply = explore
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    monkeypatch.chdir(tmp_path)
    targets = [[aspect, f"about the {aspect} ."] for aspect in ASPECTS]
    rows = [{"exid": f"train-2-{n}", "inputs": [], "targets": targets, "title": f"Artist {n}"} for n in range(40)]
    write_jsonl(Path("Artist", "train.jsonl"), *rows)
    done = CliRunner().invoke(
        cli,
        ["compile", "--no-tracking", "--program", "richrag", "--module", "sub-aspect-explorer-alone", "--dataset",
         "wikiasp", "--path", "Artist", "--lm", "vllm:stub", "--optimizer", "dspy:LabeledFewShot", "--out", "out"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "verdict: better: +1.000 [+1.000, +1.000] on 10 test questions" in done.stdout
    program = Compiled.read(Path("out/program")).build(sample_retriever)
    assert {tuple(demo.sub_aspects) for demo in program.strategy.explorer.predict.demos} == {tuple(ASPECTS)}
    assert all(call.wanted == ("sub_aspects",) for call in server.calls)

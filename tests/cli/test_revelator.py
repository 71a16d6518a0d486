from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner
from dspy.utils.exceptions import LMTransportError

from tests.optimizers.revelator.conftest import base, data, dataset  # noqa: F401
from typedrag.cli.main import cli


def run(*arguments):
    return CliRunner().invoke(cli, ["revelator", *(str(argument) for argument in arguments)])


def test_train_then_evaluate_what_was_trained(base, data, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    made = run("train", data, "--base", base, "--out", out, "--max-steps", 2, "--batch-size", 2, "--no-merge", "--json")
    assert made.exit_code == 0, made.stderr
    said = json.loads(made.stdout)
    assert said["steps"] == 2 and said["folder"] == str(out)
    assert "loss" in made.stderr
    measured = run(
        "evaluate", data, "--model", out / "adapter", "--role", "ending", "--part", "all", "--limit", 1,
        "-o", "retries=0", "--json",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.stderr
    [score] = json.loads(measured.stdout)
    assert (score["role"], score["n"]) == ("ending", 1)


def test_a_killed_evaluation_of_a_model_goes_on_and_another_model_is_asked_anew(base, data, tmp_path, monkeypatch):  # noqa: F811
    from typedrag.optimizers.revelator import local_lm

    monkeypatch.setenv("TYPEDRAG_CACHE", str(tmp_path / "cache"))
    complete, asked = local_lm._Engine.complete, []

    def dies_at_the_third(engine, request):
        asked.append(request)
        if len(asked) == 3:
            raise LMTransportError("gone")
        return complete(engine, replace(request, config=replace(request.config, max_tokens=4)))

    monkeypatch.setattr(local_lm._Engine, "complete", dies_at_the_third)

    def evaluate(model):
        return run(
            "evaluate", data, "--model", model, "--role", "ending", "--part", "all", "--limit", 4, "--threads", 1,
            "-o", "retries=0", "--json",
        )  # fmt: skip

    assert evaluate(base).exit_code != 0 and len(asked) == 3
    finished = evaluate(base)
    assert finished.exit_code == 0, finished.stderr
    assert len(asked) == 5  # the one that died and the fourth
    assert evaluate(base).stdout == finished.stdout and len(asked) == 5
    other = shutil.copytree(base, tmp_path / base.name)
    (other / "README.md").write_text("Trained anew.")
    assert evaluate(other).exit_code == 0 and len(asked) == 9


def test_the_rule_needs_no_lm(data):  # noqa: F811
    measured = run("evaluate", data, "--role", "router", "--part", "all", "-o", "hanrag.router=rule")
    assert measured.exit_code == 0, measured.stderr
    assert "macro-F1" in measured.stdout and "router" in measured.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--role", "king"), "no role is called 'king'"),
        (("--program", "direct_lm"), "has no revelator"),
        (("-o", "hanrag.route=x"), "there is no option 'hanrag.route'"),
    ],
)
def test_what_cannot_be_is_refused(data, arguments, said):  # noqa: F811
    refused = run("evaluate", data, *arguments)
    assert refused.exit_code == 2 and said in refused.stderr

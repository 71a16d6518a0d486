import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

from tests.commands import invoke
from tests.lm_server import lm_server
from tests.optimizers.revelator.conftest import base, data, dataset  # noqa: F401
from tests.scripted import gone
from typedrag.lms.lm import open_lm

run = partial(invoke, "research", "revelator")


def test_train_then_evaluate_what_was_trained(base, data, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    made = run("train", data, "--base", base, "--out", out, "--max-steps", 2, "--batch-size", 2, "--no-merge", "--json")
    assert made.exit_code == 0, made.stderr
    said = json.loads(made.stdout)
    assert said["steps"] == 2 and said["folder"] == str(out)
    assert "loss" in made.stderr
    measured = run(
        "evaluate", data, "--model", out / "adapter", "--role", "ending", "--split", "all", "--limit", 1,
        "-o", "retries=0", "--json",
    )  # fmt: skip
    assert measured.exit_code == 0, measured.stderr
    score = json.loads(measured.stdout)
    assert (score["role"], score["n"]) == ("ending", 1)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ("alpha=3", "alpha is no setting. Did you mean 'lora_alpha'?"),
        ("lora_rank=0", "lora_rank is refused"),
        ("warmup=1", "warmup is refused"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(base, data, tmp_path, other, problem):  # noqa: F811
    refused = run("train", data, "--base", base, "--out", tmp_path / "out", "--set", other)
    assert refused.exit_code == 2 and problem in refused.stderr
    assert not (tmp_path / "out").exists()


def test_a_killed_evaluation_of_a_model_goes_on_and_another_model_is_asked_anew(base, data, tmp_path, monkeypatch):  # noqa: F811
    from typedrag.optimizers import revelator

    monkeypatch.setenv("TYPEDRAG_CACHE", str(tmp_path / "cache"))
    complete, asked = revelator._Engine.complete, []

    def dies_at_the_third(engine, request):
        asked.append(request)
        if len(asked) == 3:
            raise gone()
        return complete(engine, replace(request, config=replace(request.config, max_tokens=4)))

    monkeypatch.setattr(revelator._Engine, "complete", dies_at_the_third)

    def evaluate(model):
        return run(
            "evaluate", data, "--model", model, "--role", "ending", "--split", "all", "--limit", 4, "--threads", 1,
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
    measured = run("evaluate", data, "--role", "router", "--split", "all", "-o", "hanrag.router=rule")
    assert measured.exit_code == 0, measured.stderr
    assert "macro-F1" in measured.stdout and "router" in measured.stdout


@pytest.fixture
def evaluate_one(data, server, monkeypatch):  # noqa: F811
    """Measures one row with a revelator of the program's own at `server`; no other LM is opened by default."""

    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.setenv("TYPEDRAG_LM", "embedded:nothing")
    monkeypatch.setattr("typedrag.lms.lm._open_once", open_lm)  # what is kept of another test has its server

    def evaluate(*arguments):
        row = ("--role", "ending", "--split", "all", "--limit", 1, "-o", "retries=0")
        return run("evaluate", data, *row, "-o", "hanrag.revelator_lm=vllm:stub", *arguments)

    return evaluate


def test_the_programs_own_revelator_is_measured_where_no_lm_is_named(evaluate_one, server):
    measured = evaluate_one()
    assert measured.exit_code == 0, measured.stderr
    assert len(server.calls) == 1


def test_an_lm_that_is_named_is_measured_in_the_place_of_the_programs(evaluate_one, server):
    with lm_server() as other:
        measured = evaluate_one("--lm", "vllm:stub", "--api-base", other.api_base)
    assert measured.exit_code == 0, measured.stderr
    assert len(other.calls) == 1 and not server.calls


def test_an_address_of_no_named_lm_is_refused(evaluate_one):
    refused = evaluate_one("--api-base", "http://127.0.0.1:9/v1")
    assert refused.exit_code == 2 and "the program's revelator is 'vllm:stub'" in refused.stderr


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

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlflow
import optuna
import pytest
from optuna.distributions import IntDistribution
from optuna.trial import create_trial

from tests.lm_server import words
from tests.mlflow_stores import new_store
from tests.optimizers.sweep.conftest import LOOSE, long_where_few
from typedrag.core.errors import InputError, TypedRAGError
from typedrag.experiments.config import SpendingCaps
from typedrag.experiments.loading import load_program
from typedrag.experiments.results import read_run
from typedrag.optimizers.sweep import SweepConfig, open_sweep
from typedrag.optimizers.sweep.best import choose, measure_best
from typedrag.optimizers.sweep.config import ObjectiveConfig
from typedrag.optimizers.sweep.report import front_rows, sweep_page
from typedrag.optimizers.sweep.study import VALUES, Sweep
from typedrag.programs.compiled import Compiled


def test_the_best_is_measured_on_other_questions_and_saved(sweep, server, sample_index, tmp_path):
    server.reply = long_where_few
    given = {
        "program": {**LOOSE, "retriever": "auto"},
        "knobs": {"top_k": [1, 5], "bm25.b": [0.75, 0.4]},
        "metrics": ["length", "defects"],
        "lm": {"adapter": "json"},
        "dataset": {"split": "validation", "limit": 4},
        "held_out": {"split": "test", "limit": 5},
        "tracking": {"enabled": True, "uri": new_store(tmp_path / "mlflow")},
    }
    held = sweep(**given)
    found = measure_best(held, choose(held))
    page = sweep_page(held, "typedrag sweep report sweep")
    keys = [key for *_, key in held.questions.values()]
    assert len(set(keys)) == 4 and not any(key.endswith("?") for key in keys)
    first = found.measured[0]
    assert found.point["top_k"] == 1
    assert first.measure == "length/score"
    assert (first.held_out.n, first.base_held_out.n, first.in_sample.n) == (4, 4, 3)  # debates have no length
    assert first.gain_held_out.value == pytest.approx(first.held_out.value - first.base_held_out.value)
    assert first.gain_held_out.value > 0
    assert first.gap.value == pytest.approx(first.gain_in_sample.value - first.gain_held_out.value)
    kept = json.loads((tmp_path / "sweep" / "best" / "best.json").read_text())
    assert kept["measured"][0]["held_out"]["value"] == first.held_out.value

    saved = Compiled.read(found.folder)
    assert (saved.program, saved.options.top_k, saved.options.score_cutoff) == ("rag", 1, 0)
    assert saved.bm25 == {"b": found.point["bm25.b"]}
    assert saved.retriever == "auto"
    assert saved.about.lms["task"]["adapter"] == "json"
    assert saved.about.optimizer == "sweep"
    assert saved.about.compiled["length/score"].n == 4
    assert load_program(found.folder, index=sample_index).retriever.b == found.point["bm25.b"]

    besides = page.partition("## Measured besides\n\n")[2].partition("\n## ")[0].splitlines()
    assert besides[0].startswith("| trial | top_k | bm25.b | length/share | defects/repeated_sentences |")
    assert not any(shown in besides[0] for shown in ("length/score", "objective", "cost"))
    assert len(besides) > 2 + 1 and all(row.count("|") == besides[0].count("|") for row in besides if row)
    headings = ("# Sweep: sweep", "## The front", "## What mattered", "## The best, measured again")
    for said in (*headings, "by question type", "Pruned ones have answered the first questions alone;"):
        assert said in page
    runs = mlflow.search_runs(output_format="list")
    [parent] = [r for r in runs if r.data.tags["kind"] == "sweep"]
    assert parent.data.metrics["best/length/score/held-out"] == first.held_out.value
    assert parent.data.tags["stopped"] == "no"
    calls, prompts, replies = (
        parent.data.metrics[f"spent/{name}"] for name in ("lm_calls", "prompt_tokens", "completion_tokens")
    )
    assert prompts == 100 * calls > 0 and replies == 10 * calls
    nested = [r for r in runs if r.data.tags.get("mlflow.parentRunId")]
    assert {r.data.tags["mlflow.parentRunId"] for r in nested} == {parent.info.run_id}
    assert len(nested) == 4
    assert {r.data.params["knobs.top_k"] for r in nested} == {"1", "5"}
    assert all("length/share" in r.data.metrics for r in nested)
    files = {f.path for f in mlflow.MlflowClient().list_artifacts(parent.info.run_id)}
    assert files >= {"figures.html", "history.png", "slices.png", "importances.png", "trials.json", "best"}
    assert {f.path for f in mlflow.MlflowClient().list_artifacts(nested[0].info.run_id)} >= {"questions.json"}


def test_a_cheaper_one_that_is_nearly_as_good_can_be_chosen(sweep, server):
    server.reply = lambda call: (
        {"answer": words(round(100 + 10 * call.request["temperature"]))} if "answer" in call.wanted else None
    )
    given = {
        "program": {"program": "direct_lm"},
        "knobs": {"lm.temperature": [0.0, 0.5, 1.0]},
        "objectives": ["length/score", {"measure": "length/share", "direction": "minimize"}],
        "dataset": {"limit": 2},
    }
    held = sweep(**given)
    assert choose(held).point == {"lm.temperature": 1.0}
    assert choose(held, within=0.02, cheapest=True).point == {"lm.temperature": 1.0}
    near = choose(held, within=0.06, cheapest=True)
    assert near.point in ({"lm.temperature": 0.5}, {"lm.temperature": 1.0})
    assert "the cheapest within 0.06 of the best" in near.chosen
    assert choose(held, number=0).trial == 0
    with pytest.raises(InputError, match="trial 77 is not complete"):
        choose(held, number=77)


def of_trials(*trials):
    """A sweep over knob top_k with these complete trials: the value that Optuna was told, and tokens an answer."""
    study = optuna.create_study(direction="maximize")
    for number, (value, tokens) in enumerate(trials):
        values = {"length/score": [0.0, 2 * value] * 5, "cost/tokens": [tokens] * 10}
        dist = {"top_k": IntDistribution(0, 9)}
        study.add_trial(
            create_trial(value=value, params={"top_k": number}, distributions=dist, user_attrs={VALUES: values})
        )
    config = SimpleNamespace(objectives=[ObjectiveConfig(measure="length/score")])
    parts = SimpleNamespace(config=config, space=SimpleNamespace(distributions={"top_k": None}), out=Path())
    return Sweep(parts, study, {})


@pytest.mark.parametrize(("questions", "interval"), [(2, "0.500 (n = 2 questions)"), (10, "0.500 [0.100, 0.900]")])
def test_the_intervals_of_the_front_rest_on_questions_whatever_their_ids(questions, interval):
    of_ids = {f"q{n}": ["reason", "", f"why {n % questions}"] for n in range(10)}
    held = replace(of_trials((0.5, 10)), questions=of_ids)
    assert list(front_rows(held))[1][:3] == ["0", "0", interval]


def test_the_best_is_measured_to_the_end_however_many_answers_fail(sweep, server, tmp_path):
    rows = [{"id": f"q{n}", "question": f"Why does thing {n} happen?", "question_type": "reason"} for n in range(60)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = {
        "program": {"program": "direct_lm"},
        "knobs": {"lm.temperature": [0.0, 0.5]},
        "dataset": {"name": "file", "path": tmp_path / "questions.jsonl", "split": "train", "limit": 2},
        "held_out": {"limit": 15},
        "threads": 1,
    }
    held = sweep(**given)
    told = []
    server.reply = lambda call: (400, "too long") if "answer" in call.wanted and len(server.calls) % 2 else None
    found = measure_best(held, choose(held, number=1), on_notice=told.append)
    assert any("of 15 questions have no answer" in notice for notice in told)
    runs = [read_run(f) for f in (found.folder.parents[1] / "held-out").iterdir() if f.name.endswith("-test")]
    assert all(len(run.questions) == 15 for run in runs)
    answered = [{q.id for q in run.questions if q.answer} for run in runs]
    both = answered[0] & answered[1]
    first = found.measured[0]
    assert found.settings["n"] == first.gain_held_out.n == 15 > len(both) > 0
    assert first.gain_answered.n == len(both)


def test_limits_hold_while_the_best_is_measured(sweep, server):
    data = {"dataset": {"split": "validation", "limit": 2}, "held_out": {"limit": 2}}
    given = {"knobs": {"top_k": [1]}, "metrics": ["length"], "scorer": None, "threads": 1, **data}
    held = sweep(**given)
    before = len(server.calls)
    for _ in range(2):
        with pytest.raises(TypedRAGError, match=r"1 LM calls are made of the 1 allowed\. Allow more"):
            measure_best(held, choose(held), caps=SpendingCaps(lm_calls=1))
        assert len(server.calls) == before + 1
    assert measure_best(held, choose(held)).settings["n"] == 2


def test_of_no_trials_there_is_no_best(settings, tmp_path):
    config = SweepConfig.model_validate(settings())
    with open_sweep(config, tmp_path) as held, pytest.raises(InputError, match="no trial is complete"):
        choose(held)

import json

import mlflow
import pytest

from tests.experiments.tiny import ShortIsTrue
from tests.mlflow_stores import new_store
from tests.optimizers.sweep.conftest import LOOSE, long_where_few
from typedrag.metrics.metric import _METRICS
from typedrag.optimizers.sweep import SweepConfig, SweepProgress
from typedrag.optimizers.sweep.best import choose, measure_best
from typedrag.optimizers.sweep.report import sweep_page
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.programs.compiled import Compiled

LINKAGE = {"metrics": ["linkage"], "objectives": ["linkage/mrr"]}
TRUE = {
    "metrics": ["linkage", "truthfulness"],
    "constraints": [{"measure": "truthfulness/truthfulness", "at_least": 0}],
}


@pytest.fixture
def long_is_wrong(monkeypatch, server):
    """Answers from one passage are longer than those from five, and wrong."""
    monkeypatch.setitem(_METRICS._classes, "truthfulness", ShortIsTrue)
    monkeypatch.setattr(ShortIsTrue, "most", 300)
    server.reply = long_where_few


def parts(settings, tmp_path, **given):
    config = {name: value for name, value in settings(**given).items() if value is not None}
    return SweepResources(SweepConfig.model_validate(config), tmp_path)


def test_what_is_looked_for_by_default_is_a_mix_with_truthfulness(settings, tmp_path):
    made = parts(settings, tmp_path, metrics=None, objectives=None)
    assert made.config.weights == {"truthfulness": 1.0, "linkage": 1.0, "coverage": 1.0}
    assert [o.measure for o in made.config.objectives] == ["objective/score"]
    assert made.risk == ""


@pytest.mark.parametrize(
    ("given", "risky"),
    [
        (LINKAGE, "linkage"),
        ({**LINKAGE, "objectives": ["objective/score"]}, "linkage"),
        ({"metrics": ["linkage", "truthfulness"], "objectives": ["linkage/mrr"]}, "linkage"),
        ({"metrics": ["linkage", "truthfulness"], "objectives": ["objective/score", "cost/tokens"]}, ""),
        ({**LINKAGE, **TRUE}, ""),
        ({"compile": {"optimizers": {"dspy:COPRO": {}}, "metrics": ["coverage"]}}, "coverage"),
        ({"compile": {"optimizers": {"dspy:COPRO": {}}}}, ""),
    ],
)
def test_what_is_looked_for_without_truthfulness_says_what_that_risks(settings, tmp_path, given, risky):
    risk = parts(settings, tmp_path, **given).risk
    assert risk.startswith(f"{risky} without truthfulness pays") if risky else not risk


def sweep_in_mlflow():
    """The parent run of the one sweep that was logged."""
    [parent] = [r for r in mlflow.search_runs(output_format="list") if r.data.tags["kind"] == "sweep"]
    return parent


def test_the_best_is_not_better_if_its_answers_are_less_truthful(sweep, long_is_wrong, tmp_path):
    given = {
        "program": LOOSE,
        "knobs": {"top_k": [1, 5]},
        "scorer": None,
        "metrics": ["length"],
        "dataset": {"split": "validation", "limit": 4},
        "held_out": {"split": "test", "limit": 8},
        "tracking": {"enabled": True, "uri": new_store(tmp_path / "mlflow")},
    }
    held = sweep(**given)
    found = measure_best(held, choose(held))
    page = sweep_page(held, "typedrag sweep report sweep")
    assert found.point["top_k"] == 1
    names = ["length/score", "truthfulness/truthfulness", "truthfulness/right"]
    assert [m.measure for m in found.measured[:3]] == names
    assert (found.truth.value, found.truth.n, found.verdict) == (-2, 6, "less truthful")
    assert "NOT BETTER, for answers are less truthful, by -2.000 (n = 6 questions)." in page
    assert json.loads((tmp_path / "sweep" / "best" / "best.json").read_text())["verdict"] == "less truthful"
    assert Compiled.read(found.folder).about.verdict == "less truthful"
    parent = sweep_in_mlflow()
    assert parent.data.tags["verdict"] == "less truthful"
    assert parent.data.metrics["best/truthfulness/truthfulness/gain-held-out"] == -2


def test_the_risk_is_told_at_the_beginning_and_stays_with_the_sweep(sweep, server, tmp_path):
    references = [{"text": f"Reference {n}.", "label": n} for n in range(3)]
    rows = [{"question": f"Why {n}?", "question_type": "reason", "references": references} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = {
        **LINKAGE,
        "knobs": {"top_k": [1, 3]},
        "dataset": {"name": "file", "path": tmp_path / "rows.jsonl", "split": "train", "limit": 1},
        "tracking": {"enabled": True, "uri": new_store(tmp_path / "mlflow")},
    }
    told = []
    swept = sweep(**given, watching=SweepProgress(notice=told.append))
    risk = swept.parts.risk
    assert told[0] == risk
    assert f"**Beware:** {risk}." in sweep_page(swept, "typedrag sweep report sweep")
    assert sweep_in_mlflow().data.tags["risk"] == risk

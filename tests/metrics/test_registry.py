from __future__ import annotations

import json
import subprocess
import sys

from typedrag.metrics import build_metric, metric_class, metric_names

WITHOUT_LM = {
    "accuracy",
    "bertscore",
    "com-rouge",
    "defects",
    "exact-match",
    "f1",
    "label",
    "question-type",
    "retrieval",
    "rewrite",
    "rouge",
    "similarity",
    "steps",
    "truthfulness",
}


def test_metrics_are_found_by_name() -> None:
    assert set(metric_names()) >= WITHOUT_LM
    assert all(metric_class(name).__doc__ for name in metric_names())


def test_these_need_no_scorer() -> None:
    assert all(build_metric(name).scorer is None for name in WITHOUT_LM)


def test_knowing_them_loads_nothing_heavy() -> None:
    heavy = ["bert_score", "ir_measures", "mlflow", "pandas", "rapidfuzz", "rouge_score", "scipy", "sklearn", "torch"]
    code = f"import json, sys, typedrag.metrics; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []

from __future__ import annotations

from pathlib import Path

import pytest

from tests.datasets.files import write_questions
from typedrag.experiments.build import Parts
from typedrag.experiments.config import EvaluationConfig


def parts_of(path: Path, metric: str = "f1", **dataset) -> Parts:
    config = EvaluationConfig.model_validate(
        {"programs": [{"program": "direct_lm"}], "dataset": {"path": path, **dataset}, "metrics": [metric]}
    )
    return Parts(config, path / "judgments.sqlite", lambda: path)


@pytest.mark.parametrize("name", ["musique", "hotpotqa", "2wikimultihopqa", "wikipassageqa", "researchy-questions"])
def test_what_is_for_training_is_not_asked_by_default(tmp_path, name):
    tested = "test" if name == "researchy-questions" else "dev"
    asked = [(f"Why is {n} so?", "train" if n < 40 else tested) for n in range(60)]
    folder = write_questions(name, tmp_path, asked)
    drawn = parts_of(folder, name=name, limit=20)
    assert {e.question for e in drawn.examples} == {question for question, _ in asked[40:]}
    assert drawn.split == "test"
    assert "train" in {e.subset for e in parts_of(folder, name=name, split="all", limit=20).examples}
    assert {e.subset for e in parts_of(folder, name=name, subset="train").examples} == {"train"}

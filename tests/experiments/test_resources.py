import json
from pathlib import Path

import pytest

from tests.datasets.files import write, write_questions
from typedrag.core.errors import InputError
from typedrag.experiments.config import EvaluationConfig
from typedrag.experiments.resources import Resources, with_fingerprints


def parts_of(path: Path, metric: str = "f1", **dataset) -> Resources:
    config = EvaluationConfig.model_validate(
        {"programs": [{"program": "direct_lm"}], "dataset": {"path": path, **dataset}, "metrics": [metric]}
    )
    return Resources(config, path.parent / "judgments.sqlite")


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


def test_a_metric_that_no_question_can_give_is_refused_with_the_columns(tmp_path):
    file = write(tmp_path / "mine.csv", "question,gold\nWhy?,so\nHow?,thus\n")

    def refused(metric: str, *measures: str, **dataset) -> str:
        with pytest.raises(InputError) as caught:
            parts_of(file, metric, name="file", **dataset).check_measurable(measures)
        return str(caught.value)

    said = refused("f1")
    assert said.startswith(
        "'f1' can be measured on none of the 2 questions of dataset 'file': the question has neither"
    )
    assert (
        "the file has 'question', 'gold'; what can be read is question, id," in said and "--field NAME=COLUMN" in said
    )
    parts_of(file, name="file", fields={"answers": "gold"}).check_measurable(["f1/score"])
    parts_of(file, "similarity", name="file").check_measurable(["similarity/question"])
    assert "'similarity/reference' can be measured on none" in refused("similarity", "similarity/reference")


def test_a_measure_that_a_metric_has_not_is_refused_with_those_that_it_has(tmp_path):
    parts = parts_of(write(tmp_path / "mine.csv", "question,answers\nWhy?,so\n"), "accuracy", name="file")
    parts.check_measurable(["accuracy/accuracy", "accuracy/score", "cost/tokens"])
    for measure in ("acuracy", "entity_accuracy"):  # the latter is one of many answers together
        with pytest.raises(InputError, match=rf"no measure '{measure}' of an answer\. Measures: accuracy, score"):
            parts.check_measurable([f"accuracy/{measure}"])


def test_an_lm_that_was_trained_anew_in_its_place_is_another(tmp_path):
    def files() -> dict[str, str] | None:
        config = EvaluationConfig.model_validate(
            {
                "programs": [{"program": "direct_lm"}],
                "lm": {"spec": f"vllm:{tmp_path / 'base'}+cook={tmp_path / 'lora'}"},
                "dataset": {"name": "file"},
                "metrics": ["f1"],
            }
        )
        return Resources(config, tmp_path).answer_settings(config.programs[0]).get("model files")

    assert files() is None  # names of the hub
    for name in ("base", "lora"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "model.safetensors", "weights")
    before = files()
    assert before and set(before) == {str(tmp_path / "base"), str(tmp_path / "lora")}
    write(tmp_path / "lora" / "model.safetensors", "others!")
    after = files()
    assert after and [name for name in after if after[name] != before[name]] == [str(tmp_path / "lora")]


def test_nuggets_of_a_file_are_known_by_what_they_say_and_not_by_where_they_lie(tmp_path):
    one, moved, edited = (tmp_path / f"{name}.jsonl" for name in ("one", "moved", "edited"))
    for file, text in ((one, "It is so."), (moved, "It is so."), (edited, "It is otherwise.")):
        file.write_text(json.dumps({"question": "Why?", "nuggets": [{"text": text}]}))
    options = [with_fingerprints("nuggets", {"file": str(file), "make": "embedding"}) for file in (one, moved, edited)]
    assert options[0] == options[1] != options[2]
    assert options[0]["make"] == "embedding" and "jsonl" not in options[0]["file"]

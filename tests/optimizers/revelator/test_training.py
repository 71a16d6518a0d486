import json
from dataclasses import replace

import dspy
import pytest

from typedrag.core.errors import InputError, LMUnavailable
from typedrag.lms.adapter import SchemaAdapter
from typedrag.optimizers.revelator import (
    ADAPTER,
    CHECKPOINTS,
    MODEL,
    REPORT,
    open_local_lm,
    train_revelator,
)
from typedrag.optimizers.revelator_settings import TrainingSettings

QUICK = TrainingSettings(max_steps=40, learning_rate=1e-2, batch_size=4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, base, dataset):
    from tests.programs.passages import Numbered
    from typedrag.programs import HANRAG

    steps, out = [], tmp_path_factory.mktemp("trainings") / "first"
    made = train_revelator(str(base), dataset, HANRAG(Numbered()), out, QUICK, on_step=steps.append)
    assert [loss.step for loss in steps] == list(range(1, 41)) and {loss.steps for loss in steps} == {40}
    return made


def test_the_loss_on_rows_not_trained_on_goes_down(trained, dataset):
    assert trained.loss_after < trained.loss_before - 0.5
    assert trained.steps == 40 and trained.left_out == 0
    assert trained.rows == len(dataset.split("train")) < len(dataset.examples)


def test_what_is_saved_are_safetensors_and_a_report(trained):
    from safetensors.torch import load_file

    weights = load_file(trained.folder / ADAPTER / "adapter_model.safetensors")
    assert weights and all("lora_" in name for name in weights)
    assert any(float(w.abs().sum()) > 0 for name, w in weights.items() if "lora_B" in name)  # they start as zeros
    assert (trained.folder / MODEL / "model.safetensors").is_file()
    report = json.loads((trained.folder / REPORT).read_text())
    assert report["loss_after"] == trained.loss_after and report["settings"]["max_steps"] == 40
    assert not list(trained.folder.rglob("*.pkl"))


def test_adapter_and_merged_model_reply_the_same(trained, program):
    """Both can be loaded, and asked by the program."""
    said = []
    for folder in (MODEL, ADAPTER):
        lm = open_local_lm(trained.folder / folder, max_tokens=12)
        with dspy.context(lm=lm, adapter=SchemaAdapter()):
            [output] = lm("How long is the Forth Bridge?")
            said.append(output)
    assert said[0] == said[1]


def test_a_folder_holds_one_training(trained, base, dataset, program, tmp_path):
    with pytest.raises(InputError, match=r"holds a run\. Continue it with --resume"):
        train_revelator(str(base), dataset, program, trained.folder, QUICK)
    assert train_revelator(str(base), dataset, program, trained.folder, QUICK, resume=True) == trained
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(InputError, match="is in use"):
        train_revelator(str(base), dataset, program, tmp_path / "full", QUICK)


def test_a_killed_training_goes_on_from_its_checkpoint(trained, base, dataset, program, tmp_path):
    def kill(loss):
        if loss.step == 25:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        train_revelator(str(base), dataset, program, out, QUICK, on_step=kill)
    assert [folder.name for folder in (out / CHECKPOINTS).iterdir()] == ["checkpoint-24"]  # a tenth is 4 steps
    with pytest.raises(InputError, match="--resume"):
        train_revelator(str(base), dataset, program, out, QUICK)
    other = QUICK.model_copy(update={"lora_rank": 4})
    with pytest.raises(InputError, match=r"another settings.lora_rank \(8, now 4\)"):
        train_revelator(str(base), dataset, program, out, other, resume=True)
    torn = out / CHECKPOINTS / "checkpoint-30"  # as another kill would leave it
    torn.mkdir()
    (torn / "adapter_model.safetensors").write_bytes(b"half of")
    steps = []
    resumed = train_revelator(str(base), dataset, program, out, QUICK, resume=True, on_step=steps.append)
    assert [loss.step for loss in steps] == list(range(25, 41))
    assert resumed.loss_after == pytest.approx(trained.loss_after, rel=1e-3)  # as if it had not been killed
    assert resumed.loss_before == trained.loss_before


def test_a_base_that_is_none_and_data_without_rows_are_refused(dataset, program, tmp_path, base):
    (tmp_path / "none").mkdir()
    with pytest.raises(LMUnavailable, match="cannot be loaded"):
        train_revelator(str(tmp_path / "none"), dataset, program, tmp_path / "a", QUICK)
    short = QUICK.model_copy(update={"max_tokens": 3})
    with pytest.raises(InputError, match="no row to train on"):
        train_revelator(str(base), dataset, program, tmp_path / "b", short)
    only_test = replace(dataset, examples=tuple(dataset.split("test")))
    with pytest.raises(InputError, match="no row to train on"):
        train_revelator(str(base), only_test, program, tmp_path / "c", QUICK)
    with pytest.raises(LMUnavailable, match=r"the LM in .* cannot be loaded"):
        open_local_lm(tmp_path / "none")

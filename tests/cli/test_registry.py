import json
import shlex
from functools import partial

import pytest

from tests.commands import invoke
from tests.experiments.compiles import about, register
from tests.mlflow_stores import new_store
from tests.programs.artifact.test_compiled import compiled
from typedrag.experiments.loading import read_program
from typedrag.programs import Options
from typedrag.programs.compiled import save_compiled

mlflow = pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two versions of `answers`, of which the second is worse than the first."""
    home = tmp_path_factory.mktemp("registry")
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    uri = new_store(home / "store")
    for number, said in enumerate([about(0.6, metric="linkage=1\x1b[2J"), about(0.55)], 1):
        register(uri, home / str(number), "answers", said, top_k=number)
    register(uri, home / "better", "answers", about(0.62, metric="linkage=1\x1b[2J"), top_k=5)
    yield uri
    mlflow.set_tracking_uri(before)


registry = partial(invoke, "registry")


def test_what_is_registered_is_a_table(store):
    done = registry("list", "--tracking-uri", store)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[1].split() == "name version aliases program against before compiled verdict created".split()
    rows = [line.split() for line in lines if line.strip().startswith("answers")]
    assert [row[1] for row in rows] == ["1", "2", "3"]
    assert "0.500 [0.400, 0.600]" in done.stdout
    assert "0.620 [0.520, 0.720]" in done.stdout
    assert "2026-11-21" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, lines)) <= 140
    assert done.stderr == ""


def test_an_alias_goes_from_one_version_to_a_better_one(store):
    done = registry("promote", "answers", 1, "--tracking-uri", store)
    assert (done.exit_code, done.stdout) == (0, "models:/answers@champion is version 1; before: none\n")
    done = registry("promote", "answers", 3, "--tracking-uri", store)
    assert (done.exit_code, done.stdout) == (0, "models:/answers@champion is version 3; before: version 1\n")
    listed = registry("list", "--tracking-uri", store).stdout
    assert [line.split()[2] for line in listed.splitlines() if "champion" in line] == ["champion"]
    refused = registry("promote", "answers", 2, "--tracking-uri", store)
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "do not compare (0.550 on 100 questions and 0.620 on 100 questions)" in refused.stderr
    forced = registry("promote", "answers", 2, "--tracking-uri", store, "--force", "--json")
    assert json.loads(forced.stdout)["before"] == 3
    assert "in spite of this: its score" in forced.stderr


def test_what_is_not_there_is_refused_in_a_line(store, tmp_path):
    for arguments, said in (
        (("promote", "none", 1, "--tracking-uri", store), "no registered model is called 'none'. There are: answers"),
        (("promote", "answers", 0, "--tracking-uri", store), "0 is not in the range"),
        (("list", "--tracking-uri", f"sqlite:///{tmp_path}/none.db"), "MLflow keeps nothing at"),
    ):
        done = registry(*arguments)
        assert done.exit_code == 2
        assert said in done.stderr
        assert "Traceback" not in done.output


def test_a_folder_becomes_a_version_without_a_compile(store, tmp_path):
    save_compiled(compiled("rag", Options(top_k=7)), tmp_path / "program", about(0.7))
    done = registry("add", tmp_path / "program", "--name", "copied", "--tracking-uri", store)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("registered: models:/copied/1; serve it: typedrag ")
    promoted = invoke(*shlex.split(done.stdout.split("serve it: typedrag ")[1]))
    assert promoted.stdout == "models:/copied@champion is version 1; before: none\n"
    assert read_program("models:/copied@champion", tracking_uri=store).options.top_k == 7
    again = registry("add", tmp_path / "program", "--name", "copied", "--tracking-uri", store, "--json")
    assert json.loads(again.stdout) == {"registered": "models:/copied/2"}
    client = mlflow.MlflowClient()
    run = client.get_run(client.get_model_version("copied", "1").run_id)
    assert (run.info.run_name, run.info.status) == ("registration copied: rag → better", "FINISHED")
    assert (run.data.tags["kind"], run.data.tags["dataset"]) == ("registration", about().dataset)
    assert run.data.params["options.top_k"] == "7"


def test_a_folder_that_is_no_program_is_not_registered(store, tmp_path):
    refused = registry("add", tmp_path, "--name", "wrong", "--tracking-uri", store)
    assert refused.exit_code == 2 and "is no compiled program" in refused.stderr
    assert "wrong" not in registry("list", "--tracking-uri", store).stdout

import logging
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.experiments.compiles import about, register
from tests.lm_server import MODEL, Call, LMServer, lm_server
from tests.mlflow_stores import new_store
from tests.programs.artifact.test_compiled import ABOUT, compiled, edit
from tests.serving.metrics import counted
from tests.serving.process import command, process
from tests.serving.server import Server, served
from typedrag.cli.main import cli
from typedrag.core.errors import InputError
from typedrag.programs import Options
from typedrag.programs.compiled import save_compiled
from typedrag.serving.programs import EXAMPLE, ProgramSpec

mlflow = pytest.importorskip("mlflow")

SPEC = "models:/answers@champion"
BROKEN, FAILING = 3, 4
"""Versions that cannot be loaded, and that the LM refuses to answer for."""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A store with versions 1 to 4 of `answers`; each reads as many passages."""
    home = tmp_path_factory.mktemp("registry")
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    uri = new_store(home / "store")
    for number in range(1, 5):
        assert register(uri, home / str(number), "answers", about(), top_k=number) == f"models:/answers/{number}"
    model = mlflow.MlflowClient().get_model_version("answers", str(BROKEN)).source.rpartition("/")[2]
    [program] = [f for f in (home / "store").rglob("program.json") if model in f.parts]
    edit(program.parent, "program.json", format=99)
    yield home
    mlflow.set_tracking_uri(before)


@pytest.fixture
def uri(home) -> str:
    """The store's, whose alias is at version 1."""
    uri = f"sqlite:///{home / 'store' / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    promote(1)
    return uri


def promote(version: int) -> None:
    mlflow.MlflowClient().set_registered_model_alias("answers", "champion", str(version))


def source(lm: LMServer, index: Path, spec: str = SPEC) -> ProgramSpec:
    return ProgramSpec(spec, f"vllm:{MODEL}", {"api_base": lm.api_base, "cache": False, "num_retries": 0}, index)


def about_program(server: Server) -> dict:
    return server.client.get("/v1/program").json()


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.05)


def passages_read(reply: dict) -> int:
    return len(reply["passages"])


def test_an_alias_that_moves_is_followed_while_questions_go_on(uri, sample_index):
    go_on, held = threading.Event(), "Why does dough rise slowly?"
    hold = lambda call: go_on.wait(60) and None if call.question == held else None  # noqa: E731
    with lm_server(reply=hold) as lm:
        kept = source(lm, sample_index)
        with served(kept.open(), reload=[kept], registry_seconds=0.1) as server, ThreadPoolExecutor(5) as pool:
            assert about_program(server)["version"] == "1"
            slow = pool.submit(server.ask, held)
            until(lambda: bool(lm.calls))
            over = threading.Event()

            def ask_on(number: int) -> list[int]:
                read = []
                while not over.is_set():
                    reply = server.ask(f"Why does bread number {number} rise {len(read)} times?")
                    assert reply.status_code == 200
                    read.append(passages_read(reply.json()))
                return read

            asking = [pool.submit(ask_on, number) for number in range(4)]
            promote(2)
            until(lambda: about_program(server)["version"] == "2")
            tried = lm.asked("answer").count(EXAMPLE)
            after = server.ask("Why does sourdough rise?").json()
            over.set()
            go_on.set()
            read = [number for future in asking for number in future.result()]
            count = counted(server)
    assert tried == 1
    assert passages_read(after) == 2
    assert passages_read(slow.result().json()) == 1
    assert set(read) == {1, 2}
    assert count("reloads_total", program="answers", outcome="swapped") == 1


def test_a_version_is_seen_while_it_is_loaded_and_tried(uri, sample_index, caplog):
    go_on = threading.Event()
    hold = lambda call: go_on.wait(60) and None if call.question == EXAMPLE else None  # noqa: E731
    with lm_server(reply=hold) as lm, caplog.at_level(logging.WARNING, "typedrag.serving.programs"):
        kept = source(lm, sample_index)
        with served(kept.open(), reload=[kept], registry_seconds=0.1) as server:
            assert not about_program(server)["reloading"]
            promote(2)
            until(lambda: about_program(server)["reloading"])
            begun = [record.getMessage() for record in caplog.records if "program answers" in record.getMessage()]
            assert (about_program(server)["version"], begun) == ("1", ["program answers is being loaded, version 2"])
            go_on.set()
            until(lambda: about_program(server)["version"] == "2" and not about_program(server)["reloading"])
    assert "program answers was reloaded, version 2" in caplog.messages


@pytest.mark.parametrize("version", [BROKEN, FAILING])
def test_a_broken_program_is_refused_and_said_once(uri, sample_index, version, caplog, home):
    def refuse(call: Call) -> tuple[int, str] | None:
        return (400, "no") if f'"number": {FAILING}' in call.request["messages"][-1]["content"] else None

    with lm_server(reply=refuse) as lm, caplog.at_level(logging.WARNING, "typedrag.serving.programs"):
        kept = source(lm, sample_index)
        with served(kept.open(), reload=[kept], registry_seconds=0.1) as server:
            promote(version)
            until(lambda: bool(about_program(server)["reload_error"]))
            time.sleep(1)  # in which the registry is looked at ten times
            program = about_program(server)
            assert server.ask("Why does bread rise so well?").status_code == 200
            assert counted(server)("reloads_total", program="answers", outcome="refused") == 1
            assert program["version"] == "1" and str(home) not in str(program)
            assert program["reload_error"].startswith("The new one was refused, since it ")
            assert len([r for r in caplog.records if "was not reloaded" in r.getMessage()]) == 1
            lm.reply = lambda call: None
            promote(2)
            until(lambda: about_program(server)["version"] == "2")
            assert about_program(server)["reload_error"] == ""


def test_a_registry_that_is_gone_for_a_while_is_said_and_done_without(uri, sample_index, home):
    database = sqlite3.connect(home / "store" / "mlflow.db", isolation_level=None)
    with lm_server() as lm:
        kept = source(lm, sample_index)
        with served(kept.open(), reload=[kept], registry_seconds=0.1) as server:
            database.execute("ALTER TABLE registered_model_aliases RENAME TO gone")
            try:
                until(lambda: bool(about_program(server)["reload_error"]))
                program = about_program(server)
                assert server.ask("Why does bread rise?").status_code == 200
            finally:
                database.execute("ALTER TABLE gone RENAME TO registered_model_aliases")
            until(lambda: not about_program(server)["reload_error"])
            promote(2)
            until(lambda: about_program(server)["version"] == "2")
    assert program["reload_error"] == "The registry, the LM or the index cannot be used now; this one stays."


def test_an_lm_that_is_down_is_no_fault_of_the_program_which_is_tried_again(uri, sample_index):
    with lm_server(reply=lambda call: (503, "gone")) as lm:
        kept = source(lm, sample_index)
        with served(kept.open(), reload=[kept], registry_seconds=0.1) as server:
            promote(2)
            until(lambda: "cannot be used now" in about_program(server)["reload_error"])
            lm.reply = lambda call: None
            until(lambda: about_program(server)["version"] == "2")


def test_sighup_opens_folders_anew(sample_index, tmp_path):
    folder = tmp_path / "mine"
    save_compiled(compiled("rag", Options(top_k=1)), folder, ABOUT)
    with (
        lm_server() as lm,
        process(lm, tmp_path / "cache", "--program", str(folder), "--index", str(sample_index)) as server,
    ):
        first = server.ask("Why does bread rise?").json()
        save_compiled(compiled("rag", Options(top_k=2)), folder, ABOUT)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("program mine was reloaded")
        second = server.ask("Why does bread rise?").json()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("program mine was reloaded", 2)
        assert lm.asked("answer").count(EXAMPLE) == 3  # the second trial is not answered from the reply to the first
        (folder / "program.json").write_text("{}")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("program mine was not reloaded (refused)")
        program = server.client.get("/v1/program").json()
        third = server.ask("Why does bread rise?").json()
    assert [passages_read(reply) for reply in (first, second, third)] == [1, 2, 2]
    assert program["reload_error"] == "The new one was refused, since it cannot be opened; this one stays."


def test_a_registry_that_cannot_be_reached_at_start_is_an_error_and_exit_code_3(tmp_path):
    environment = {**os.environ, "TYPEDRAG_CACHE": str(tmp_path), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    with lm_server() as lm:
        done = subprocess.run(command(lm, "--program", SPEC), capture_output=True, text=True, env=environment)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("Error: MLflow's store cannot be used: ")
    assert "Traceback" not in done.stderr


def test_a_program_that_no_question_of_a_user_could_be_answered_by_is_not_served():
    source = ProgramSpec("preqrag", f"vllm:{MODEL}", {}, options={"preqrag": {"classifier": "oracle"}})
    with pytest.raises(InputError, match=r"preqrag\.classifier=oracle reads labels of a dataset"):
        source.open()


@pytest.mark.parametrize("name", ["serve", "mcp"])
@pytest.mark.parametrize(
    ("specs", "problem"),
    [
        (("a/program", "b/program"), "2 programs are called 'program'"),
        (("rag", "rag=typed_rag"), "2 programs are called 'rag'"),
        (("=rag",), "a program has an empty name"),
    ],
)
def test_programs_that_clients_could_not_tell_apart_are_refused(name, specs, problem):
    arguments = (word for spec in specs for word in ("--program", spec))
    refused = CliRunner().invoke(cli, [name, *arguments])
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1] == f"Error: {problem}. Give each a name of its own: --program NAME=SPEC"


def test_a_folder_s_program_is_called_as_the_folder_even_from_within(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [ProgramSpec(spec).name for spec in (".", str(tmp_path), "rag")] == [tmp_path.name, tmp_path.name, "rag"]

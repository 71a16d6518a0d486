"""A server that is started, shared and stopped: control flow, with a command that serves no model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.lms.test_lm import closed_port, refusal
from typedrag.errors import InputError, LMUnavailable
from typedrag.lms import lm as lm_module

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM does not run on Windows")

_PATIENCE = 120
_USER = """
import logging, sys, dspy
from typedrag.lms import lm
logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("httpx").setLevel(logging.WARNING)
lm.DEFAULT = sys.argv[2]
opened = lm.open_lm(sys.argv[1], cache=True)
print(opened.kwargs["api_base"], opened.kwargs["api_key"], opened.model, flush=True)
for line in sys.stdin:
    with lm.use_lm(opened):
        print(dspy.Predict("question -> answer")(question=line.strip()).answer, flush=True)
"""


class Machine:
    """A machine with the fake command and a cache folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.starts_file = folder / "starts.jsonl"
        self.cache = folder / "cache"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        command = bin_folder / "vllm"
        fake = Path(__file__).with_name("fake_vllm.py")
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n')
        command.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "FAKE_VLLM_STARTS": str(self.starts_file),
            "TYPEDRAG_CACHE": str(self.cache),
        }
        self.default = closed_port()
        self.users: list[User] = []

    @property
    def starts(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.starts_file.read_text().splitlines()]
            if self.starts_file.exists()
            else []
        )

    def user(self, spec: str = "vllm:org/model", *, options: str = "", ready: bool = True) -> User:
        user = User(
            [sys.executable, "-c", _USER, spec, self.default], {**self.environment, "TYPEDRAG_VLLM_OPTIONS": options}
        )
        self.users.append(user)
        return user.ready() if ready else user


class User:
    """A process that uses the LM."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.api_base = self.key = self.model = ""

    def ready(self) -> User:
        assert self.process.stdout and self.process.stderr
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.api_base, self.key, self.model = line.split()
        return self

    def ask(self, question: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def leave(self) -> str:
        """End it, and return what it wrote to stderr."""
        return self.process.communicate(timeout=_PATIENCE)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=_PATIENCE)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    for user in made.users:
        user.kill()
    for start in made.starts:
        until(lambda start=start: not lives(start))


def lives(start: dict[str, Any]) -> bool:
    """True if a server or its child is there."""
    return any(
        psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in (start["pid"], start["child"])
    )


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch, options: str = "") -> Iterator[None]:
    """This process on that machine."""
    for name in ("PATH", "FAKE_VLLM_STARTS", "TYPEDRAG_CACHE"):
        monkeypatch.setenv(name, machine.environment[name])
    monkeypatch.setenv("TYPEDRAG_VLLM_OPTIONS", options)
    monkeypatch.setattr(lm_module, "DEFAULT", machine.default)
    yield


def test_users_share_a_server_that_ends_with_the_last_of_them(machine):
    first = machine.user(options="--dtype 'float 16'")
    second = machine.user(options="--dtype 'float 16'")
    [start] = machine.starts
    assert (first.api_base, first.key, first.model) == (second.api_base, second.key, "typedrag-local/org/model")
    assert start["argv"][:2] == ["serve", "org/model"]
    assert start["argv"][start["argv"].index("--dtype") + 1] == "float 16"
    assert "--enable-prompt-tokens-details" in start["argv"]
    assert httpx.get(f"{first.api_base}/models").status_code == 401  # its key is known to its users alone
    assert second.ask("Why?").startswith(str(start["pid"]))

    told = first.leave()
    assert "vLLM starts with org/model" in told and "vLLM serves org/model after" in told
    time.sleep(1.5)  # the keeper has looked
    assert lives(start) and second.ask("How?").startswith(str(start["pid"]))
    assert "vLLM starts" not in second.leave()
    until(lambda: not lives(start))
    assert not list(machine.cache.glob("vllm/*/server.json"))


def test_users_that_are_killed_leave_too(machine):
    users = [machine.user(), machine.user()]
    [start] = machine.starts
    for user in users:
        assert lives(start)
        user.kill()
    until(lambda: not lives(start))


def test_a_server_ends_with_a_user_that_is_killed_while_it_starts(machine):
    user = machine.user(options="--wait nothing", ready=False)
    until(lambda: bool(machine.starts))
    user.kill()
    until(lambda: not lives(machine.starts[0]))


def test_users_that_come_at_once_start_one_server(machine, tmp_path):
    options = f"--wait '{tmp_path / 'go'}'"
    first = machine.user(options=options, ready=False)
    until(lambda: bool(machine.starts))
    second = machine.user(options=options, ready=False)
    assert second.process.stderr and second.process.stderr.readline() == "another process starts vLLM; waiting for it\n"
    (tmp_path / "go").touch()
    assert first.ready().api_base == second.ready().api_base
    assert len(machine.starts) == 1


def test_other_options_are_another_server(machine):
    one, other = machine.user(options="--seed 1"), machine.user(options="--seed 2")
    assert one.api_base != other.api_base
    assert len(machine.starts) == 2


def test_adapters_that_only_have_one_name_are_not_taken_for_one_another(machine, tmp_path):
    specs = [f"vllm:org/{name}+cooking={tmp_path / name}" for name in ("one", "two")]
    users = [machine.user(spec) for spec in specs]
    starts = [str(start["pid"]) for start in machine.starts]
    assert [user.ask("Why?").split()[0] for user in users] == starts
    users[0].leave(), users[1].leave()
    until(lambda: not list(machine.cache.glob("vllm/*/server.json")))
    again = machine.user(specs[1])
    assert again.ask("Why?").split()[0] == starts[1]  # its own reply of before, kept


def test_an_adapter_is_served_with_its_model_and_shared_by_both_names(machine, tmp_path):
    (tmp_path / "adapter").mkdir()
    user = machine.user(f"vllm:org/model+cooking={tmp_path / 'adapter'}")
    [start] = machine.starts
    at = start["argv"].index("--enable-lora")
    assert start["argv"][at : at + 3] == ["--enable-lora", "--lora-modules", f"cooking={tmp_path / 'adapter'}"]
    assert user.model == "typedrag-local/cooking"
    assert machine.user("vllm:org/model").api_base == machine.user("vllm:cooking").api_base == user.api_base
    assert len(machine.starts) == 1


def test_a_server_that_has_crashed_is_started_again(machine):
    user = machine.user()
    os.kill(machine.starts[0]["pid"], signal.SIGKILL)
    until(lambda: not list(machine.cache.glob("vllm/*/server.json")))
    other = machine.user()
    assert len(machine.starts) == 2 and other.api_base != user.api_base
    assert other.ask("Why?").startswith(str(machine.starts[1]["pid"]))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_server_ends_with_its_keeper(machine):
    machine.user()
    [start] = machine.starts
    psutil.Process(start["pid"]).parent().kill()
    until(lambda: not psutil.pid_exists(start["pid"]))
    os.kill(start["child"], signal.SIGKILL)  # vLLM's children end by themselves, this one does not
    assert machine.user().ask("Why?").startswith(str(machine.starts[1]["pid"]))


def test_replies_are_kept_whatever_the_server_s_port(machine):
    first = machine.user()
    reply = first.ask("Why?")
    first.leave()
    second, other = machine.user(), machine.user(options="--seed 2")
    assert second.api_base != first.api_base
    assert second.ask("Why?") == reply
    assert other.ask("Why?") != reply


def test_the_end_of_the_log_is_told_if_it_does_not_start(machine, monkeypatch):
    with here(machine, monkeypatch, "--fail 'no GPU here'"), pytest.raises(LMUnavailable) as refused:
        lm_module.open_lm("vllm:org/model")
    message = str(refused.value)
    assert message.startswith("vLLM did not start with 'org/model'; its log, ")
    assert message.endswith(" ends:\n  INFO loading weights\n  ERROR no GPU here")
    assert "ERROR no GPU here" in Path(message.split(", ")[1]).read_text()
    until(lambda: not lives(machine.starts[0]))


def test_without_the_command_both_ways_out_are_named(machine, monkeypatch):
    with here(machine, monkeypatch):
        monkeypatch.setenv("PATH", str(machine.cache))
        monkeypatch.setattr(sys, "executable", str(machine.cache / "python"))
        message = refusal(LMUnavailable, "vllm:org/model")
        assert "no server is up for 'org/model', and there is no command 'vllm' to start one" in message
        assert "pip install 'typedrag[vllm]'" in message and "--api-base URL" in message
        assert "--scorer-api-base URL" in refusal(LMUnavailable, "vllm:org/model", role="scorer")


def test_options_that_cannot_be_read_are_refused(machine, monkeypatch):
    with here(machine, monkeypatch, "--dtype 'float16"):
        assert "TYPEDRAG_VLLM_OPTIONS cannot be read" in refusal(InputError, "vllm:org/model")


def test_the_server_at_the_default_address_is_used_if_it_has_the_model(machine, monkeypatch, server):
    machine.default = server.api_base
    with here(machine, monkeypatch):
        assert lm_module.open_lm("vllm:stub").kwargs["api_base"] == server.api_base
    assert not machine.starts
    assert machine.user("vllm:other").api_base != server.api_base
    assert len(machine.starts) == 1


def test_a_command_tells_on_stderr_that_it_waits(machine):
    question = [sys.executable, "-m", "typedrag", "ask", "Why?", "--program", "direct_lm", "--lm", "vllm:org/model"]
    done = subprocess.run(question, env=machine.environment, capture_output=True, text=True, timeout=_PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "vLLM starts with org/model" in done.stderr and "vLLM" not in done.stdout
    until(lambda: not lives(machine.starts[0]))

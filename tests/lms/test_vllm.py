"""A server that is started and stopped, and one that runs: control flow, with a command that serves no model."""

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
from typedrag.core.errors import InputError, LMUnavailable
from typedrag.experiments.config import LMConfig
from typedrag.lms import lm as lm_module
from typedrag.lms import vllm

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
    for server in vllm._servers:
        vllm._stop(server.process)
    vllm._servers.clear()
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
    monkeypatch.setattr(vllm, "DEFAULT", machine.default)
    yield


def test_a_server_is_started_for_a_process_and_stopped_with_it(machine):
    user, other = (machine.user(options="--dtype 'float 16'") for _ in range(2))
    start, _ = machine.starts
    assert user.model == "typedrag-local/org/model" and user.api_base != other.api_base
    assert start["argv"][:2] == ["serve", "org/model"]
    assert start["argv"][start["argv"].index("--dtype") + 1] == "float 16"
    assert "--enable-prompt-tokens-details" in start["argv"]
    assert httpx.get(f"{user.api_base}/models").status_code == 401  # its key is known to this process alone
    assert user.ask("Why?").startswith(str(start["pid"]))
    told = user.leave()
    assert "vLLM starts with org/model" in told and "vLLM serves org/model after" in told
    until(lambda: not lives(start))
    assert lives(machine.starts[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("options", ["", "--wait nothing"], ids=["in use", "starting"])
def test_a_server_ends_with_a_process_that_is_killed(machine, options):
    user = machine.user(options=options, ready=not options)
    until(lambda: bool(machine.starts))
    user.kill()
    until(lambda: not lives(machine.starts[0]))


def test_adapters_of_one_name_are_told_apart_and_each_is_served_with_its_model(machine, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with here(machine, monkeypatch):
        one, two, base = (
            lm_module.open_lm(f"vllm:{spec}").kwargs["api_base"]
            for spec in (f"org/model+a={tmp_path / 'one'}", f"org/model+a={tmp_path / 'two'}", "org/model")
        )
    assert one != two and base == one
    at = machine.starts[0]["argv"].index("--enable-lora")
    assert machine.starts[0]["argv"][at : at + 3] == ["--enable-lora", "--lora-modules", f"a={tmp_path / 'one'}"]


def test_a_server_that_has_crashed_is_started_again(machine, monkeypatch):
    with here(machine, monkeypatch):
        first = lm_module.open_lm("vllm:org/model").kwargs["api_base"]
        assert lm_module.open_lm("vllm:org/model").kwargs["api_base"] == first
        os.kill(machine.starts[0]["pid"], signal.SIGKILL)
        os.kill(machine.starts[0]["child"], signal.SIGKILL)
        until(lambda: not lives(machine.starts[0]))
        assert lm_module.open_lm("vllm:org/model").kwargs["api_base"] != first
    assert len(machine.starts) == 2


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


# a server that runs


def test_an_address_may_come_from_the_spec_an_option_or_the_environment(server, monkeypatch):
    lms = [lm_module.open_lm(f"vllm:stub@{server.api_base}"), lm_module.open_lm("vllm:stub", api_base=server.api_base)]
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    lms.append(lm_module.open_lm("vllm:stub"))
    assert {lm.kwargs["api_base"] for lm in lms} == {server.api_base}
    monkeypatch.setenv("TYPEDRAG_LM", f"vllm:stub@{server.api_base}")
    with pytest.raises(InputError, match="Put it into TYPEDRAG_API_BASE"):
        lm_module.default_spec()
    config = LMConfig(spec=f"vllm:stub@{server.api_base}")
    assert (config.spec, config.api_base) == ("vllm:stub", server.api_base)
    assert LMConfig(spec="vllm:judge").inherit_address(config).api_base == server.api_base


def test_several_addresses_are_refused_with_the_name_of_what_does_it(server, monkeypatch):
    both = f"{server.api_base},{closed_port()}"
    assert "Put a router in front of the servers" in refusal(InputError, f"vllm:stub@{both}")
    monkeypatch.setenv("TYPEDRAG_API_BASE", both)
    assert "Put a router in front of the servers" in refusal(InputError, "vllm:stub")


def test_replies_are_kept_whatever_the_server_s_port(machine):
    first = machine.user()
    reply = first.ask("Why?")
    first.leave()
    second, other = machine.user(), machine.user(options="--seed 2")
    assert second.api_base != first.api_base
    assert second.ask("Why?") == reply
    assert other.ask("Why?") != reply

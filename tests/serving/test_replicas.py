import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.lm_server import lm_server
from tests.serving.metrics import Counted
from tests.serving.process import Process, command, process
from tests.serving.test_stopping import wait_for_calls

ARGUMENTS = ("--program", "direct_lm", "--workers", "2")


def replicas(server: Process) -> list[int]:
    """The processes that serve."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def gone(pid: int) -> bool:
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


def counted(server: Process) -> Counted:
    return Counted(httpx.get(f"{server.url}/metrics", timeout=60).text)


def test_one_that_dies_under_load_is_started_again_and_all_are_counted_together(tmp_path):
    with lm_server() as lm, process(lm, tmp_path, *ARGUMENTS) as server, ThreadPoolExecutor(8) as pool:
        first, second = replicas(server)
        over = threading.Event()

        def ask_on(number: int) -> list[int]:
            """The statuses of replies; 0 where the connection was lost."""
            statuses = []
            while not over.is_set():
                try:
                    statuses.append(server.ask(f"Why {number}, {len(statuses)}?").status_code)
                except httpx.TransportError:
                    statuses.append(0)
            return statuses

        asking = [pool.submit(ask_on, number) for number in range(8)]
        for number, pid in enumerate((first, second), 1):
            wait_for_calls(lm, len(lm.calls) + 20)
            os.kill(pid, signal.SIGKILL)
            server.wait_for("a worker serves again", number)
        wait_for_calls(lm, len(lm.calls) + 20)
        over.set()
        statuses = [status for future in asking for status in future.result()]
        count = counted(server)
        assert not {first, second} & set(replicas(server)) and len(replicas(server)) == 2
    lost = statuses.count(0)
    assert set(statuses) <= {0, 200} and lost <= 16  # those that were under way in the two that were killed
    assert abs(count("requests_total", path="/v1/answer", status="200") - statuses.count(200)) <= 16
    assert (count("running"), count("waiting")) == (0, 0)


def test_signals_reach_all_and_sigterm_loses_no_answer(tmp_path):
    go_on = threading.Event()
    with (
        lm_server(reply=lambda call: go_on.wait(60) and None if "bread" not in call.question else None) as lm,
        process(lm, tmp_path, *ARGUMENTS) as server,
        ThreadPoolExecutor(16) as pool,
    ):
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("program direct_lm was reloaded", 2)
        processes, reloads = replicas(server), len(lm.calls)  # one or two: the workers share replies
        replies = [pool.submit(server.ask, f"Why {n}?") for n in range(16)]
        wait_for_calls(lm, reloads + 16)
        server.process.send_signal(signal.SIGTERM)
        go_on.set()
        assert [reply.result().status_code for reply in replies] == [200] * 16
        assert server.wait() == 143
        assert all(gone(pid) for pid in processes)
    assert server.said[-1] == "Terminated" and not [line for line in server.said if "Traceback" in line]


def test_ctrl_c_at_a_terminal_reaches_all_at_once_and_loses_no_answer(tmp_path):
    with lm_server(seconds=1) as lm, process(lm, tmp_path, *ARGUMENTS) as server, ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(server.ask, f"Why {n}?") for n in range(8)]
        wait_for_calls(lm, 8)
        os.killpg(server.process.pid, signal.SIGINT)
        assert [reply.result().status_code for reply in replies] == [200] * 8
        assert server.wait() == 130
    assert server.said[-1] == "Interrupted" and not any("Traceback" in line for line in server.said)


def test_they_end_where_the_process_that_looks_after_them_is_killed(tmp_path):
    with lm_server() as lm, process(lm, tmp_path, *ARGUMENTS) as server:
        processes = replicas(server)
        server.process.kill()
        assert all(gone(pid) for pid in processes)
        with pytest.raises(httpx.ConnectError):
            server.ask("Why?")


def test_what_keeps_them_from_serving_is_said_once(tmp_path):
    with lm_server() as lm:
        pass
    environment = {**os.environ, "TYPEDRAG_CACHE": str(tmp_path)}
    done = subprocess.run(command(lm, *ARGUMENTS), capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 3
    warning, error = done.stderr.splitlines()
    assert warning.startswith("WARNING: no key is needed") and error.startswith("Error: no vLLM server answers at ")

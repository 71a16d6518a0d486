"""The files that GitHub reads: each fits its schema, and says what the package says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import typedrag

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
CHECK = Path(sys.executable).with_name("check-jsonschema")

pytestmark = pytest.mark.skipif(not CHECK.exists(), reason="check-jsonschema is among the packages for development")


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", sorted(GITHUB.glob("workflows/*.yml"))),
        ("github-issue-forms", sorted(GITHUB.glob("ISSUE_TEMPLATE/[!c]*.yml"))),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_fit_their_schemas(schema, files):
    done = subprocess.run(
        [CHECK, "--default-filetype", "yaml", "--builtin-schema", f"vendor.{schema}", *files],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_citation_names_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == typedrag.__version__


def test_the_workflow_runs_what_ci_runs_on_all_supported_pythons():
    job = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"]["check"]
    assert job["steps"][-1] == {"run": ".ci/run"}
    lowest, above = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].split(",")
    minors = range(int(lowest.removeprefix(">=3.")), int(above.removeprefix("<3.")))
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in minors]


def test_a_release_is_tested_before_it_is_published_and_its_actions_cannot_change():
    release, ci = ((GITHUB / "workflows" / name).read_text() for name in ("release.yml", "ci.yml"))
    for action in re.findall(r"uses: (\S+)", release + ci):
        assert action.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)
    jobs = yaml.safe_load(release)["jobs"]
    assert jobs["publish"]["needs"] == "build" and jobs["build"]["needs"] == jobs["image"]["needs"] == "test"
    steps = jobs["publish"]["steps"]
    assert not [step for step in steps if "run" in step], "a job that may publish runs nothing of the repository"

"""The classes of docs/how-to/vector-store.md search real stores, and programs answer from them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import new_environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "vector-store.md").read_text("utf-8")
PACKAGES = ("psycopg[binary,pool]", "qdrant-client", "elasticsearch", "opensearch-py", "langchain-core")
LONGEST_CLASS = 20
"""In lines, without blank ones."""
FENCES = dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stores' packages, which are not installed beside typedrag's."""
    folder = tmp_path_factory.mktemp("stores")
    pip = [new_environment(folder), "-m", "pip", "install", "--quiet", "--no-compile", "--target", folder / "packages"]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "pgserver"])  # PostgreSQL with pgvector, which has no wheels for some systems
    return folder / "packages"


@pytest.mark.install
@pytest.mark.parametrize("store", ["pgvector", "qdrant", "elasticsearch", "opensearch", "langchain"])
def test_a_program_answers_from_the_store(store: str, packages: Path, tmp_path: Path) -> None:
    if store == "pgvector" and not (packages / "pgserver").exists():
        pytest.skip("no package brings PostgreSQL with pgvector for this system")
    for title, code in FENCES.items():
        (tmp_path / title).parent.mkdir(exist_ok=True)
        (tmp_path / title).write_text(code, "utf-8")
    script = Path(__file__).with_name("search_vector_store.py")
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, script, store, packages]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [len(found) for found in made["found"]] == [3, 3]
    assert all(found[0].startswith(topic) for found, topic in zip(made["found"], ("bread-", "vaccines-"), strict=True))
    assert made["scores"] == sorted(made["scores"], reverse=True)
    assert "bread-1" in made["read"]


def test_the_classes_are_short() -> None:
    stores = {title: code for title, code in FENCES.items() if "class" in code}
    assert set(stores) == {f"stores/{name}.py" for name in ("pgvector", "qdrant", "elastic", "langchain")}
    for code in stores.values():
        assert len([line for line in code.splitlines() if line.strip()]) <= LONGEST_CLASS

"""The core without any extra: what it does, and what it says of what it lacks."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.environments import install, new_environment
from tests.lm_server import MODEL
from tests.serving.index_server import served_index
from typedrag.core.extras import PACKAGES, MissingExtra, name_missing_extras, require

ROOT = Path(__file__).parents[1]
LARGEST = 600e6
"""Bytes of an environment with the core alone."""

# as where none of the extras' packages is installed
LEAN = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(p for packages in PACKAGES.values() for p in packages)}))
"""
IMPORTS = """
import importlib, pkgutil, typedrag
from typedrag.core.errors import TypedRAGError
refused = []
def missing(name):
    refused.append(name)
for module in pkgutil.walk_packages(typedrag.__path__, "typedrag.", onerror=missing):
    if module.name != "typedrag.__main__":
        try:
            importlib.import_module(module.name)
        except (ImportError, TypedRAGError):
            refused.append(module.name)
for name in typedrag.__all__:
    getattr(typedrag, name)
print(*sorted(set(refused)))
"""
MAY_BE_REFUSED = re.compile(
    r"typedrag\.(?:optimizers\.(?:list_ranker|sweep|compile|revelator|trainer)|retrieval\.list_(?:ranker|network)"
    r"|experiments\.(?:compare|evaluate|judges|report|tracking)"
    r"|programs\.typed_rag\.nf_cats|cli\.(?:ranker|revelator)|papers|serving)(?:\.|$)"
)
"""What measures, makes better, tracks, serves, or holds a network; all else must be importable without an extra."""
ASK = ("ask", "Why?", "--program", "direct_lm", "--lm", f"vllm:{MODEL}", "--api-base")
ASK_REMOTE = (
    "ask", "Why does bread rise?", "--program", "rag", "--retriever", "URL", "--json", "--lm", f"vllm:{MODEL}",
    "--api-base",
)  # fmt: skip
COMMAND = "from typedrag.cli.main import main; sys.argv[0] = 'typedrag'; main()"
EACH_COMMAND = """
import json, sys
from click.testing import CliRunner
from typedrag.cli.main import cli
told = [CliRunner().invoke(cli, line.split()) for line in json.loads(sys.argv[1])]
print(json.dumps([(done.exit_code, done.stderr) for done in told]))
"""
WANTING = {
    "ask Why? --lm vllm:stub": "lucene",
    "ask Why? --program direct_lm --reranker cross-encoder --lm vllm:stub": "dense",
    "index build page.html --out index": "documents",
    "ask Why? --program direct_lm --lm embedded:model.gguf": "embedded",
    "ask Why? --program models:/bread@champion": "mlflow",
    "index search milvus:http://localhost:1/wiki Why?": "milvus",
    "ask Why? --retriever pyserini:msmarco-v1-passage --lm vllm:stub": "pyserini",
    "index search pyserini-faiss:wiki?encoder=bert Why?": "pyserini",
    "sweep run model.gguf --out sweep": "optuna",
    "serve --program direct_lm --lm vllm:stub": "serve",
    "mcp --program direct_lm --lm vllm:stub": "serve",
}
"""By a command, the extra that it needs."""


def run(code: str, *arguments: str, python: Path | str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)


def test_all_but_what_measures_trains_tracks_and_serves_is_imported():
    done = run(LEAN + IMPORTS)
    assert done.returncode == 0, done.stderr
    assert [name for name in done.stdout.split() if not MAY_BE_REFUSED.match(name)] == []


def test_a_program_answers_over_an_index_that_a_server_has(server, sample_retriever):
    with served_index(sample_retriever) as serving:
        asked = [serving.url if word == "URL" else word for word in ASK_REMOTE]
        done = run(LEAN + COMMAND, *asked, server.api_base)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passages"]


def test_commands_answer_and_list(server):
    asked = run(LEAN + COMMAND, *ASK, server.api_base)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip()
    assert "all-minilm-l6-v2" in run(LEAN + COMMAND, "models", "list").stdout
    assert "antique" in run(LEAN + COMMAND, "datasets", "list").stdout


def test_a_missing_extra_is_one_line_with_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "page.html").write_text("<p>Leaves fall.")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "sitecustomize.py").write_text(LEAN)  # for the processes that read documents
    place = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, {str(tmp_path)!r})\n"
    done = run(f"{place}{LEAN}{EACH_COMMAND}", json.dumps(list(WANTING)))
    assert done.returncode == 0, done.stderr
    for (arguments, extra), (status, said) in zip(WANTING.items(), json.loads(done.stdout), strict=True):
        assert status == 3, (arguments, said)
        assert re.fullmatch(
            r"Error: (?:page\.html cannot be read: )?the package '\w+' is not installed\. "
            rf"Install it: pip install 'typedrag\[{extra}\]'",
            said.strip().splitlines()[-1],
        ), (arguments, said)


def test_python_users_are_told_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"'peft' is not installed\. Install it: pip install 'typedrag\[train\]'"):
        require("accelerate", "peft")
    with pytest.raises(MissingExtra, match=r"typedrag\[train\]"), name_missing_extras():
        import peft  # noqa: F401


def test_threads_that_import_the_same_at_once_find_it_whole(tmp_path):
    # two that need each other: Python gives a thread half of one rather than let both wait for ever
    for name, other in (("torch", "transformers"), ("transformers", "torch")):
        (tmp_path / f"{name}.py").write_text(f"import time; time.sleep(0.3)\nimport {other}\nTensor = 1\n")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from threading import Thread
from typedrag.core.extras import import_extras

def use(name):
    with import_extras(name):
        __import__(name)
    assert sys.modules["torch"].Tensor == sys.modules["transformers"].Tensor == 1

failed = []
import threading; threading.excepthook = lambda fault: failed.append(fault.exc_value)
threads = [Thread(target=use, args=[name]) for name in ("torch", "transformers")]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(str(failed) if failed else 0)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_an_installed_package_that_cannot_be_imported_is_another_fault():
    with pytest.raises(ModuleNotFoundError, match="part"), name_missing_extras():
        import scipy.no_such_part  # noqa: F401


def test_each_extra_brings_what_is_said_to_come_with_it():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {extra: names(lines) for extra, lines in declared["optional-dependencies"].items()}
    assert all(brought.values())
    homes = packages_distributions()
    large = ("pyserini", "vllm")  # too large to test with
    packaged = {extra: packages for extra, packages in PACKAGES.items() if extra not in large}
    assert all(set(PACKAGES[extra]) <= brought[extra] for extra in large)
    for extra, packages in packaged.items():
        for package in packages:
            assert {normal(home) for home in homes[package]} & brought[extra], (extra, package)
    assert not names(declared["dependencies"]) & set().union(*(brought[extra] for extra in PACKAGES))
    assert set(packaged) == set(re.findall(r"\w+", brought_by_all(declared))) - {"typedrag"}


def brought_by_all(declared) -> str:
    (line,) = declared["optional-dependencies"]["all"]
    return line


def names(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[\w.-]+", line)[0]) for line in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment into which the built wheel was installed, the core alone."""
    folder = tmp_path_factory.mktemp("core")
    python = new_environment(folder)
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # a build would leave its files beside these
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "typedrag", folder / "typedrag", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder], check=True)
    install(python, wheel(python))
    return python


def wheel(core: Path) -> Path:
    """The wheel that was installed."""
    (path,) = core.parents[2].glob("typedrag-*.whl")
    return path


@pytest.mark.install
def test_the_wheel_holds_what_the_package_does(core):
    listed = subprocess.run(["git", "ls-files", "typedrag"], capture_output=True, text=True, cwd=ROOT, check=True)
    with zipfile.ZipFile(wheel(core)) as archive:
        assert set(listed.stdout.splitlines()) <= set(archive.namelist())


@pytest.mark.install
def test_the_core_installs_small_and_answers(core, server, tmp_path):
    typedrag = core.with_name("typedrag")
    asked = subprocess.run([typedrag, *ASK, server.api_base], capture_output=True, text=True, cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip()
    refused = subprocess.run(
        [typedrag, "ask", "Why?", "--lm", "embedded:none.gguf"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "pip install 'typedrag[lucene]'" in refused.stderr
    files = [Path(folder, name) for folder, _, names in os.walk(core.parents[1]) for name in names]
    assert sum(file.lstat().st_size for file in files) < LARGEST


@pytest.mark.install
def test_a_server_installs_small_and_answers(core, server):
    """With the extra `serve` alone, in the environment of the core."""
    install(core, f"{wheel(core)}[serve]")
    command = [core.with_name("typedrag"), "serve", "--program", "direct_lm", "--lm", f"vllm:{MODEL}", "--port", "0"]
    with subprocess.Popen([*command, "--api-base", server.api_base], stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr
        try:
            address = next(re.finditer(r"http://\S+", next(line for line in serving.stderr if "http://" in line)))[0]
            request = urllib.request.Request(
                f"{address}/v1/answer", b'{"question": "Why?"}', {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as reply:
                assert json.load(reply)["answer"]
        finally:
            serving.terminate()
    files = [Path(folder, name) for folder, _, names in os.walk(core.parents[1]) for name in names]
    assert sum(file.lstat().st_size for file in files) < LARGEST


@pytest.mark.install
def test_pyserini_installs_and_finds_what_it_finds_by_itself(core, tmp_path):
    """In an environment of its own with the extra `pyserini` alone, and without the rest of these tests."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install(python, "pytest", f"{wheel(core)}[pyserini]")
    tests = shutil.copy(ROOT / "tests/retrieval/search/test_pyserini.py", tmp_path)
    done = subprocess.run([python, "-m", "pytest", "-q", tests], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout) and "skipped" not in done.stdout, done.stdout

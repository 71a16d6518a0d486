import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lm_server import lm_server
from typedrag.lms import models

_MODELS = models.models_dir()
_SETTINGS = ("TYPEDRAG_LM", "TYPEDRAG_INDEX", "TYPEDRAG_API_BASE", "TYPEDRAG_API_KEY")
_WHERE_ASKED = {
    "qwen": "needs the 1.1 GB embedded model",
    "install": "installs packages into an environment of its own",
}
"""Markers of tests that run where they are asked for, or where CI is set."""

collect_ignore = ["serving/clients"]  # scripts of other environments

# the first example of a property may load a library, and the machine may be busy
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    for marker, reason in _WHERE_ASKED.items():
        parser.addoption(f"--{marker}", action="store_true", help=f"run tests; each {reason}")


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker threads, or CPUs if it asks embedded LMs, of its own: those of two on the same CPUs crawl."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if not worker or not hasattr(os, "sched_setaffinity"):
        return
    cpus = sorted(os.sched_getaffinity(0))
    number, workers = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    if config.option.markexpr == "lm":
        os.sched_setaffinity(0, cpus[number::workers] or cpus)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(cpus) // workers)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "qwen" in item.keywords or "small_lm" in getattr(item, "fixturenames", ()):
            item.add_marker("lm")
    for marker, reason in _WHERE_ASKED.items():
        if config.getoption(f"--{marker}") or os.environ.get("CI"):
            continue
        skip = pytest.mark.skip(reason=f"{reason}: run with --{marker}")
        for item in items:
            if marker in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Nothing is read from or written to the user's folders but the models that were fetched."""
    import dspy

    patch = pytest.MonkeyPatch()
    patch.setenv("TYPEDRAG_MODELS", str(_MODELS))
    patch.setenv("TYPEDRAG_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("TYPEDRAG_DATA", str(tmp_path_factory.mktemp("data")))
    for name in _SETTINGS:
        patch.delenv(name, raising=False)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def sample_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the sample corpus."""
    from typedrag.datasets.sample import PASSAGES
    from typedrag.retrieval import build_index, read_passages

    out = tmp_path_factory.mktemp("index") / "sample"
    build_index(read_passages([PASSAGES]), out, sources=["sample"])
    return out


@pytest.fixture(scope="session")
def sample_retriever(sample_index: Path):
    from typedrag.retrieval import BM25Retriever

    return BM25Retriever(sample_index)


@pytest.fixture(scope="session")
def small_lm():
    """The 135M model, for real."""
    from typedrag.lms.lm import open_lm

    models.fetch("smollm2-135m")
    return open_lm("embedded:smollm2-135m", max_tokens=60)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """A folder of real datasets, where the machine has one."""
    folder = Path(os.environ.get("TYPEDRAG_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real datasets at {folder}: set TYPEDRAG_TEST_DATA")
    return folder


@pytest.fixture
def server():
    """An OpenAI-compatible server that remembers what it was asked."""
    with lm_server() as served:
        yield served

import sys
from pathlib import Path

import dspy
import pytest

from tests.programs.passages import Numbered
from typedrag.core.errors import InputError
from typedrag.core.extras import MissingExtra
from typedrag.experiments.executors import LocalExecutor, shared_index
from typedrag.experiments.ray_pool import connect, ray_address
from typedrag.lms.lm import open_lm, use_lm
from typedrag.programs import build_program


@pytest.mark.parametrize(
    ("executor", "address"),
    [
        ("ray:head:6379", "head:6379"),
        ("ray:[::1]:6379", "[::1]:6379"),
        ("ray://head:10001/space", "ray://head:10001/space"),
    ],
)
def test_an_executor_s_address(executor, address):
    assert ray_address(executor) == address


@pytest.mark.parametrize("executor", ["", "Ray", "raylet", "ray:", "ray://", "ray:head", "ray:head:port", "dask:a:1"])
def test_what_is_no_executor_is_refused_with_the_forms(executor):
    with pytest.raises(InputError, match="local, ray, ray:auto, ray:HOST:PORT or ray://HOST:PORT"):
        ray_address(executor)


def test_without_ray_the_line_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'typedrag\[ray\]'"), connect("ray", None, threads=4, calls=4):
        pass


def test_what_the_first_answer_would_wait_for_is_started_before_it_without_an_lm_call(server):
    retriever, example = Numbered(), dspy.Example(question="Why does bread rise?")
    executor = LocalExecutor(build_program("rag", retriever), {})
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        executor.warm_up(example)
        assert (len(retriever.batches), len(server.calls)) == (1, 0)
        assert executor.answer(example).usage.lm_calls == 1


@pytest.mark.parametrize("retriever", ["http://localhost:8010", "milvus:http://localhost:19530/wiki"])
def test_workers_get_no_index_beside_an_address_of_one(retriever, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_INDEX", "/indexes/mine")
    assert shared_index(retriever, None) is None


@pytest.mark.parametrize("retriever", [None, "bm25"])
def test_workers_get_the_index_of_the_environment(retriever, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_INDEX", "/indexes/mine")
    assert shared_index(retriever, None) == Path("/indexes/mine")
    assert shared_index(retriever, Path("/indexes/other")) == Path("/indexes/other")

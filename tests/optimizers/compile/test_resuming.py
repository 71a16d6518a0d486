"""A compile that was killed goes on where it stood and pays for nothing twice."""

import json
import multiprocessing
import random
import time
from collections import Counter

import pytest

from tests.lm_server import lm_server
from tests.optimizers import compile_process
from tests.optimizers.tiny import Engine, request_for
from typedrag.core.errors import InputError
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer
from typedrag.runs import Limits

KILLED = ("mipro", "gepa")
AT_ONCE = 3 * 2
"""LM calls of three examples with two parts."""


@pytest.fixture(scope="module")
def processes():
    """Forked from one that has loaded DSPy, with another hash seed than this one's."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.optimizers.compile_process"])
    return context


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_compile_asks_for_what_is_missing_alone(name, processes, tmp_path):
    def reply(call):
        time.sleep(random.uniform(0, 0.004))  # threads overtake one another
        return compile_process.reply(call)

    with lm_server(reply=reply) as server:
        whole = compile_process.compile_by(name, server.api_base, str(tmp_path / "whole"))
        wanted = _asked(server)
        del server.calls[:]
        for share in (0.2, 0.7):
            place = str(tmp_path / "killed")
            begun = processes.Process(target=compile_process.run, args=(name, server.api_base, place))
            begun.start()
            _wait_for(server, int(share * wanted.total()))
            begun.kill()
            begun.join()
        resumed = compile_process.compile_by(name, server.api_base, str(tmp_path / "killed"))
        asked = _asked(server)
    assert wanted - asked == Counter()
    again = asked - wanted
    assert again.keys() <= wanted.keys()
    assert again.total() <= 2 * AT_ONCE  # those under way at the two kills
    # cut off before they were counted, or after that and before their replies were kept
    assert abs(wanted.total() - resumed.spent.usage.lm_calls) <= 2 * AT_ONCE
    assert [_without_spending(c) for c in resumed.candidates] == [_without_spending(c) for c in whole.candidates]


def test_a_compile_stopped_by_its_budget_goes_on_with_a_larger_one(tmp_path):
    engine = Engine()
    optimizer = build_optimizer("bootstrap-random-search", {"candidates": 4})
    for allowed in (20, 50, 90):
        outcome = compile_module(request_for(tmp_path, engine), optimizer, Limits(lm_calls=allowed))
        assert outcome.spent.usage.lm_calls == len(engine.requests) == allowed
    finished = compile_module(request_for(tmp_path, engine), optimizer)
    assert finished.stopped == "" and len(engine.requests) == len(set(engine.requests))
    assert [c.number for c in finished.candidates] == list(range(len(finished.candidates)))


def test_another_compile_is_refused_in_the_same_folder(tmp_path):
    engine = Engine()
    compile_module(request_for(tmp_path, engine), build_optimizer("dspy:LabeledFewShot"))
    with pytest.raises(InputError, match=r"another optimizer .* and options"):
        compile_module(request_for(tmp_path, engine), build_optimizer("bootstrap"))
    with pytest.raises(InputError, match=r"another seed .* and trainset .* and valset"):
        compile_module(request_for(tmp_path, engine, seed=1), build_optimizer("dspy:LabeledFewShot"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        compile_module(request_for(tmp_path / "other", engine), build_optimizer("bootstrap"))


def test_a_folder_is_compiled_into_by_one_process(processes, tmp_path):
    with lm_server(reply=compile_process.reply, seconds=0.05) as server:
        other = processes.Process(target=compile_process.run, args=("bootstrap", server.api_base, str(tmp_path)))
        other.start()
        _wait_for(server, 1)
        with pytest.raises(InputError, match="another process is writing"):
            compile_process.run("bootstrap", server.api_base, str(tmp_path))
        other.kill()
        other.join()


def _asked(server):
    return Counter(json.dumps(call.request, sort_keys=True) for call in list(server.calls))


def _without_spending(candidate):
    return {**vars(candidate), "lm_calls": None, "tokens": None}


def _wait_for(server, calls, seconds=60.0):
    end = time.monotonic() + seconds
    while len(server.calls) < calls:
        assert time.monotonic() < end
        time.sleep(0.002)

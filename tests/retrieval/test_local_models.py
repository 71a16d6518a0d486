import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from typedrag.core.errors import RetrievalError
from typedrag.retrieval.local_models import loading, local_model


def test_threads_share_one_model_and_take_turns():
    loads, inside, most = [], [], []

    @local_model
    def model(name):
        time.sleep(0.02)
        loads.append(name)
        return name.upper()

    def use(name):
        with model(name) as loaded:
            inside.append(name)
            most.append(inside.count(name))
            time.sleep(0.002)
            inside.remove(name)
        return loaded

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, ["a", "b"] * 10)) == ["A", "B"] * 10
    assert sorted(loads) == ["a", "b"] and max(most) == 1


def test_a_model_that_could_not_be_loaded_is_tried_again():
    tries = []

    @local_model
    def model():
        tries.append(1)
        with loading("the model 'x'"):
            if len(tries) < 2:
                raise ValueError("half of it is\nthere")
        return "loaded"

    with pytest.raises(RetrievalError, match="the model 'x' cannot be loaded: half of it is"), model():
        pass
    with model() as loaded:
        assert loaded == "loaded"

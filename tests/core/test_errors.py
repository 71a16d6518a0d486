import pickle

import pytest

from typedrag.core.errors import CallFailed, InputError, StepFailed
from typedrag.core.extras import MissingExtra


@pytest.mark.parametrize(
    "error",
    [
        InputError("no question", "Ask one"),
        StepFailed("decompose", "no reply"),
        MissingExtra("jnius"),
        CallFailed("slow"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_whole_from_another_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)

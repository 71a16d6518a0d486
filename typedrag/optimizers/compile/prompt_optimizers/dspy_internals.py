"""All that the optimizers use of DSPy and gepa beyond their public interfaces, in one place.

`INTERNALS` names each part, why it is used, and a digest of its source as of dspy 3.4.1 and gepa 0.1.4. A test fails
where a newer version has changed one: read the new source then, and give the new digest.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import dspy


class Internal(NamedTuple):
    """A part of DSPy or gepa, as `module:qualified name`, and the digest of its source."""

    part: str
    why: str
    digest: str


INTERNALS = (
    Internal(
        "dspy.teleprompt.mipro_optimizer_v2:MIPROv2._bootstrap_fewshot_examples",
        "overridden: MIPROv2 takes sets of demonstrations in no other way, and its own are not balanced over types",
        "0e47d5b2f3c3091b",
    ),
    Internal(
        "dspy.teleprompt.simba:SIMBA.compile",
        "calls each of `strategies` with a bucket of runs and the candidate, in the order of steps, and tells of no "
        "candidate otherwise",
        "e4ff3bacab30a080",
    ),
    Internal(
        "gepa.core.engine:GEPAEngine.run",
        "draws a progress bar by the module's `tqdm`, which DSPy has no option for",
        "86b554de971bce50",
    ),
)


class MIPROv2(dspy.MIPROv2):
    """DSPy's MIPROv2 with given sets of demonstrations."""

    def __init__(self, demonstrations: Callable[[], list[dspy.Module]], **settings: Any) -> None:
        super().__init__(**settings)
        self._demonstrations = demonstrations

    def _bootstrap_fewshot_examples(
        self, program: dspy.Module, *_: Any, **__: Any
    ) -> dict[int, list[list[dspy.Example]]]:
        sets = [variant.predictors() for variant in self._demonstrations()]
        return {place: [predictors[place].demos for predictors in sets] for place in range(len(program.predictors()))}


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Silence GEPA's progress bar, which would overwrite the caller's on stderr."""
    engine: Any = import_module("gepa.core.engine")
    drawn = engine.tqdm
    engine.tqdm = partial(drawn, disable=True)
    try:
        yield
    finally:
        engine.tqdm = drawn

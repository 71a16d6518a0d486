"""The LMs of a compile: each with the adapter that suits it, metered, and with its replies cached."""

from __future__ import annotations

from typing import Any

import dspy

from typedrag.lms.lm import adapter_for
from typedrag.lms.reply_store import CALL_OBSERVER
from typedrag.lms.spending import metered


class AdapterOfEach(dspy.Adapter):
    """Leaves each call to the adapter that suits its LM.

    Optimizers switch between LMs and know nothing of adapters: without it, an LM whose server constrains decoding
    by a schema and one that follows a template would get the same adapter.
    """

    def __call__(
        self, lm: dspy.LM, lm_kwargs: dict[str, Any], signature: Any, demos: Any, inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The outputs from the LM's own adapter; see `dspy.Adapter`."""
        return adapter_for(lm)(lm, lm_kwargs, signature, demos, inputs)

    async def acall(
        self, lm: dspy.LM, lm_kwargs: dict[str, Any], signature: Any, demos: Any, inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The outputs from the LM's own adapter, for an event loop."""
        return await adapter_for(lm).acall(lm, lm_kwargs, signature, demos, inputs)


def kept(lm: dspy.LM) -> dspy.LM:
    """A copy of an LM that a compile can resume with: its calls are charged, its replies cached.

    It is a copy because optimizers change the LMs that they are given.
    """
    copy = metered(lm.copy(cache=True))
    if CALL_OBSERVER not in copy.callbacks:
        copy.callbacks.append(CALL_OBSERVER)
    return copy

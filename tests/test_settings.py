"""No option that does nothing."""

import importlib
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

import typedrag

MODULES = (
    "programs.options",
    "experiments.config",
    "optimizers.compile.config",
    "optimizers.sweep.config",
    "optimizers.list_ranker.config",
    "retrieval.list_ranker_settings",
    "builders.settings",
)
HANDED_ON = {"LMConfig.timeout", "LMConfig.num_retries"}
"""With all settings of their kind, to `dspy.LM`."""
BY_QUESTION_TYPE = {
    *(f"DecomposeOptions.{kind}" for kind in ("experience", "instruction", "debate")),
    *(f"Options.{kind}" for kind in ("instruction", "debate")),
}
"""Read by the name of the question's type."""
CODE = "\n".join(file.read_text("utf-8") for file in Path(typedrag.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_every_setting_is_read_somewhere(module):
    found = vars(importlib.import_module(f"typedrag.{module}")).values()
    settings = [m for m in found if isinstance(m, type) and issubclass(m, BaseModel) and m.__module__.endswith(module)]
    assert settings
    fields = {f"{m.__name__}.{field}" for m in settings for field in m.model_fields} - HANDED_ON - BY_QUESTION_TYPE
    assert not {name for name in fields if not re.search(rf"\.{name.partition('.')[2]}\b", CODE)}

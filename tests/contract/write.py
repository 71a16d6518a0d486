"""Write the contract: what users, their files and their programs rely on.

    python -m tests.contract.write [NAME]...

After a change on purpose, its diff is the list of what users notice.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typedrag.lms.models import models_dir

DATA = Path(__file__).parent / "data"
PARTS = {
    "command_line": "command_line",
    "config_settings": "configs",
    "config_files": "configs",
    "openapi": "http",
    "streams": "http",
    "mlflow_names": "tracking",
    "prompts": "prompts",
    "answers": "answers",
}
"""By the name of a part, which is that of its function and of its file, the module."""
_WIDTH = 200


def make_part(name: str) -> str:
    """A part of the contract as this code has it."""
    make: Callable[[], Any] = getattr(import_module(f"tests.contract.{PARTS[name]}"), name)
    return f"{_text(make())}\n"


def part_file(name: str) -> Path:
    """The file of a part."""
    return DATA / f"{name}.json"


def write(names: Iterable[str] = ()) -> None:
    """Write some parts; by default all."""
    DATA.mkdir(exist_ok=True)
    models = str(models_dir())  # which nobody wants to fetch again
    with (
        tempfile.TemporaryDirectory() as cache,
        patch.dict(os.environ, {"TYPEDRAG_CACHE": cache, "TYPEDRAG_MODELS": models}),
    ):
        for name in names or PARTS:
            part_file(name).write_text(make_part(name), "utf-8")


def _text(value: Any, indent: str = "") -> str:
    """JSON with sorted keys, in which what fits a line is one."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(indent + line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    deeper = f"{indent} "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + _text(item, deeper) for item in value) + f"\n{indent}]"
    pairs = (f"{deeper}{json.dumps(name)}: {_text(inner, deeper)}" for name, inner in sorted(value.items()))
    return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"


if __name__ == "__main__":
    write(sys.argv[1:])

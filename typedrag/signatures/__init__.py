"""The typed DSPy signatures by which modules ask an LM: a file for each paper, and one for each other concern.

Here is what a new program's own signatures are written with; all others are imported from their file.
"""

import pkgutil
from importlib import import_module

import dspy

from typedrag.signatures.answering import AnswerFromPassages, AnswerWithoutPassages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.roles import Role, plays

__all__ = ["AnswerFromPassages", "AnswerWithoutPassages", "Role", "all_signatures", "plays", "predictor"]


def all_signatures() -> dict[str, type[dspy.Signature]]:
    """All signatures by their names."""
    files = [import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    return {
        name: value
        for file in files
        for name, value in vars(file).items()
        if isinstance(value, type) and issubclass(value, dspy.Signature) and value.__module__ == file.__name__
    }

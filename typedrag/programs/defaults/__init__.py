"""Programs that were compiled for small LMs and come with typedrag: a folder for each, by the LM's name."""

from pathlib import Path

from typedrag.lms.lm import DEFAULT_EMBEDDED
from typedrag.programs.artifact.compiled import PROGRAM
from typedrag.programs.artifact.json_folder import has_part

FOLDER = Path(__file__).parent


def folder_for(lm: str) -> str:
    """The name of an LM's folder: that of the model, whoever serves it; empty if the spec names none.

    Args:
        lm: Its spec.

    Example:
        >>> folder_for("vllm:smollm2-135m"), folder_for("embedded"), folder_for("openai/gpt-4o-mini")
        ('smollm2-135m', 'qwen2.5-coder-1.5b', '')
    """
    kind, _, name = lm.partition(":")
    return name or (DEFAULT_EMBEDDED if kind == "embedded" else "")


def compiled_for(lm: str) -> Path | None:
    """The folder of the `typed_rag` that was compiled for an LM; None if there is none.

    Args:
        lm: Its spec; see `folder_for`.

    Example:
        >>> compiled_for("openai/gpt-4o-mini") is None
        True
    """
    name = folder_for(lm)
    return next((folder for folder in FOLDER.iterdir() if folder.name == name and has_part(folder, PROGRAM)), None)

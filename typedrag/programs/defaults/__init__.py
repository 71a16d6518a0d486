"""Programs that were compiled for small LMs and come with typedrag: a folder for each, by the LM's name."""

from pathlib import Path

from typedrag.lm import DEFAULT_EMBEDDED

FOLDER = Path(__file__).parent


def compiled_for(lm: str) -> Path | None:
    """The folder of the `typed_rag` that was compiled for an LM; None if there is none.

    Args:
        lm: Its spec. Whoever serves it, what counts is the model's name.

    Example:
        >>> compiled_for("openai/gpt-4o-mini") is None
        True
    """
    kind, _, name = lm.partition(":")
    name = name or (DEFAULT_EMBEDDED if kind == "embedded" else "")
    return next((folder for folder in FOLDER.iterdir() if folder.is_dir() and folder.name == name), None)

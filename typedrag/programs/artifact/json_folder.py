"""A folder of JSON files: written whole or not at all, and read as untrusted input."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from typedrag.errors import InputError
from typedrag.files.folders import new_folder
from typedrag.redaction import cleaned
from typedrag.texts.words import encodable

MOST_BYTES = 32 * 1024 * 1024
"""The limit of a file; sixteen demonstrations for each predictor of a program take a fiftieth of it."""


def write_parts(folder: Path, parts: Mapping[str, Any], redact: Callable[[str], str] = str) -> None:
    """Write values as the files of a folder, whole or not at all, in the place of a folder of such files.

    Args:
        folder: Created if need be.
        parts: JSON values by file name; such a folder is recognized by the first file.
        redact: Applied to all texts.

    Raises:
        InputError: If the folder holds anything else, or cannot be written.
    """
    folder = folder.resolve()
    try:
        if folder.exists() and not _may_be_replaced(folder, list(parts)):
            raise InputError(f"{folder} holds something else than a compiled program", "Name another folder")
        texts = {name: _text(values, redact) for name, values in parts.items()}
        with new_folder(folder) as part:
            for name, text in texts.items():
                with (part / name).open("w", encoding="utf-8", newline="\n") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror})", "Name another folder") from None


def has_part(folder: Path, name: str) -> bool:
    """True if a folder has a file of this name."""
    try:
        return (folder / name).is_file()
    except OSError:  # too long a name, or no permission to read the folder
        return False


def read_part(folder: Path, name: str, source: str) -> Any:
    """The values of a file.

    Args:
        folder: The folder.
        name: The name of the file.
        source: The name of the folder in messages.

    Raises:
        InputError: If it is missing, cannot be read, is too large or too deep, or is not JSON.
    """
    if not has_part(folder, name):
        raise InputError(f"{source} lacks its part {name}", "Copy the whole folder, or compile again")
    try:
        with (folder / name).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{source}: {name} cannot be read ({error.strerror})", "Name another folder") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{source}: {name} has more than {MOST_BYTES // 1024**2} MB", "Name another folder")
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InputError(f"{source}: {name} is not JSON ({error})", "Copy the folder again, or compile again") from None


def _may_be_replaced(folder: Path, names: list[str]) -> bool:
    """True if a folder is empty or holds only such files, even broken ones."""
    if not folder.is_dir():
        return False
    held = {entry.name for entry in folder.iterdir()}
    try:
        return not held or (held <= set(names) and "format" in read_part(folder, names[0], str(folder)))
    except (InputError, TypeError):
        return False


def _text(values: Any, redact: Callable[[str], str]) -> str:
    return json.dumps(cleaned(values, lambda text: encodable(redact(text))), ensure_ascii=False, indent=1) + "\n"

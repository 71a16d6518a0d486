"""Digests, which tell whether files have changed."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hash_files(path: Path) -> str:
    """The SHA-256 of a file, or of the names and contents of all files in a folder, in hexadecimal."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        listing = "".join(f"{file.relative_to(path).as_posix()}\n{hash_files(file)}\n" for file in files)
        return hashlib.sha256(listing.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

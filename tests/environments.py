"""Environments into which tests install packages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def new_environment(folder: Path) -> Path:
    """The Python of an environment in a folder; the test is skipped where no package index is in reach."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--retries", "1"]
    reached = subprocess.run(
        [*pip, "download", "--quiet", "--no-deps", "click", "--dest", folder], capture_output=True, text=True
    )
    if reached.returncode:
        pytest.skip(f"no package index is in reach: {reached.stderr.strip().splitlines()[-1]}")
    return python


def install(python: Path, *packages: Path | str) -> None:
    """Install without bytecode, by uv where it has been told where pip looks, which has torch as a CPU build."""
    uv = shutil.which("uv") if "UV_INDEX_STRATEGY" in os.environ else None
    command = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install", "--no-compile"]
    subprocess.run([*command, "--quiet", *packages], check=True)

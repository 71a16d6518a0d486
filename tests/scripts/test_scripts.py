import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "scripts"


def test_what_scripts_import_is_there():
    names = sorted(f"{FOLDER.name}.{file.stem}" for file in FOLDER.glob("*.py"))
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])  # a script's folder is on its path
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(names)}"],
        cwd=FOLDER.parent, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "scripts"


def test_what_scripts_import_is_there():
    names = sorted(f"{FOLDER.name}.{file.stem}" for file in FOLDER.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(names)}"], cwd=FOLDER.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

"""Make a compiled typed_rag the default for its LM: put it into the package.

python scripts/ship_default.py compiled/typed_rag/program

It is shipped without reranker and with the default options, so that it needs nothing but what is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from typedrag.cli.script import run
from typedrag.programs import Options, TypedRAG
from typedrag.programs.compiled import read_compiled, save_compiled
from typedrag.programs.defaults import FOLDER, folder_for


def main() -> None:
    """Parse, check, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the compiled program")
    compiled = read_compiled(parser.parse_args().folder)
    program = compiled.without_index(Options())
    model = folder_for(str(compiled.about.lms["task"]["spec"]))
    if not isinstance(program, TypedRAG) or not model or "/" in model:
        raise SystemExit(
            f"{compiled.source} is a {program.name} for {model}: only a typed_rag for a small LM is shipped"
        )
    if compiled.about.verdict != "better":
        raise SystemExit(f"{compiled.source} is not shown to be better than its base: it is not shipped")
    if any(predictor.demos for predictor in program.predictors()):
        raise SystemExit(f"{compiled.source} holds demonstrations, which are rows of {compiled.about.dataset}")
    save_compiled(program, FOLDER / model, compiled.about)
    print(f"the default for {model} is in {FOLDER / model}")


if __name__ == "__main__":
    run(main)

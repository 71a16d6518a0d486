"""Make a compiled typed_rag the default for its LM: put it into the package.

python scripts/ship_default.py compiled/typed_rag/program

It is shipped without reranker and with the default options, so that it needs nothing but what is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from typedrag.cli.script import run
from typedrag.errors import InputError
from typedrag.programs import Options, TypedRAG
from typedrag.programs.artifact.compiled import read_compiled, save_compiled, uncompiled
from typedrag.programs.artifact.state import named_predictors, state_of
from typedrag.programs.defaults import FOLDER, folder_for
from typedrag.programs.quoted_material import unguarded

SAMPLE = "sample"
"""The dataset that was written for the project, whose rows anybody may have."""


def main() -> None:
    """Parse, check, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the compiled program")
    print(ship(parser.parse_args().folder, FOLDER))


def ship(folder: Path, defaults: Path) -> str:
    """Put a compiled program among the defaults, and say so.

    Args:
        folder: Of the compiled program.
        defaults: The folder of the defaults.

    Raises:
        InputError: If it is no compiled typed_rag for a small LM, was not shown to be better, was
            tested in another form than it would be shipped in, no longer tells the LM not to follow
            instructions in passages, or holds rows of a dataset of other people's.
    """
    compiled = read_compiled(folder)
    about, source = compiled.about, compiled.source
    model = folder_for(str(about.lms.get("task", {}).get("spec", "")))
    if compiled.program != TypedRAG.name or not model or "/" in model:
        raise InputError(
            f"{source} is a {compiled.program} for {model or 'an LM that is not known'}",
            "Ship a typed_rag that was compiled for a small LM",
        )
    if about.verdict != "better":
        raise InputError(f"{source} is not shown to be better than its base", "Compile another")
    own = {
        "reranker": (compiled.reranker, "none"),
        "retriever": (compiled.retriever or TypedRAG.searches, TypedRAG.searches),
        "BM25's settings": (dict(compiled.bm25), {}),
        "options": (compiled.options, Options()),
    }
    if other := [name for name, (is_, default) in own.items() if is_ != default]:
        raise InputError(
            f"{source} was tested with other {' and '.join(other)} than the default's",
            "Compile and test it as it would be shipped",
        )
    program, base = compiled.without_index(), uncompiled(compiled.program)
    if names := unguarded(state_of(base), compiled.state):
        raise InputError(
            f"{source} no longer tells the LM never to follow instructions in passages: {', '.join(names)}",
            "Compile instructions that do",
        )
    bare = named_predictors(base)
    if about.dataset != SAMPLE and any(
        predictor.demos != bare[name].demos for name, predictor in named_predictors(program).items()
    ):
        raise InputError(f"{source} holds demonstrations, which are rows of {about.dataset}", "Compile instructions")
    save_compiled(program, defaults / model, about)
    return f"the default for {model} is in {defaults / model}; read that no instruction quotes a row of {about.dataset}"


if __name__ == "__main__":
    run(main)

"""What scripts share: their flags, how they compile, and what pages of results say of how they were made."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

from typedrag.cli.opening import say
from typedrag.experiments.evaluate.results import Run
from typedrag.optimizers.compile import CompileConfig, CompileProgress, CompileResult, run_compile

CONFIGS = Path(__file__).parents[1] / "configs"


def page_parser(about: str | None, out: str) -> argparse.ArgumentParser:
    """The flags that all of them have.

    Args:
        about: Says what the script does.
        out: Says what --out is the folder of.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help=f"folder of the {out}")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages; default: docs")
    parser.add_argument("--lm", help="the LM that answers and judges; default: that of the configuration")
    parser.add_argument("--api-base", help="address of its server")
    parser.add_argument("--note", default="", help="what a reader must know besides of how it was made")
    return parser


def lm_flags(given: argparse.Namespace) -> dict[str, Any]:
    """The settings of a configuration by which the LM of the flags answers and judges.

    Args:
        given: Parsed by a parser of `page_parser`.
    """
    lm = {"spec": given.lm, "api_base": given.api_base}
    return {"lm": lm, "scorer": lm}


def made_by(role: str, run: Run, note: str) -> str:
    """How a page was made, in paragraphs: the command, and from a run of it the LM and the versions.

    Args:
        role: What the LM did.
        run: Of those that the page tells of.
        note: Follows, if there is one.
    """
    command = shlex.join(["python", f"scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    settings, versions = run.settings, run.settings["versions"]
    commit = f"commit {settings['git commit'][:12]}, " if settings["git commit"] else ""  # an export has none
    return (
        f"Made by the command below on {date.today()}; nothing is edited by hand.\n\n```sh\n{command}\n```\n\n"
        f"{role}: {settings['lm']} ({json.dumps(settings['lm settings'])}), typedrag {versions['typedrag']}, {commit}"
        f"DSPy {versions['dspy']}.\n\n{note}".rstrip()
    )


def compile_or_continue(name: str, config: CompileConfig, out: Path) -> CompileResult:
    """Compile, and say each candidate; what was begun in the folder is continued.

    Args:
        name: That the candidates are said by.
        config: What is to be made.
        out: The folder of the compile.
    """
    watching = CompileProgress(candidate=lambda target, candidate: say(f"{name}: {candidate}"), notice=say)
    return run_compile(config, out, resume=True, watching=watching)

"""Common parts of the scripts: their flags, how they compile, and the paragraph on how a page was made."""

import argparse
import json
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

from typedrag.cli.terminal import say
from typedrag.experiments.results import Run
from typedrag.optimizers.compile import CompileConfig, CompileProgress, CompileResult, run_compile

CONFIGS = Path(__file__).parents[1] / "configs"


def page_parser(about: str | None, out: str) -> argparse.ArgumentParser:
    """A parser of the flags that all scripts have.

    Args:
        about: A description of the script.
        out: The kind of contents of --out's folder.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help=f"folder of the {out}")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages; default: docs")
    parser.add_argument("--lm", help="the LM that answers and judges; default: that of the configuration")
    parser.add_argument("--api-base", help="address of its server")
    parser.add_argument("--note", default="", help="what a reader must know besides of how it was made")
    return parser


def lm_flags(flags: argparse.Namespace) -> dict[str, Any]:
    """The settings of a configuration in which the LM of the flags answers and judges.

    Args:
        flags: Parsed by a parser of `page_parser`.
    """
    lm = {"spec": flags.lm, "api_base": flags.api_base}
    return {"lm": lm, "scorer": lm}


def made_by(role: str, run: Run, note: str) -> str:
    """Paragraphs on how a page was made: the command, and the LM and versions of a run.

    Args:
        role: The LM's role.
        run: One of the page's runs.
        note: Added at the end, if there is one.
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
    """Compile, and print each candidate; continues a compile that was begun in the folder.

    Args:
        name: The name printed with the candidates.
        config: The compile's configuration.
        out: The folder of the compile.
    """
    watching = CompileProgress(candidate=lambda target, candidate: say(f"{name}: {candidate}"), notice=say)
    return run_compile(config, out, resume=True, watching=watching)

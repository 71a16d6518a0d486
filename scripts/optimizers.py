"""Compile a program by several optimizers, all with the same budget, and write their results as a page.

WIKI_NFQA=FOLDER WIKI_NFQA_INDEX=INDEX python scripts/optimizers.py --out optimizers --program rag --modules answer

configs/optimizers.yaml names them; --config configs/compile-antique.yaml compiles on ANTIQUE. All of them share kept
replies and judgments: an optimizer does not pay for calls that another has made, such as the answers of the base.
After a kill, the same command continues.
"""

from pathlib import Path

import yaml
from pages import CONFIGS, compile_or_continue, lm_flags, made_by, page_parser
from summaries import write_full

from typedrag.cli.terminal import run
from typedrag.experiments import read_run
from typedrag.experiments.compare import ALL, Difference
from typedrag.experiments.config_file import read_into
from typedrag.experiments.formats import format_estimate, format_p, markdown_table
from typedrag.experiments.held_out import SCORE, TRUTH
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.optimizers.compile import CompileConfig, CompileResult
from typedrag.optimizers.compile.config import OptimizerConfig
from typedrag.optimizers.compile.run import BASE, TEST

WIKI_NFQA = CONFIGS / "compile-wiki-nfqa.yaml"
MEASURES = (SCORE, TRUTH, "linkage/mrr", "cost/tokens")
COLUMNS = ("optimizer", "candidates", "validation: base", "best", *(f"test: {m}" for m in MEASURES), "p", "verdict")


def main() -> None:
    """Parse, compile, write."""
    parser = page_parser(__doc__, "compiles")
    parser.add_argument("--program", default="rag", help="that is compiled; default: rag")
    parser.add_argument("--config", type=Path, default=WIKI_NFQA, help=f"all else; default: configs/{WIKI_NFQA.name}")
    parser.add_argument("--modules", default="", help="what of it; default: all")
    parser.add_argument("--only", nargs="+", help="optimizers; default: all of configs/optimizers.yaml")
    arguments = parser.parse_args()
    settings = yaml.safe_load((CONFIGS / "optimizers.yaml").read_text("utf-8"))
    flags = {
        "program": {"program": arguments.program},
        "modules": arguments.modules,
        **lm_flags(arguments),
        **{name: settings[name] for name in ("budget", "test_limit")},
    }
    config = read_into(CompileConfig, "compile", arguments.config, flags)
    results = {}
    with use_reply_store(arguments.out / REPLIES):
        for name in arguments.only or settings["optimizers"]:
            optimizer = OptimizerConfig(name=name, options={**settings["examples"], **settings["optimizers"][name]})
            by = config.model_copy(update={"optimizer": optimizer})
            results[name] = compile_or_continue(name, by, arguments.out / name)
    base = read_run(arguments.out / next(iter(results)) / TEST / BASE)
    page = ["# What each optimizer reached", "", made_by("LM, teacher and judge", base, arguments.note), ""]
    page += markdown_table(COLUMNS, [row(name, result) for name, result in results.items()])
    write_full(arguments.docs, "optimizers", "\n".join(page).rstrip() + "\n")


def row(name: str, result: CompileResult) -> tuple[str, ...]:
    """The table row of one optimizer."""
    outcome = result.outcome
    base, best = outcome.base_candidate, outcome.best_candidate
    tried = len({candidate.state for candidate in outcome.candidates}) - 1  # some score the base again
    differences = {d.measure: d for d in result.test.differences if d.stratum == ALL} if result.test else {}
    return (
        name,
        f"{tried}{', ' + outcome.stopped if outcome.stopped else ''}",
        f"{base.score:.3f}" if base else "-",
        f"{best.score:.3f}" if best and best.changed else "none better",
        *(difference(differences.get(measure)) for measure in MEASURES),
        format_p(result.test.p) if result.test else "-",
        (result.test.verdict if result.test else "") or "-",
    )


def difference(test: Difference | None) -> str:
    """The difference between the compiled program and its base."""
    return format_estimate(test.difference, signed=True) if test else "-"


if __name__ == "__main__":
    run(main)

"""Compile TypedRAG and RAG alike, and write the results as a page.

WIKI_NFQA=FOLDER WIKI_NFQA_INDEX=INDEX ANTIQUE=FILE ANTIQUE_INDEX=INDEX python scripts/compiled.py --out compiled

Both are compiled on Wiki-NFQA and tested on its test split. On ANTIQUE, of which they saw nothing, they are
evaluated as configs/antique.yaml describes. Finished work is kept: after a kill, the same command continues.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pages import CONFIGS, compile_or_continue, lm_flags, made_by, page_parser
from results_page import Section, results_page
from summaries import write_full

from typedrag.cli.terminal import run, say
from typedrag.experiments import read_config, read_run, run_evaluation
from typedrag.experiments.compare import compare
from typedrag.experiments.config_file import read_into
from typedrag.experiments.formats import format_estimate, format_p
from typedrag.experiments.held_out import RIGHT, TRUTH
from typedrag.experiments.results import Run
from typedrag.optimizers.compile import CompileConfig, CompileResult
from typedrag.optimizers.compile.run import BASE, COMPILED, PROGRAM, TEST, test_run_name
from typedrag.runs import is_run

PROGRAMS = ("rag", "typed_rag")
BASELINE = "rag, compiled"
MRR = "linkage/mrr"
MEASURES = (
    TRUTH,
    RIGHT,
    MRR,
    "linkage/expected_rank",
    "linkage/mpr",
    "similarity/reference",
    "cost/tokens",
    "cost/lm_calls",
)


def main() -> None:
    """Parse, compile, evaluate, write."""
    args = page_parser(__doc__, "compiles").parse_args()
    lms = lm_flags(args)
    results = {name: compiled(name, args.out / name, lms) for name in PROGRAMS}
    runs = [run for name in results for run in tests_of(name, args.out / name)]
    pages = [section("wiki-nfqa, test split", runs, f"{verdicts(results)} {gained(runs)}"), elsewhere(args.out, lms)]
    about = [made_by("LM, teacher and judge", runs[0], args.note)]
    write_full(args.docs, "compiled", results_page("What compiling is worth", about, pages))


def compiled(name: str, out: Path, lms: dict[str, Any]) -> CompileResult:
    """Compile a program, or continue its compile."""
    flags = {"program": {"program": name}, **lms}
    config = read_into(CompileConfig, "compile", CONFIGS / "compile-wiki-nfqa.yaml", flags)
    return compile_or_continue(name, config, out)


def tests_of(name: str, out: Path) -> list[Run]:
    """The runs of the base and the compiled program over the test split."""
    folders = {BASE: out / TEST / BASE, COMPILED: out / TEST / test_run_name(out / PROGRAM)}
    return [replace(read_run(f), name=f"{name}, {which}") for which, f in folders.items() if is_run(f)]


def elsewhere(out: Path, lms: dict[str, Any]) -> Section:
    """The same programs on ANTIQUE."""
    programs = [
        {"program": source, "name": f"{name}-{which}", "reranker": "bi-encoder"}
        for name in PROGRAMS
        for which, source in ((BASE, name), (COMPILED, str(out / name / "program")))
    ]
    flags = {"programs": programs, "metrics": ["linkage", "similarity", "retrieval"], **lms}
    config = read_config(CONFIGS / "antique.yaml", flags)
    evaluated = list(run_evaluation(config, out / "antique", resume=True, on_notice=say))
    runs = [replace(e.run, name=e.run.name.replace("-", ", ")) for e in evaluated]
    return section("antique, of which nothing was seen", runs, gained(runs))


def section(title: str, runs: Sequence[Run], about: str) -> Section:
    """The runs over one dataset, against compiled RAG."""
    names = [run.name for run in runs]
    baseline = names.index(BASELINE) if BASELINE in names else 0
    measures = [m for m in MEASURES if m.startswith("cost/") or m in runs[0].measures]
    return Section(title, runs, baseline, measures, {}, about)


def verdicts(results: dict[str, CompileResult]) -> str:
    """The verdict of each compile's own test, in sentences."""
    lines = []
    for name, result in results.items():
        overall = result.test.overall if result.test else None
        spent = f"{result.spent.usage.lm_calls:,} LM calls and {result.spent.tokens:,} tokens"
        if overall is None or result.test is None:
            lines.append(f"{name}: no candidate did better than the base on the validation examples ({spent}).")
            continue
        lines.append(
            f"{name}: {result.test.verdict or 'neither better nor worse'} than its base by what it was compiled "
            f"against, {format_estimate(overall.difference, signed=True)}, p {format_p(result.test.p)} ({spent})."
        )
    return " ".join(lines)


def gained(runs: Sequence[Run]) -> str:
    """The gain in rank of each compiled program over its base, in sentences."""
    by_name = {run.name: run for run in runs}
    lines = []
    for name in PROGRAMS:
        pair = [by_name[n] for n in (f"{name}, {BASE}", f"{name}, {COMPILED}") if n in by_name]
        for gain in compare(pair, measures=[MRR], by=(), force=True).differences if len(pair) == 2 else ():
            difference, p = format_estimate(gain.difference, signed=True), format_p(gain.p)
            lines.append(f"{name}, compiled less base: {MRR} {difference}, p {p}.")
    return " ".join(lines)


if __name__ == "__main__":
    run(main)

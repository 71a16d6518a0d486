"""`typedrag research judges`: check judges against people's labels, and let one compare runs."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.core import ParameterSource
from pydantic import DirectoryPath, Field, FilePath, PositiveInt

from typedrag.cli import options
from typedrag.cli.terminal import RunsProgress, claim_file, draw_table, echo, print_json, say
from typedrag.core.errors import InputError
from typedrag.experiments.results import read_run
from typedrag.files.text_files import write_text
from typedrag.lms.models import cache_dir
from typedrag.lms.specs import split_address

if TYPE_CHECKING:
    import dspy

    from typedrag.datasets import Dataset
    from typedrag.experiments.judges.pairwise import PairwiseComparison

_SCORER = "The LM behind the judges, as --lm of typedrag ask. Default: TYPEDRAG_LM, else embedded."
APIBase = Annotated[
    str | None, "Address of its server. For vllm, default: TYPEDRAG_API_BASE.", "--scorer-api-base", "--api-base"
]
Threads = Annotated[PositiveInt, "Judgments at once."]
Replies = Annotated[Path | None, "File that stores LM replies."]
OLD = {"--judgments": "--replies"}


@click.group(name="judges")
def command() -> None:
    """Check judges against people's labels, and let a judge compare runs."""


@options.command(group=command, timeout=True, old=OLD)
def check(
    ctx: click.Context,
    *,
    scorers: Annotated[tuple[str, ...], "--scorer", _SCORER] = (),
    scorer_api_base: APIBase = None,
    threads: Threads = 16,
    replies: Replies = None,
    data: Annotated[
        DirectoryPath | None,
        "Folder of labels, with folders linkage, wiki_nfqa, webgpt, sub_questions and nf_cats as published.",
    ] = None,
    paths: Annotated[tuple[str, ...], options.Metavar("DATASET=PATH"), "--path", "Labels of one dataset."] = (),
    nuggets: Annotated[FilePath | None, "Nuggets of the questions, by typedrag datasets build nuggets."] = None,
    limit: Annotated[PositiveInt | None, "Maximum questions, or answers, of each dataset; default: all."] = None,
    candidates: Annotated[int, Field(ge=2), "Answers judged per question."] = 4,
    seed: Annotated[int, "Random seed."] = 0,
    compiled: Annotated[
        tuple[DirectoryPath, ...], options.Metavar("FOLDER"),
        "Instead, check a compiled judge against the one it was compiled from, on the test split.",
    ] = (),
    out: Annotated[Path | None, "Write the page to this Markdown file."] = None,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Measure the agreement of judges with people's labels.

    The judges are those of answers (LINKAGE, grades, pairwise), of sub-questions (types, coverage) and of
    question types, beside baselines without an LM; --scorer none checks only these. Without --data and
    --path, labels are read from their public homes. The LM's replies are stored in --replies as they
    come (by default in typedrag's cache folder): after an interruption, the same command makes only the
    missing ones.

    A compiled judge is used only with LMs for which --compiled has found that it agrees better with
    people; the result is written into its folder. The exit status is 1 if a judge does not.
    """
    from typedrag.experiments.judges.check import check_judges, judges_page
    from typedrag.experiments.judges.judging import CheckSettings, Scorer
    from typedrag.lms.replies import use_reply_store
    from typedrag.lms.specs import default_spec
    from typedrag.optimizers.compile.held_out import check_saved_judge

    out = out and claim_file(out)
    datasets = _read_labels(data, paths, nuggets)
    specs = [spec for spec in scorers or (default_spec(),) if spec != "none"]
    lms = [Scorer(split_address(spec)[0], _open_scorer(spec, scorer_api_base, threads)) for spec in specs]
    settings = CheckSettings(limit=limit, candidates=candidates, seed=seed, threads=threads)
    with use_reply_store(replies or cache_dir() / "judges-replies.sqlite"), RunsProgress(label="{}") as shown:
        if compiled:
            checks = [
                (f, s, check_saved_judge(f, datasets, s, settings, listener=shown.show)) for f in compiled for s in lms
            ]
            for folder, scorer, agreement in checks:
                better = "better" if agreement.is_better else "not shown to be better"
                say(f"{folder}, {scorer.name}: {better}: {agreement}")
            if as_json:
                print_json(*({"folder": str(folder), **asdict(agreement)} for folder, _, agreement in checks))
            ctx.exit(0 if checks and all(agreement.is_better for _, _, agreement in checks) else 1)
        report = check_judges(datasets, lms, settings, listener=shown.show)
    page = judges_page(report, _command_line(ctx))
    if out:
        write_text(out, page)
        say(str(out))
    if as_json:
        print_json(asdict(report))
    elif not out:
        echo(page, nl=False)


@options.command(group=command, timeout=True, old=OLD)
def pairwise(
    folders: Annotated[tuple[Path, ...], options.Metavar("RUN RUN…")],
    *,
    scorer: Annotated[str | None, _SCORER] = None,
    scorer_api_base: APIBase = None,
    threads: Threads = 16,
    replies: Replies = None,
    plain: Annotated[bool, "Tell the judge no more than the paper does, and let it call no tie."] = False,
    out: Annotated[Path | None, "Output; default: pairwise.json beside the first RUN."] = None,
    as_json: options.Json = False,
) -> None:
    """Compare the answers of finished RUNs, each pair in both orders.

    The LM's replies are stored in --replies as they come (by default replies.sqlite beside the first
    RUN): after an interruption, the same command makes only the missing ones.
    """
    from typedrag.experiments.judges.pairwise import FILE, compare_pairwise, write_pairwise
    from typedrag.lms.replies import REPLIES, use_reply_store

    runs = [read_run(folder) for folder in folders]
    beside = folders[0].resolve().parent
    out = claim_file(out or beside / FILE)
    lm = _open_scorer(scorer, scorer_api_base, threads)
    with use_reply_store(replies or beside / REPLIES), RunsProgress(label="{}") as shown:
        comparison = compare_pairwise(runs, lm, plain=plain, threads=threads, listener=shown.show)
    write_pairwise(comparison, out)
    if as_json:
        print_json(comparison.to_dict())
    else:
        _draw(comparison)
    for reason, number in comparison.left_out.items():
        say(f"left out: {number} ({reason})")
    say(f"{comparison.spent.usage.in_words()}, {comparison.seconds:.0f} s: {out}")


def _open_scorer(spec: str | None, api_base: str | None, threads: int) -> dspy.LM:
    from typedrag.lms.client import limit_calls_in_flight
    from typedrag.lms.lm import open_lm

    limit_calls_in_flight(threads)
    return open_lm(spec, api_base=api_base, role="scorer", cache=True)


def _read_labels(data: Path | None, paths: tuple[str, ...], nuggets: Path | None) -> dict[str, Dataset]:
    """The datasets of labels that are named or found, with nuggets; a message names those left out."""
    from typedrag.datasets import load_dataset, with_nuggets
    from typedrag.experiments.judges.check import CHECKED

    named: dict[str, Path] = {}
    for assignment in paths:
        name, equals, path = assignment.partition("=")
        if not equals or name not in CHECKED:
            raise InputError(f"--path {assignment} names no labels", f"Write DATASET=PATH, of {', '.join(CHECKED)}")
        named[name] = Path(path)
    places: dict[str, Path | None] = {}
    for name, checked in CHECKED.items():
        place = named.get(name) or (data and checked.find(data))
        if place or not (data or paths or checked.homeless):
            places[name] = place
    if not places:
        files = ", ".join(checked.files for checked in CHECKED.values())
        raise InputError(f"--data {data} holds no labels", f"Name a folder with any of {files}")
    for name in [name for name in CHECKED if name not in places]:
        say(f"{name}: no labels are given, so none are checked")
    datasets = {name: load_dataset(name, place, **CHECKED[name].options) for name, place in places.items()}
    return {name: with_nuggets(dataset, nuggets) if nuggets else dataset for name, dataset in datasets.items()}


def _command_line(ctx: click.Context) -> str:
    words = ["typedrag", "research", "judges", "check"]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        source = ctx.get_parameter_source(parameter.name or "")
        if value is None or source not in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            continue  # some options are used by their callbacks and have no value here
        for item in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0]] if item is True else [parameter.opts[0], str(item)]
    return shlex.join(words)


def _draw(comparison: PairwiseComparison) -> None:
    cells = {}
    for rate in comparison.win_rates:
        failed = f", {rate.failed} failed" if rate.failed else ""
        likelier = f"\nlikelier: {rate.likelier}" if rate.likelier else ""
        counts = f"{rate.wins} won, {rate.ties} tied, {rate.losses} lost{failed}"
        cells[rate.run, rate.other] = f"{rate.rate or '–'}\n{counts}{likelier}"
    draw_table(
        ["", *comparison.runs],
        [[run, *(cells.get((run, other), "–") for other in comparison.runs)] for run in comparison.runs],
        title="How often the run in the row is preferred to the one in the column",
        left=comparison.runs,
    )
    if comparison.first_place is not None:
        echo(
            f"The judge preferred the answer in the first place in {comparison.first_place:.0%} of its preferences; "
            f"both orders agree on {comparison.consistency:.0%} of the questions."
        )

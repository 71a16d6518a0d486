"""`typedrag ranker`: train a list ranker, and measure rankers on pools of passages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import claim, say
from typedrag.cli.options import assignments, nested, timeout_option, tracking_options

if TYPE_CHECKING:
    import dspy

    from typedrag.optimizers.list_ranker.measures import RankerReport

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(name="ranker")
def command() -> None:
    """Train a list ranker (RichRAG), and measure rankers on pools of passages."""


@command.command()
@click.option("--dataset", help="Dataset of graded passages, such as antique, or of sub-answers, such as wikiasp.")
@click.option("--path", type=click.Path(path_type=Path), help="File or folder of the dataset; default: its home.")
@assignments("--dataset-option", "loading", help="Option of the dataset's loader, such as per_domain=517.")
@click.option("--split", default="train", show_default=True, help="train, validation, test or all.")
@click.option("--limit", type=click.IntRange(1), help="Questions, drawn in turn from each subset and type.")
@click.option("--index", type=click.Path(path_type=Path), help="Of its passages. Default: TYPEDRAG_INDEX.")
@click.option(
    "--retriever",
    default="bm25",
    show_default=True,
    help="bm25, dense, hybrid[:WEIGHT], auto, http://HOST:PORT, milvus:… or pyserini:…",
)
@click.option(
    "--depth", type=click.IntRange(1), default=50, show_default=True, help="Passages retrieved per question or aspect."
)
@click.option(
    "--pool-limit",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    help="Maximum passages of a pool; 0 keeps all.",
)
@click.option(
    "--aspects",
    type=click.Choice(["golden", "predicted", "none"]),
    default="golden",
    show_default=True,
    help="Sub-aspects to search for: the dataset's, those that an LM names, or the question alone.",
)
@click.option(
    "--merge",
    type=click.Choice(["turns", "fusion"]),
    default="turns",
    show_default=True,
    help="Order of a pool: the first passages of all sub-aspects in turn, or reciprocal rank fusion.",
)
@click.option(
    "--program",
    default="richrag",
    show_default=True,
    help="Whose explorer names sub-aspects, such as the folder of a compiled richrag.",
)
@click.option("--lm", help="LM that names them. Default: TYPEDRAG_LM, else embedded.")
@click.option("--api-base", help="Address of its server.")
@timeout_option
@click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once.")
@click.option("--store", type=_FILE, help="Store of its replies. Default: beside --out.")
@click.option("--missed/--no-missed", default=True, show_default=True, help="Add labelled passages not retrieved.")
@click.option(
    "--run", "runs", multiple=True, type=click.Path(path_type=Path), help="A run with coverage of passages; repeatable."
)
@click.option("--out", required=True, type=_FILE, help="The JSONL file to write.")
def pools(
    dataset: str | None,
    path: Path | None,
    loading: dict[str, Any],
    split: str,
    limit: int | None,
    index: Path | None,
    retriever: str,
    depth: int,
    pool_limit: int,
    aspects: str,
    merge: str,
    program: str,
    lm: str | None,
    api_base: str | None,
    threads: int,
    store: Path | None,
    missed: bool,
    runs: tuple[Path, ...],
    out: Path,
) -> None:
    """Make pools from a dataset's graded passages or sub-answers, or from runs whose passages were judged.

    A pool is a question with candidate passages and their worth, as a line of JSON. The LM's replies are stored in
    --store as they come: after an interruption, the same command asks only for the missing ones.
    """
    from typedrag.core.errors import InputError
    from typedrag.datasets.dataset import load_dataset, sample
    from typedrag.datasets.richrag import write_pools
    from typedrag.experiments.results import read_run
    from typedrag.optimizers.list_ranker.pools import (
        find_scale,
        golden_aspects,
        has_sub_answers,
        pools_from_labels,
        pools_from_runs,
        pools_from_sub_answers,
    )
    from typedrag.retrieval import open_retriever

    if bool(dataset) == bool(runs):
        raise InputError("pools are made of a dataset or of runs", "Name either --dataset or --run")
    claim(out)
    if dataset:
        loaded = load_dataset(dataset, path, **loading)
        examples = loaded.split(split)
        drawn = sample(examples, limit or len(examples))
        searched = open_retriever(retriever, index)
        if has_sub_answers(drawn):
            known: dict[str, list[str]] = {}
            if aspects == "golden":
                known = golden_aspects(drawn)
            elif aspects == "predicted":
                from typedrag.lms.lm import open_lm, use_lm
                from typedrag.lms.replies import use_reply_store

                replies = store or out.with_name(f"{out.name}.sqlite")
                with use_reply_store(replies), use_lm(open_lm(lm, api_base=api_base)):
                    known = _predicted(drawn, program, threads)
            limit, fuse = pool_limit or None, merge == "fusion"
            built = list(pools_from_sub_answers(drawn, searched, known, depth=depth, limit=limit, fuse=fuse))
        elif aspects != "golden" or merge != "turns":
            raise InputError(
                "questions without sub_answers are searched for as they are", "Leave out --aspects and --merge"
            )
        else:
            built = list(pools_from_labels(drawn, searched, find_scale(loaded.examples), depth=depth, missed=missed))
        left_out = len(drawn) - len(built)
        if left_out:
            say(f"{left_out} of {len(drawn)} questions have no relevant passage there, and make no pool")
    else:
        built = pools_from_runs([read_run(folder) for folder in runs])
    count = write_pools(out, built)
    say(f"{count:,} pools with {sum(len(p.passages) for p in built):,} passages: {out}")


def _predicted(examples: Sequence[dspy.Example], program: str, threads: int) -> dict[str, list[str]]:
    """The sub-aspects that the explorer of a program names for questions."""
    from typedrag.cli.progress import RunsProgress
    from typedrag.core.errors import InputError
    from typedrag.experiments.loading import program_source
    from typedrag.lms.client import limit_calls_in_flight
    from typedrag.optimizers.list_ranker.pools import predicted_aspects
    from typedrag.programs import RichRAG
    from typedrag.runs.work import Stages

    source = program_source(program)
    built = source.without_index(source.options(as_published=False))
    if not isinstance(built, RichRAG):
        raise InputError(f"program '{source.name}' has no sub-aspect explorer", "Name richrag, or a compiled one")
    limit_calls_in_flight(threads)
    with RunsProgress(label="{}") as shown:
        named = predicted_aspects(examples, built.strategy.explorer, Stages(threads, listener=shown.show))
    if unread := sum(not aspects for aspects in named.values()):
        say(f"the sub-aspects of {unread} of {len(examples)} questions cannot be read: they are searched for alone")
    return named


@command.command()
@click.option("--data", type=_FILE, help="Pools to train on.")
@click.option("--validation", type=_FILE, help="Pools to choose the best weights by. Default: the last ones.")
@click.option("--start", help="An encoder or encoder-decoder (a known model, folder or hub name), or a list ranker.")
@click.option("--stage", type=click.Choice(["sft", "dpo"]), help="sft: silver lists; dpo: preferences. Default: sft.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the training.")
@click.option("--resume", is_flag=True, help="Continue an interrupted training.")
@click.option("--config", type=_FILE, help="YAML file of settings; other options override it.")
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE",
    help="Setting of the training, such as epochs=5, or of the config by its path, such as lm.max_tokens=256.",
)  # fmt: skip
@assignments("--ranker", help="Setting of a new ranker, such as max_tokens=256.")
@assignments("--pairs", "preferences", help="Setting of how pairs are made, such as samples=16.")
@click.option("--reward", type=click.Choice(["generator", "ncom"]), help="What rates a list. Default: generator.")
@click.option("--lm", "lm__spec", help="The generator. Default: TYPEDRAG_LM, else embedded.")
@timeout_option
@click.option("--api-base", "lm__api_base", help="Address of its server.")
@click.option(
    "--minutes", "training__minutes", type=click.FloatRange(min=0, min_open=True),
    help="Stop after this many minutes; continue with --resume.",
)  # fmt: skip
@tracking_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def train(config: Path | None, out: Path, resume: bool, as_json: bool, settings: tuple[str, ...], **flags: Any) -> None:
    """Train a list ranker on pools; `list:OUT/ranker` is then a reranker.

    Train first with --stage sft from an encoder, then optionally with --stage dpo from the resulting
    ranker, by the answers that a generator writes from its lists.
    """
    from typedrag.cli.progress import RunsProgress, counting
    from typedrag.experiments.config_file import read_into
    from typedrag.optimizers.list_ranker.run import RankerTrainConfig, TrainingProgress, train_ranker

    known = RankerTrainConfig.model_fields
    paths = [s if s.partition("=")[0].partition(".")[0] in known else f"training.{s}" for s in settings]
    if flags["training__minutes"] is not None:
        paths.append(f"training.minutes={flags['training__minutes']}")
    training = read_into(RankerTrainConfig, "ranker train", config, nested(flags), paths)
    with counting("steps") as on_progress, RunsProgress(label="{}") as shown:
        trained = train_ranker(
            training,
            out,
            resume=resume,
            watching=TrainingProgress(
                listener=shown.show, step=lambda s: on_progress(s.step, f"of {s.steps}, loss {s.loss:.3f}"), notice=say
            ),
        )
    outcome = trained.outcome
    if outcome.stopped:
        say("out of time: continue with --resume")
    if outcome.best_step is not None:
        say(f"kept the weights of step {outcome.best_step}: {outcome.validated.get(outcome.best_step, 0):.3f}")
    if as_json:
        click.echo(json.dumps(trained.to_dict(), indent=1))
    else:
        click.echo(f"list:{trained.folder}")


@command.command()
@click.argument("ranker")
@click.option("--data", required=True, type=_FILE, help="Pools to rank.")
@click.option(
    "--against",
    multiple=True,
    default=("none", "bi-encoder"),
    show_default=True,
    help="A ranker to compare with; repeatable. none keeps the order of the pools.",
)
@click.option("-k", "--cutoff", type=click.IntRange(1), default=10, show_default=True, help="Cutoff of nDCG and NCOM.")
@click.option("--limit", type=click.IntRange(1), help="Use only the first pools.")
@click.option("--lm", help="LM of lm-pointwise and lm-listwise. Default: TYPEDRAG_LM, else embedded.")
@timeout_option
@click.option("--api-base", help="Address of its server.")
@click.option("--seed", default=0, show_default=True, help="Random seed of the resampling.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the values of each pool.")
def evaluate(
    ranker: str,
    data: Path,
    against: tuple[str, ...],
    cutoff: int,
    limit: int | None,
    lm: str | None,
    api_base: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Measure RANKER by nDCG, MAP and NCOM on pools, and compare it with others.

    RANKER and --against are named as for --reranker, such as list:FOLDER.
    """
    from contextlib import nullcontext

    from typedrag.cli.progress import counting
    from typedrag.datasets.richrag import read_pools
    from typedrag.lms.lm import open_lm, use_lm
    from typedrag.optimizers.list_ranker.measures import evaluate_rankers
    from typedrag.retrieval import open_reranker

    data_pools = read_pools(data)[:limit]
    rankers = {spec: open_reranker(spec) for spec in dict.fromkeys([ranker, *against])}
    asks = any(spec.startswith("lm-") for spec in rankers)
    names = list(rankers)
    with (
        use_lm(open_lm(lm, api_base=api_base)) if asks else nullcontext(),
        counting("pools", len(data_pools) * len(rankers)) as show,
    ):
        report = evaluate_rankers(
            data_pools,
            rankers,
            k=cutoff,
            seed=seed,
            on_progress=lambda name, done: show(names.index(name) * len(data_pools) + done, name),
        )
    if as_json:
        click.echo(json.dumps(asdict(report), indent=1))
    else:
        _draw(report)


def _draw(report: RankerReport) -> None:
    from typedrag.cli.tables import draw_table, wide_console
    from typedrag.experiments.formats import format_estimate, format_p
    from typedrag.optimizers.list_ranker.measures import MEASURES

    console = wide_console(160)
    heads = {"ndcg": f"nDCG@{report.k}", "map": "MAP", "ncom": f"NCOM@{report.k}"}
    draw_table(
        ["ranker", *(heads[m] for m in MEASURES), "seconds a pool", "pools with unreadable replies"],
        [
            [s.ranker, *(format_estimate(s.means.get(m)) for m in MEASURES), f"{s.seconds:.3f}", str(s.failed)]
            for s in report.scores
        ],
        title=f"rankers on {report.pools} pools",
        console=console,
    )
    if report.comparisons:
        draw_table(
            ["ranker", "measure", "n", "difference", "corrected p"],
            [
                [
                    c.baseline,
                    heads[c.measure],
                    str(c.difference.n),
                    format_estimate(c.difference, signed=True),
                    format_p(c.p),
                ]
                for c in report.comparisons
            ],
            title=f"{report.scores[0].ranker} less the others",
            left=["measure"],
            console=console,
        )

"""`typedrag research ranker`: train a list ranker, and measure rankers on pools of passages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
from pydantic import NonNegativeInt, PositiveInt

from typedrag.cli import options
from typedrag.cli.terminal import RunsProgress, claim_file, counting, draw_table, echo, print_json, say, wide_console
from typedrag.core.errors import InputError
from typedrag.experiments.formats import format_estimate, format_p
from typedrag.experiments.results import read_run
from typedrag.optimizers.list_ranker.config import RankerTrainConfig
from typedrag.runs import Stages

if TYPE_CHECKING:
    import dspy

    from typedrag.optimizers.list_ranker.measures import RankerReport


@click.group(name="ranker")
def command() -> None:
    """Train a list ranker (RichRAG), and measure rankers on pools of passages."""


@options.command(group=command, timeout=True, old={"--depth": "--top-k", "--store": "--replies"})
def pools(
    *,
    dataset: Annotated[
        str | None, "Dataset of graded passages, such as antique, or of sub-answers, such as wikiasp."
    ] = None,
    path: Annotated[Path | None, "File or folder of the dataset; default: its home."] = None,
    loading: Annotated[
        dict[str, Any], "--dataset-option", "Option of the dataset's loader, such as per_domain=517; repeatable."
    ],
    split: Annotated[str, "train, validation, test or all."] = "train",
    limit: Annotated[PositiveInt | None, "Questions, drawn in turn from each subset and type."] = None,
    index: Annotated[Path | None, "Of its passages. Default: TYPEDRAG_INDEX."] = None,
    retriever: Annotated[str, "bm25, dense, hybrid[:WEIGHT], auto, http://HOST:PORT, milvus:… or pyserini:…"] = "bm25",
    top_k: Annotated[PositiveInt, "-k", "Passages retrieved per question or aspect."] = 50,
    pool_limit: Annotated[NonNegativeInt, "Maximum passages of a pool; 0 keeps all."] = 60,
    aspects: Annotated[
        Literal["golden", "predicted", "none"],
        "Sub-aspects to search for: the dataset's, those that an LM names, or the question alone.",
    ] = "golden",
    candidates: Annotated[
        Path | None, "A candidate file of RichRAG's authors for --dataset richrag, instead of a search."
    ] = None,
    merge: Annotated[
        Literal["turns", "fusion"],
        "Order of a pool: the first passages of all sub-aspects in turn, or reciprocal rank fusion.",
    ] = "turns",
    program: Annotated[
        str, "Whose explorer names sub-aspects, such as the folder of a compiled richrag."
    ] = "richrag",
    lm: Annotated[str | None, "LM that names them. Default: TYPEDRAG_LM, else embedded."] = None,
    api_base: Annotated[str | None, "Address of its server."] = None,
    threads: Annotated[PositiveInt, "LM calls at once."] = 16,
    replies: Annotated[Path | None, "Store of its replies. Default: beside --out."] = None,
    missed: Annotated[bool, "Add labelled passages not retrieved."] = True,
    runs: Annotated[tuple[Path, ...], "--run", "A run with coverage of passages."] = (),
    out: Annotated[Path, "The JSONL file to write."],
) -> None:  # fmt: skip
    """Make pools from a dataset's graded passages or sub-answers, or from runs whose passages were judged.

    A pool is a question with candidate passages and their worth, as a line of JSON. The LM's replies are stored in
    --replies as they come: after an interruption, the same command asks only for the missing ones.
    """
    from typedrag.datasets.dataset import load_dataset, sample
    from typedrag.datasets.richrag import read_candidates, write_pools
    from typedrag.lms.lm import open_lm, use_lm
    from typedrag.lms.replies import use_reply_store
    from typedrag.optimizers.list_ranker import pools as making
    from typedrag.retrieval import open_retriever

    if bool(dataset) == bool(runs):
        raise InputError("pools are made of a dataset or of runs", "Name either --dataset or --run")
    claim_file(out)
    if dataset:
        loaded = load_dataset(dataset, path, **loading)
        examples = loaded.split(split)
        drawn = sample(examples, limit or len(examples))
        if candidates and not making.has_sub_answers(drawn):
            raise InputError(f"the questions of {dataset} have no sub_answers", "Leave out --candidates")
        if candidates:
            built = list(making.pools_from_candidates(drawn, read_candidates(candidates), limit=pool_limit or None))
        elif making.has_sub_answers(drawn):
            searched = open_retriever(retriever, index)
            known: dict[str, list[str]] = {}
            if aspects == "golden":
                known = making.golden_aspects(drawn)
            elif aspects == "predicted":
                store = replies or out.with_name(f"{out.name}.sqlite")
                with use_reply_store(store), use_lm(open_lm(lm, api_base=api_base)):
                    known = _predict_aspects(drawn, program, threads)
            most, fuse = pool_limit or None, merge == "fusion"
            built = list(making.pools_from_sub_answers(drawn, searched, known, depth=top_k, limit=most, fuse=fuse))
        elif aspects != "golden" or merge != "turns":
            problem = "questions without sub_answers are searched for as they are"
            raise InputError(problem, "Leave out --aspects and --merge")
        else:
            scale = making.find_scale(loaded.examples)
            searched = open_retriever(retriever, index)
            built = list(making.pools_from_labels(drawn, searched, scale, depth=top_k, missed=missed))
        if left_out := len(drawn) - len(built):
            say(f"{left_out} of {len(drawn)} questions have no relevant passage there, and make no pool")
    else:
        built = making.pools_from_runs([read_run(folder) for folder in runs])
    count = write_pools(out, built)
    say(f"{count:,} pools with {sum(len(p.passages) for p in built):,} passages: {out}")


def _predict_aspects(examples: Sequence[dspy.Example], program: str, threads: int) -> dict[str, list[str]]:
    """The sub-aspects that the explorer of a program names for questions."""
    from typedrag.experiments.loading import program_source
    from typedrag.lms.client import limit_calls_in_flight
    from typedrag.optimizers.list_ranker.pools import predicted_aspects
    from typedrag.programs import RichRAG

    source = program_source(program)
    built = source.without_index(source.options())
    if not isinstance(built, RichRAG):
        raise InputError(f"program '{source.name}' has no sub-aspect explorer", "Name richrag, or a compiled one")
    limit_calls_in_flight(threads)
    with RunsProgress(label="{}") as shown:
        named = predicted_aspects(examples, built.strategy.explorer, Stages(threads, listener=shown.show))
    if unread := sum(not aspects for aspects in named.values()):
        say(f"the sub-aspects of {unread} of {len(examples)} questions cannot be read: they are searched for alone")
    return named


@options.command(name="import", group=command)
def import_(
    checkpoint: Path,
    *,
    base: Annotated[str, "The T5 that it was trained from: a folder, or a name on the hub."] = "google/flan-t5-base",
    out: Annotated[Path, click.Path(path_type=Path, file_okay=False), "Folder of the ranker."],
) -> None:
    """Make a list ranker of CHECKPOINT, the model.safetensors of RichRAG's authors; `list:OUT` is then a reranker."""
    from typedrag.retrieval.list_ranker import import_list_ranker
    from typedrag.retrieval.local_models import loading

    with loading(f"the ranker of {checkpoint}"):
        import_list_ranker(checkpoint, base).save(out)
    echo(f"list:{out}")


@options.command(
    options.field_options(
        RankerTrainConfig, "data", "validation", "start", "stage", "reward",
        ("lm.spec --lm", "The generator. Default: TYPEDRAG_LM, else embedded."),
        ("lm.api_base", "Address of its server."),
        ("training.minutes", "Stop after this many minutes; continue with --resume."),
        "tracking.enabled --tracking", "tracking.uri --tracking-uri", "tracking.experiment --experiment",
    ),
    group=command,
    timeout=True,
)  # fmt: skip
def train(
    *,
    out: Annotated[Path, click.Path(path_type=Path, file_okay=False), "Folder of the training."],
    resume: Annotated[bool, "Continue an interrupted training."] = False,
    config: options.ConfigFile = None,
    settings: Annotated[
        tuple[str, ...], options.Metavar("PATH=VALUE"), "--set",
        "Setting of the training, such as epochs=5, or of the config by its path, such as lm.max_tokens=256.",
    ] = (),
    ranker: Annotated[dict[str, Any], "Setting of a new ranker, such as max_tokens=256; repeatable."],
    preferences: Annotated[dict[str, Any], "--pairs", "Setting of how pairs are made, such as samples=16; repeatable."],
    as_json: options.Json = False,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Train a list ranker on pools; `list:OUT/ranker` is then a reranker.

    Train first with --stage sft from an encoder, then optionally with --stage dpo from the resulting
    ranker, by the answers that a generator writes from its lists.
    """
    from typedrag.experiments.config_file import read_into
    from typedrag.optimizers.list_ranker.run import TrainingProgress, train_ranker

    known = RankerTrainConfig.model_fields
    paths = [s if s.partition("=")[0].partition(".")[0] in known else f"training.{s}" for s in settings]
    if minutes := values.pop("training")["minutes"]:
        paths.append(f"training.minutes={minutes}")
    values |= {"ranker": ranker, "preferences": preferences}
    training = read_into(RankerTrainConfig, "research ranker train", config, values, paths)
    with counting("steps") as on_progress, RunsProgress(label="{}") as shown:
        watching = TrainingProgress(
            listener=shown.show, step=lambda s: on_progress(s.step, f"of {s.steps}, loss {s.loss:.3f}"), notice=say
        )
        trained = train_ranker(training, out, resume=resume, watching=watching)
    outcome = trained.outcome
    if outcome.stopped:
        say("out of time: continue with --resume")
    if outcome.best_step is not None:
        say(f"kept the weights of step {outcome.best_step}: {outcome.validated.get(outcome.best_step, 0):.3f}")
    if as_json:
        print_json(trained.to_dict())
    else:
        echo(f"list:{trained.folder}")


@options.command(group=command, timeout=True, old={"--cutoff": "--top-k"})
def evaluate(
    ranker: str,
    *,
    data: Annotated[Path, "Pools to rank."],
    against: Annotated[
        tuple[str, ...],
        "A ranker to compare with; repeatable. none keeps the order of the pools. Default: none and bi-encoder.",
    ] = ("none", "bi-encoder"),
    top_k: Annotated[PositiveInt, "-k", "Cutoff of nDCG and NCOM."] = 10,
    limit: Annotated[PositiveInt | None, "Use only the first pools."] = None,
    lm: Annotated[str | None, "LM of lm-pointwise and lm-listwise. Default: TYPEDRAG_LM, else embedded."] = None,
    api_base: Annotated[str | None, "Address of its server."] = None,
    seed: Annotated[int, "Random seed of the resampling."] = 0,
    as_json: Annotated[bool, "Print JSON, with the values of each pool.", "--json"] = False,
) -> None:
    """Measure RANKER by nDCG, MAP and NCOM on pools, and compare it with others.

    RANKER and --against are named as for --reranker, such as list:FOLDER.
    """
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
            data_pools, rankers, k=top_k, seed=seed,
            on_progress=lambda name, done: show(names.index(name) * len(data_pools) + done, name),
        )  # fmt: skip
    if as_json:
        print_json(asdict(report))
    else:
        _draw(report)


def _draw(report: RankerReport) -> None:
    from typedrag.optimizers.list_ranker.measures import MEASURES

    console = wide_console(160)
    heads = {"ndcg": f"nDCG@{report.k}", "map": "MAP", "ncom": f"NCOM@{report.k}"}
    rows = []
    for s in report.scores:
        rows.append([s.ranker, *(format_estimate(s.means.get(m)) for m in MEASURES), f"{s.seconds:.3f}", str(s.failed)])
    headings = ["ranker", *(heads[m] for m in MEASURES), "seconds a pool", "pools with unreadable replies"]
    draw_table(headings, rows, title=f"rankers on {report.pools} pools", console=console)
    if report.comparisons:
        rows = []
        for c in report.comparisons:
            difference = format_estimate(c.difference, signed=True)
            rows.append([c.baseline, heads[c.measure], str(c.difference.n), difference, format_p(c.p)])
        headings, first = ["ranker", "measure", "n", "difference", "corrected p"], report.scores[0].ranker
        draw_table(headings, rows, title=f"{first} less the others", left=["measure"], console=console)

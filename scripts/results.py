"""Evaluate programs as configs/ describes them, and write the results as pages: full tables, chart and summary.

ANTIQUE=FILE ANTIQUE_INDEX=INDEX NUGGETS=FILE python scripts/results.py --out runs --only steps-antique

Finished work is kept: after a kill, the same command continues.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pages import CONFIGS, lm_flags, made_by, page_parser
from results_page import Section, losses, results_page
from summaries import write_full

from typedrag.cli.terminal import run, say
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.experiments import EvaluationConfig, read_config, run_evaluation
from typedrag.experiments.evaluate import Evaluated
from typedrag.experiments.held_out import RIGHT, TRUTH
from typedrag.experiments.resources import load_configured

PAGES = {
    "results": ("steps-antique", "steps-wiki-nfqa"),
    "results-systems": ("systems-antique",),
    "results-systems-wiki-nfqa": ("systems-wiki-nfqa",),
}
"""The configurations that each page tells of."""
NAMES = tuple(name for names in PAGES.values() for name in names)
BASELINE = "rag-reranked"
"""It differs from TypedRAG only by what TypedRAG adds: both rerank."""
STEPS = {
    "retrieve": ("direct-lm", "rag"),
    "rerank": ("rag", "rag-reranked"),
    "gate of rag": ("rag-reranked", "rag-gated"),
    "check of rag": ("rag-reranked", "rag-checked"),
    "RAG-Fusion": ("rag-reranked", "rag-fusion"),
    "decompose": ("rag-reranked", "typed-rag"),
    "gate of typed-rag": ("typed-rag", "typed-rag-gated"),
    "check of typed-rag": ("typed-rag", "typed-rag-checked"),
}
"""The program without each step, and with it."""
EXPLAINED = ("typed-rag-published", "typed-rag")
LOST_BY = ("nuggets/weighted", "linkage/expected_rank", TRUTH)
"""The first of them that is measured."""
MEASURES = (
    TRUTH,
    RIGHT,
    "nuggets/weighted",
    "nuggets/vital",
    "nuggets/density",
    "nuggets/passage_weighted",
    "nuggets/passage_used",
    "retrieval/ndcg",
    "linkage/mrr",
    "linkage/expected_rank",
    "linkage/mpr",
    "coverage/rating",
    "coverage/core",
    "similarity/reference",
    "cost/tokens",
    "cost/lm_calls",
    "cost/seconds",
)


def main() -> None:
    """Parse, evaluate, write."""
    parser = page_parser(__doc__, "runs")
    parser.add_argument("--limit", type=int, help="questions a dataset; default: that of the configuration")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="configurations; default: all")
    parser.add_argument("--calls-in-flight", type=int, help="LM calls at once; default: that of the configuration")
    parser.add_argument("--programs", nargs="+", help=f"of the configurations, {BASELINE} among them; default: all")
    parser.add_argument("--page", help="the page of them, such as one beside an older one; default: theirs")
    args = parser.parse_args()
    at_once = args.calls_in_flight
    flags = {
        **lm_flags(args),
        "dataset": {"limit": args.limit},
        "threads": at_once,
        "calls_in_flight": at_once,
    }
    configs = {name: of_programs(read_config(CONFIGS / f"{name}.yaml", flags), args.programs) for name in args.only}
    for page, names in ({args.page: args.only} if args.page else PAGES).items():
        if sections := [section(n, configs[n], args.out / n) for n in names if n in configs]:
            text = results_page("What the programs' answers are worth", about(sections, args.note), sections)
            write_full(args.docs, page, text)


def of_programs(config: EvaluationConfig, names: Sequence[str] | None) -> EvaluationConfig:
    """A configuration with some of its programs.

    Raises:
        InputError: If it lacks one of the names, or the baseline is not among them.
    """
    if names is None:
        return config
    if missing := {BASELINE, *names} - ({p.name for p in config.programs} & set(names)):
        bad = ", ".join(sorted(missing))
        raise InputError(f"--programs: {bad} is not named or not in the configuration", f"Name {BASELINE}, and others")
    return config.model_copy(update={"programs": tuple(p for p in config.programs if p.name in names)})


def section(name: str, config: EvaluationConfig, out: Path) -> Section:
    """Evaluate the programs of one configuration."""
    evaluations = {e.run.name: e for e in run_evaluation(config, out, resume=True, on_notice=say)}
    for program, evaluated in evaluations.items():
        if evaluated.stopped:
            raise SystemExit(f"{name}, {program}: stopped: {evaluated.stopped}")
    runs = [e.run for e in evaluations.values()]
    baseline = evaluations[BASELINE].run
    examples = {str(e.id): e for e in load_configured(config.dataset).examples}
    labels = hand_labels(config.dataset.name)
    lost_by = next(m for m in LOST_BY if m in baseline.measures)
    return Section(
        title=name,
        runs=runs,
        baseline=runs.index(baseline),
        measures=[m for m in MEASURES if m.startswith("cost/") or m in baseline.measures],
        losses={
            program: losses(evaluations[program].run, baseline, examples, measure=lost_by, labels=labels)
            for program in EXPLAINED
            if program in evaluations
        },
        steps={
            step: (evaluations[without].run, evaluations[with_].run)
            for step, (without, with_) in STEPS.items()
            if {without, with_} <= evaluations.keys()
        },
        about=about_data(evaluations[BASELINE], labels),
    )


def hand_labels(dataset: str) -> Mapping[str, QuestionType]:
    """The types that people labelled questions of a dataset with, by question id."""
    labels = json.loads((CONFIGS / "question_types.json").read_text("utf-8"))[dataset]
    return {id_: QuestionType(label) for id_, label in labels.items()}


def about(sections: list[Section], note: str) -> list[str]:
    """The lines of the page on how it was made."""
    return [
        made_by("LM and scorer", sections[0].runs[0], note),
        "",
        "Where a small LM judges its own answers, [the page on judges](../judges.md) says how far that can be "
        "trusted: read LINKAGE (mrr, expected_rank, mpr) and coverage beside truthfulness, since both pay for what "
        "only sounds right, and beside `similarity/reference`, the MiniLM cosine between an answer and the best "
        "reference. Truthfulness, nuggets, nDCG and the cosine ask no LM.",
    ]


def about_data(evaluated: Evaluated, labels: Mapping[str, QuestionType]) -> str:
    """A paragraph on the questions, and on the results of chance."""
    run, metrics = evaluated.run, evaluated.summary.overall.metrics
    labelled = {q.id: q.question_type for q in run.questions if q.id in labels}
    right = sum(labels[id_] == type_ for id_, type_ in labelled.items())
    by_chance = ""
    if "linkage" in metrics:
        chance = metrics["linkage"].measures
        by_chance = (
            f"Chance gives mrr {chance['chance_mrr']:.3f}, mpr {chance['chance_mpr']:.1f} and expected_rank "
            f"{chance['chance_rank']:.2f}. "
        )
    return (
        f"{len(run.questions)} questions, drawn in turn from each subset and each type that the type classifier sees, "
        "so that rare types are there more often than in the dataset, and with them what the classifier takes for such "
        f"a type by mistake: of the {len(labelled)} questions whose type was labelled by hand it sees {right} rightly."
        f"\n\n{by_chance}Data: {run.settings['licence']}."
    )


if __name__ == "__main__":
    run(main)

"""`typedrag datasets build wiki-nfqa`: non-factoid questions with reference answers of known quality."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from typedrag.cli.opening import say
from typedrag.cli.options import chosen, listed, timeout_option
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lms
from typedrag.errors import InputError

if TYPE_CHECKING:
    import dspy

    from typedrag.datasets.question_sets import QuestionSet
    from typedrag.programs import Options

_LM = "SPEC[@URL]"


@click.command("wiki-nfqa")
@click.option("--questions", multiple=True, required=True, metavar="WHERE",
    help="DATASET, DATASET:PATH, or a file of questions with answers. Repeatable.")  # fmt: skip
@listed("--subset", help="Subset of the datasets, such as validation; default: all.")
@click.option("--type-classifier", metavar="MAKE",
    help="Finds the non-factoid questions; as option type_classifier. The paper: hub:Lurunchik/nf-cats.")  # fmt: skip
@click.option("--program", help="Instead: a compiled program, whose type classifier is used.")
@click.option("--patterns/--no-patterns", default=None, help="Whether to use the taxonomy's patterns; default: yes.")
@click.option("--per-subset", type=click.IntRange(1), help="Maximum questions of a subset; default: 300.")
@click.option("--lm", "lms", multiple=True, metavar=_LM,
    help="LM that writes three references: embedded[:NAME], vllm:MODEL or a DSPy name. Repeatable.")  # fmt: skip
@click.option("--superior", metavar=_LM, help="LM that rewrites the ground truth; default: the annotator.")
@click.option("--annotator", metavar=_LM,
    help="LM that labels answers, and names types if the classifier asks an LM; default: the first --lm.")  # fmt: skip
@timeout_option
@click.option("--api-base", help="Address of the OpenAI-compatible server of LMs without @URL.")
@click.option("--seed", type=int, help="Random seed; default: 0.")
@build_options
@writing_lms
def command(
    questions: tuple[str, ...],
    subset: str | None,
    type_classifier: str | None,
    program: str | None,
    patterns: bool | None,
    per_subset: int | None,
    lms: tuple[str, ...],
    superior: str | None,
    annotator: str | None,
    api_base: str | None,
    seed: int | None,
    writing: Writing,
) -> None:
    """Select the non-factoid questions of QA datasets, and have LMs write references and label them 0 to 3.

    The result is read by --dataset wiki-nfqa --path FILE. Replies of the LMs are stored in --store
    as they come: after an interruption, the same command asks only for the missing ones.
    """
    from typedrag.builders import (
        NonFactoidSettings,
        ReferenceLMs,
        WikiNFQASettings,
        build_wiki_nfqa,
        select_non_factoid,
    )
    from typedrag.builders.rows import counted
    from typedrag.datasets.question_sets import read_question_set
    from typedrag.lms.lm import open_lm, use_lm

    if type_classifier and program:
        raise InputError("both a type classifier and a program are named", "Give --type-classifier or --program")
    classifier, options = _classifier(type_classifier, program)
    selecting = NonFactoidSettings(**chosen(patterns=patterns, per_subset=per_subset, seed=seed))
    writing_as = WikiNFQASettings(**chosen(seed=seed))
    judgments = writing.open_store()
    writing.limit_calls()
    opened = partial(open_lm, api_base=api_base, cache=False)
    writers = tuple(opened(spec) for spec in lms or (None,))
    annotating = opened(annotator) if annotator else writers[0]
    panel = ReferenceLMs(writers, opened(superior) if superior else annotating, annotating)
    sets = [read_question_set(where, subset) for where in questions]
    with use_lm(annotating), counting("classified questions") as show:
        selected, report = select_non_factoid(
            _by_name(sets), classifier, judgments, selecting, options=options, threads=writing.threads, on_done=show
        )
    report.left_out["rows: their loader leaves them out"] += sum(each.skipped for each in sets)
    say(f"{len(selected):,} non-factoid questions")
    with counting("questions", len(selected)) as show:
        built = build_wiki_nfqa(selected, panel, judgments, writing_as, threads=writing.threads, on_done=show)
    built.left_out.update(report.left_out)
    built.left_out = +built.left_out
    writing.finish(built, counted(built.rows, "subset", "predicted_type"))


def _classifier(make: str | None, program: str | None) -> tuple[dspy.Module, Options]:
    from typedrag.programs import Options
    from typedrag.programs.typed_rag.type_classifiers import build_type_classifier

    if program:
        from typedrag.experiments.loading import load_type_classifier

        return load_type_classifier(program)
    options = Options().with_given(chosen(type_classifier=make))
    return build_type_classifier(options), options


def _by_name(sets: list[QuestionSet]) -> dict[str, list[dspy.Example]]:
    by_name: dict[str, list[dspy.Example]] = {}
    for each in sets:
        by_name.setdefault(each.name, []).extend(each.examples)
    return by_name

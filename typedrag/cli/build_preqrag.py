"""`typedrag datasets build preqrag`: synthetic questions that need one document or two."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from typedrag.cli.options import chosen
from typedrag.cli.progress import counting
from typedrag.cli.writing import Writing, build_options, writing_lm
from typedrag.errors import InputError


@click.command("preqrag")
@click.option("--index", type=click.Path(path_type=Path),
    help="Index of passages to write questions on. Default: TYPEDRAG_INDEX, else a sample corpus.")  # fmt: skip
@click.option("--passages", type=click.Path(path_type=Path, exists=True), multiple=True,
    help="Instead: files or folders of passages, as for typedrag index build. Repeatable.")  # fmt: skip
@click.option("--retriever", default="bm25", show_default=True,
    help="Finds a second passage in --index: bm25, dense, hybrid, hybrid:WEIGHT or auto.")  # fmt: skip
@click.option("--single", type=click.IntRange(0), help="Number of single-document questions; default: 110.")
@click.option("--multi", type=click.IntRange(0), help="Number of multi-document questions; default: 106.")
@click.option("--only", multiple=True, metavar="CHOICE=CATEGORY,…",
    help="Use only these categories of a choice, such as turn=first-turn. Repeatable; default: all.")  # fmt: skip
@click.option("--attempts", type=click.IntRange(1), help="Maximum attempts for each question; default: 3.")
@click.option("--seed", type=int, help="Random seed; default: 0.")
@build_options
@writing_lm
def command(
    index: Path | None,
    passages: tuple[Path, ...],
    retriever: str,
    only: tuple[str, ...],
    writing: Writing,
    **flags: Any,
) -> None:
    """Have an LM write single- and multi-document questions of all kinds, with answers and passages.

    The result is read by --dataset file; its subsets are single-document and multi-document. Replies of
    the LM are stored in --store as they come: after an interruption, the same command asks only for the
    missing ones.
    """
    from typedrag.builders import PreQRAGSettings, build_preqrag
    from typedrag.builders.rows import counted
    from typedrag.retrieval import build_index, open_retriever, read_passages

    if index and passages:
        raise InputError("both an index and passages are named", "Give --index or --passages")
    if passages and retriever not in ("bm25", "auto"):
        raise InputError(f"--passages are searched by BM25, not by '{retriever}'", "Build an index, and give --index")
    settings = PreQRAGSettings(only=_choices(only), **chosen(**flags))
    judgments = writing.open_store()
    with ExitStack() as stack:
        if passages:
            index = Path(stack.enter_context(tempfile.TemporaryDirectory()), "index")
            build_index(read_passages(passages), index, sources=[str(p) for p in passages])
        searched = open_retriever(retriever, index)
        drawn_from = searched.passages()  # refused before an LM is opened
        stack.enter_context(writing.using_lm())
        show = stack.enter_context(counting("questions", settings.single + settings.multi))
        built = build_preqrag(drawn_from, searched, judgments, settings, threads=writing.threads, on_done=show)
    writing.finish(built, counted(built.rows, "subset"))


def _choices(only: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    chosen = {}
    for choice in only:
        name, equals, categories = choice.partition("=")
        if not equals:
            raise InputError(f"'{choice}' chooses nothing", "Write it like turn=first-turn")
        chosen[name] = tuple(category.strip() for category in categories.split(","))
    return chosen

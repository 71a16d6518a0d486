"""The passages of questions' contexts, as MuSiQue, HotpotQA and 2WikiMultihopQA publish them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.datasets.reading import Entry, misfit, parse, read_rows
from typedrag.datasets.reasoning_chains import WithContexts
from typedrag.retrieval.index.rows import FieldMap, make_passage
from typedrag.retrieval.index.sources import Placed, Problems, read_placed

_NO_CONTEXTS = "it has neither paragraphs, as MuSiQue has, nor a context, as HotpotQA and 2WikiMultihopQA have"


def source_reader(
    sources: Sequence[Path],
    fields: FieldMap | None,
    *,
    contexts: bool = False,
    skip_bad: bool,
    indexed: Sequence[str] = (),
    metadata: Sequence[str] = (),
) -> Callable[[], Iterator[Placed]]:
    """The reader of sources, which streams their passages anew with each call.

    Args:
        fields: The names of the fields of rows; see `read_placed`.
        contexts: The sources are files of questions; see `read_contexts`.
    """
    if contexts:
        return partial(read_contexts, sources, skip_bad=skip_bad)
    return partial(read_placed, sources, fields, skip_bad=skip_bad, indexed=indexed, metadata=metadata)


def read_contexts(sources: Sequence[Path], *, skip_bad: bool = False) -> Iterator[Placed]:
    """Stream the passages of the questions of files, each once: its id is the hash of its title and text.

    Args:
        sources: Files such as musique_ans_v1.0_dev.jsonl, hotpot_dev_distractor_v1.json or 2WikiMultihopQA's dev.json;
            a .json file is read whole.
        skip_bad: Leave out questions whose contexts cannot be used, with a warning each.
    """
    problems, ids = Problems(skip_bad), set[str]()
    for source in sources:  # all are checked before hours are spent on the first
        if not source.is_file():
            raise InputError(f"source {source} is no file", "Name files of questions with their passages")
    for source in sources:
        for entry in read_rows(source):
            try:
                passages = _passages(entry)
            except InputError as error:
                problems.add(error)
                problems.refuse()
                continue
            for passage in passages:
                if passage.id not in ids:
                    ids.add(passage.id)
                    yield Placed(passage, entry.place)


def _passages(entry: Entry) -> list[Passage]:
    passages = parse(WithContexts, entry).passages
    if not passages:
        raise misfit(entry.place, _NO_CONTEXTS)
    try:
        return [make_passage({"id": p.id, "title": p.title, "text": p.text}, FieldMap()) for p in passages]
    except ValueError as error:
        raise misfit(entry.place, str(error)) from None

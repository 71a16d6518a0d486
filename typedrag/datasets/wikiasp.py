"""WikiAsp: summaries of Wikipedia articles by aspect (Hayashi et al., 2021), as RichRAG asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import dspy
from pydantic import Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example
from typedrag.datasets.reading import Entry, Id, Layout, Text, files_of, parse, read_rows, subsets_of
from typedrag.datasets.splits import hash_of, official_splits
from typedrag.errors import InputError
from typedrag.records import Reference

DOMAINS = (
    "Album Animal Artist Building Company EducationalInstitution Event Film Group HistoricPlace Infrastructure"
    " MeanOfTransportation OfficeHolder Plant Single SoccerPlayer Software TelevisionShow Town WrittenWork"
).split()
FILES = {part: (f"{part}.jsonl",) for part in ("train", "valid", "test")}
TITLES = "titles.tsv"
LEAST_ASPECTS = 2
"""Below, a question is not broad. RichRAG's appendix A says more than two; its table 2 has 2.4 on average."""
_SHARES = 12
"""One for validation, one for test, the others for training: 10:1:1 (RichRAG, appendix A)."""


class _Row(Layout):
    exid: Id
    targets: list[Annotated[tuple[Text, Text], Field(strict=False)]]
    title: str = ""
    part: str


class _Title(Layout):
    exid: Id
    title: Text


@source(
    "wikiasp",
    about="Wikipedia articles of 20 domains: a summary is asked for, and answered aspect by aspect",
    licence="CC BY-SA 4.0",
    home="https://github.com/neulab/wikiasp",
)
def load_wikiasp(path: Path | None = None, subset: str | None = None, per_domain: int | None = None) -> Dataset:
    """Read WikiAsp as open-domain questions (RichRAG, appendix A).

    The question asks for a summary of an article. Its only reference is the summaries of all aspects,
    joined; `aspects` and `sub_answers` hold them one by one. `subset` is
    the domain, `part` the authors' own split. The published rows name no title: it is read from a
    field `title`, or from a file titles.tsv in the folder, with the columns exid and title. Articles
    without a known title or with fewer than two aspects are left out.

    Args:
        path: The folder of all domains, the folder of one (with train.jsonl, valid.jsonl,
            test.jsonl), or one such file.
        subset: A domain, such as Album, or several separated by commas, for a folder of all domains; None
            takes all there are.
        per_domain: Draw at most so many articles of each domain, whatever their part, and deal them out 10:1:1
            to train, validation and test; 517 make RichRAG's 10,339. By default all articles, in the authors' split.

    Raises:
        InputError: If a row does not fit, there is no such file or domain, no title is known, no path is given, or
            none is to be drawn.
    """
    if per_domain is not None and per_domain < 1:
        raise InputError(f"{per_domain} articles of a domain are none", "Set per_domain to 1 or more")
    if path is None:
        raise InputError(
            "the published rows of wikiasp lack the titles that its questions are made of",
            f"Name a copy whose rows have a field 'title', or that has a file {TITLES}: --path",
        )
    titles_file = (path if path.is_dir() else path.parent) / TITLES
    titles = dict(_titles(titles_file)) if titles_file.exists() else {}
    dataset = build_dataset("wikiasp", _rows(path, subset), partial(_example, titles=titles), source=str(path))
    if per_domain is not None:
        dataset = replace(dataset, examples=tuple(_dealt(dataset.examples, per_domain)))
    return replace(dataset, splits=official_splits(dataset.examples, "part"))


def _dealt(examples: Iterable[dspy.Example], per_domain: int) -> Iterator[dspy.Example]:
    """Yield the articles drawn from each domain by their hashes, with the part that each is dealt to."""
    by_domain: dict[str, list[dspy.Example]] = {}
    for article in examples:
        by_domain.setdefault(article.subset, []).append(article)
    for articles in by_domain.values():
        for place, article in enumerate(sorted(articles, key=lambda e: hash_of(e.id))[:per_domain]):
            yield article.copy(part={0: "test", 1: "valid"}.get(place % _SHARES, "train"))


def _rows(path: Path, subset: str | None) -> Iterator[Entry]:
    there = [name for name in subsets_of(DOMAINS, subset) if subset or (path / name).is_dir()]
    for folder in [path / name for name in there] or [path]:
        for part, file in files_of(folder, FILES):
            domain = file.parent.name
            for row in read_rows(file, domain if domain in DOMAINS else ""):
                yield row._replace(value={**row.value, "part": part}) if isinstance(row.value, dict) else row


def _titles(file: Path) -> Iterator[tuple[str, str]]:
    for entry in read_rows(file):
        row = parse(_Title, entry)
        yield row.exid, row.title


def _example(entry: Entry, *, titles: dict[str, str]) -> dspy.Example | str:
    row = parse(_Row, entry)
    title = row.title or titles.get(row.exid, "")
    if not title:
        return f"the title of article '{row.exid}' is not known"
    if len(row.targets) < LEAST_ASPECTS:
        return f"article '{row.exid}' has fewer than {LEAST_ASPECTS} aspects"
    return example(
        id=row.exid,
        question=f"Generate a summary about {title}",
        subset=entry.subset,
        part=row.part,
        references=(Reference(" ".join(summary for _, summary in row.targets), 1),),
        aspects=tuple(aspect for aspect, _ in row.targets),
        sub_answers=tuple(summary for _, summary in row.targets),
    )

"""The base of builders: their settings, what they make, and the dealing out of questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from typedrag.core.errors import StepFailed
from typedrag.datasets.dataset import load_dataset, sample, text_hash
from typedrag.runs.work import Failed, Stages

if TYPE_CHECKING:
    import dspy

Row = dict[str, Any]
OpenLM = Callable[[str | None], "dspy.LM"]
"""Opens the LM of a spec; None means that of the command."""
T = TypeVar("T")


@dataclass
class Built:
    rows: list[Row] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


class Builder(BaseModel, ABC):
    """A dataset to build: its fields are the options of `typedrag datasets build NAME`, its docstring the help."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: ClassVar[str]
    """The name of the command."""
    counted: ClassVar[tuple[str, ...]]
    """The fields of rows by whose values the rows are counted."""
    of: ClassVar[str] = "rows"
    """The name of what is counted."""
    asks_lm: ClassVar[bool] = True
    """False if no LM is ever asked."""

    @abstractmethod
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        """The rows."""

    def counts(self, built: Built) -> dict[str, int]:
        """The number of rows of each kind."""
        return count_rows(built.rows, *self.counted)


class DatasetBuilder(Builder):
    """A builder that starts from the questions of a dataset."""

    dataset: str
    """Name of the dataset; see typedrag datasets list."""
    path: Path | None = None
    """A local copy: file or folder."""
    subset: str | None = None
    """A subset; default: all."""
    field: Mapping[str, str] = {}
    """Column of a field in a file of your own, such as answers=gold; repeatable."""
    split: Literal["all", "train", "validation", "test"] | None = None
    """The part of the dataset; default: as in evaluate."""
    limit: PositiveInt | None = None
    """Maximum questions, balanced over subsets and types."""
    seed: int = 0
    """Random seed."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""

    def draw(self) -> list[dspy.Example]:
        """The questions to start from: those that evaluate draws with the same settings."""
        from typedrag.experiments.question_typing import infer_type  # imports what the help of commands need not

        options = {"subset": self.subset, "fields": dict(self.field)}
        dataset = load_dataset(self.dataset, self.path, **{name: value for name, value in options.items() if value})
        questions = dataset.split(self.split or dataset.default_split)
        return sample(questions, self.limit or len(questions), self.seed, infer_type) if questions else []


def usable(
    items: Iterable[T],
    replies: Iterable[Any | Failed],
    built: Built,
    prefix: str = "",
    unreadable: str = "no reply could be read",
) -> Iterator[tuple[T, Any]]:
    """Yield the items that an LM has replied to, with its replies; the others are counted by the reason."""
    for item, reply in zip(items, replies, strict=True):
        if isinstance(reply, Failed):
            built.left_out[prefix + describe_failure(reply, unreadable)] += 1
        else:
            yield item, reply


def describe_failure(failure: Failed, unreadable: str = "no reply could be read") -> str:
    return unreadable if isinstance(failure, StepFailed) else failure.problem


def part_by_hash(text: str, seed: int, *, validation: float, test: float) -> str:
    """The split of a text, train, validation or test, with these shares; the same in every build."""
    share = int(text_hash(text, seed)[:13], 16) / 16**13  # evenly spread from 0 to 1
    if share < test:
        return "test"
    return "validation" if share < test + validation else "train"


def count_rows(rows: Sequence[Mapping[str, Any]], *fields: str) -> dict[str, int]:
    """The number of rows with each combination of values in these fields, joined as `value/value`."""
    counts = Counter("/".join(str(row.get(f, "")) for f in fields) for row in rows)
    return dict(sorted(counts.items()))

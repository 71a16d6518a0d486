"""What changed between two programs: options, and of each predictor instructions, descriptions and demonstrations."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from typedrag.experiments.formats import flattened, format_estimate, format_p
from typedrag.experiments.loading import brought, program_source
from typedrag.experiments.pages import render_page, write_page
from typedrag.programs import Options
from typedrag.programs.artifact.compiled import CompiledAbout, uncompiled
from typedrag.programs.artifact.fingerprints import Shape, shape_changes
from typedrag.programs.artifact.state import PredictorState, State, shapes_of, state_of
from typedrag.programs.quoted_material import lost_sentence

Demonstration: TypeAlias = Mapping[str, Any]
"""The fields of a signature, as JSON values."""

_MOST_PAIRS = 4_000_000
"""Of words that are compared one by one; longer texts have changed as a whole."""
_ALIKE = 0.3
"""The share of words in common below which a text counts as written anew."""
_LINE = 100
"""The longest JSON value that stands on one line of the page."""


@dataclass(frozen=True)
class Side:
    """One of the two programs: what the user calls it, its name, and how it was compiled, if it was.

    The options of one that is not compiled are the defaults.
    """

    label: str
    program: str
    options: Options
    state: State
    signatures: Mapping[str, Shape]
    about: CompiledAbout | None = None


@dataclass(frozen=True)
class Change:
    """A value that differs, of an option, a setting, or what is said of a field; None where there is none."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Piece:
    """A part of a text."""

    kind: Literal["same", "removed", "added"]
    text: str


@dataclass(frozen=True)
class PredictorDiff:
    """What changed about a predictor.

    Attributes:
        only: The side that it is on, if it is not on both.
        signature: What tells its signatures apart, a line each.
        instructions: Both, if they differ; None on a side that lacks the predictor.
        unguarded: Whether they no longer say not to follow instructions in what is quoted.
        descriptions: Of its fields.
        settings: Of its LM calls.
        removed: Demonstrations that are no longer there.
        added: Demonstrations that are new.
        kept: How many are there as before.
        reordered: Whether those that are kept follow each other in another order.
    """

    name: str
    only: Literal["base", "compiled", ""] = ""
    signature: tuple[str, ...] = ()
    instructions: Change | None = None
    unguarded: bool = False
    descriptions: tuple[Change, ...] = ()
    settings: tuple[Change, ...] = ()
    removed: tuple[Demonstration, ...] = ()
    added: tuple[Demonstration, ...] = ()
    kept: int = 0
    reordered: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything did."""
        return self != PredictorDiff(self.name, kept=self.kept)

    @property
    def words(self) -> tuple[Piece, ...]:
        """The instructions, word by word; see `word_diff`."""
        if self.instructions is None:
            return ()
        return word_diff(self.instructions.before or "", self.instructions.after or "")


@dataclass(frozen=True)
class ProgramDiff:
    """What changed between two programs, which `base` and `compiled` name as the user does.

    Attributes:
        programs: The names of both.
        options: Those that differ, as `reason.combine`.
        predictors: Those that changed, in the program's order.
        unchanged: The names of the others.
        about: How the second was compiled; None if it was not.
    """

    base: str
    compiled: str
    programs: tuple[str, str]
    options: tuple[Change, ...]
    predictors: tuple[PredictorDiff, ...]
    unchanged: tuple[str, ...]
    about: CompiledAbout | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold."""
        about = TypeAdapter(CompiledAbout).dump_python(self.about, mode="json") if self.about else None
        return {**asdict(self), "about": about}


def read_sides(base: str, compiled: str) -> tuple[Side, Side]:
    """Two programs to be compared, as `program_source` reads them.

    A name stands for the program as it is without compiling: with default options, and the predictors that the
    options of the other side give it.

    Raises:
        InputError: If one of them is no program, or cannot be read.
        TypedRAGError: If MLflow's store cannot be used.
    """
    sources = [program_source(text) for text in (base, compiled)]
    read = [source.compiled for source in sources]
    sides = []
    for label, source, other in zip((base, compiled), sources, reversed(read), strict=True):
        if made := source.compiled:
            sides.append(Side(label, made.program, made.options, made.state, made.signatures, made.about))
        else:
            # the options are a stranger's word: what they name elsewhere is not opened to see predictors
            program = uncompiled(source.name, brought(other.options) if other else None)
            sides.append(Side(label, source.name, Options(), state_of(program), shapes_of(program)))
    return sides[0], sides[1]


def diff_programs(base: Side, compiled: Side) -> ProgramDiff:
    """What changed from one program to the other."""
    names = list(dict.fromkeys((*compiled.state, *base.state)))
    found = [_predictor_diff(name, base, compiled) for name in names]
    return ProgramDiff(
        base=base.label,
        compiled=compiled.label,
        programs=(base.program, compiled.program),
        options=tuple(_changes(*(dict(flattened(side.options.model_dump())) for side in (base, compiled)))),
        predictors=tuple(diff for diff in found if diff.changed),
        unchanged=tuple(diff.name for diff in found if not diff.changed),
        about=compiled.about,
    )


def write_diff(diff: ProgramDiff, out: Path) -> None:
    """Write the page of `render_diff`; an `InputError` if the file cannot be written."""
    write_page(render_diff(diff), out)


def render_diff(diff: ProgramDiff) -> str:
    """What changed as one HTML page, whose policy lets no script run and nothing be loaded."""
    filters: dict[str, Callable[..., Any]] = {"value": _value, "score": format_estimate, "p": format_p}
    return render_page(Path(__file__).with_name("diff_page"), filters, diff=diff)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _LINE else json.dumps(value, ensure_ascii=False, indent=1)


def word_diff(before: str, after: str) -> tuple[Piece, ...]:
    """A text and what it has become, piece by piece; spaces and line breaks make no difference.

    Example:
        >>> for piece in word_diff("Answer from the passages in short.", "Answer from the\\nbest passages in full."):
        ...     print(f"{piece.kind}: {piece.text!r}")
        same: 'Answer from the\\n'
        added: 'best '
        same: 'passages in '
        removed: 'short.'
        added: 'full.'
        >>> word_diff("", "Answer."), word_diff("Why?", "Why?")
        ((Piece(kind='added', text='Answer.'),), (Piece(kind='same', text='Why?'),))
    """
    spaced = [re.findall(r"\s*\S+\s*", text) for text in (before, after)]
    had, has = ([word.strip() for word in words] for words in spaced)
    anew = _pieces((before, "removed"), (after, "added"))
    if len(had) * len(has) > _MOST_PAIRS:
        return tuple(anew)
    matcher = SequenceMatcher(None, had, has, autojunk=False)
    if had != has and matcher.ratio() < _ALIKE:
        return tuple(anew)
    pieces: list[Piece] = []
    for kind, i, j, k, n in matcher.get_opcodes():
        removed, added = ("".join(words[m:o]) for words, (m, o) in zip(spaced, ((i, j), (k, n)), strict=True))
        pieces += [Piece("same", added)] if kind == "equal" else _pieces((removed, "removed"), (added, "added"))
    return tuple(pieces)


def _pieces(*texts: tuple[str, Literal["removed", "added"]]) -> list[Piece]:
    return [Piece(kind, text) for text, kind in texts if text]


def _predictor_diff(name: str, base: Side, compiled: Side) -> PredictorDiff:
    before, after = base.state.get(name), compiled.state.get(name)
    only: Literal["base", "compiled", ""] = "compiled" if before is None else "base" if after is None else ""
    shapes = [side.signatures.get(name, ()) for side in (base, compiled)]
    texts = [s.signature.instructions if s else None for s in (before, after)]
    had, has = ([_key(d) for d in s.demos] if s else [] for s in (before, after))
    kept = Counter(had) & Counter(has)
    (stayed, removed), (stay, added) = _parted(had, kept), _parted(has, kept)
    return PredictorDiff(
        name=name,
        only=only,
        signature=() if only else tuple(shape_changes(*shapes)),
        instructions=None if texts[0] == texts[1] else Change("instructions", *texts),
        unguarded=before is not None and after is not None and lost_sentence(before, after),
        descriptions=tuple(_changes(*(_descriptions(s, x) for s, x in zip((before, after), shapes, strict=True)))),
        settings=tuple(_changes(*(s.config.given() if s else {} for s in (before, after)))),
        removed=tuple(removed),
        added=tuple(added),
        kept=len(stay),
        reordered=stayed != stay,
    )


def _descriptions(state: PredictorState | None, shape: Shape) -> dict[str, str]:
    if state is None:
        return {}
    texts = {}
    for field, said in zip(shape, state.signature.fields, strict=False):
        texts[field.name] = said.description
        texts[f"{field.name} (prefix)"] = said.prefix
    return texts


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield Change(name, before.get(name), after.get(name))


def _key(demonstration: Demonstration) -> str:
    return json.dumps(demonstration, ensure_ascii=False)


def _parted(keys: Sequence[str], kept: Counter[str]) -> tuple[list[str], list[Demonstration]]:
    """Those that are kept, and the demonstrations that are not."""
    left, stay, rest = Counter(kept), [], []
    for key in keys:
        if left[key]:
            left[key] -= 1
            stay.append(key)
        else:
            rest.append(json.loads(key))
    return stay, rest

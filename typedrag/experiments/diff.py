"""The differences of two programs: options, and each predictor's instructions, descriptions and demonstrations."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from typedrag.experiments.formats import flatten, format_estimate, format_p, render_page
from typedrag.experiments.loading import program_source
from typedrag.programs import Options
from typedrag.programs.artifact import Fields, State, dump_state, field_changes, lost_injection_guard, signature_fields
from typedrag.programs.compiled import CompiledAbout, build_without_index
from typedrag.programs.loading import without_external_models

Demonstration: TypeAlias = Mapping[str, Any]

_MOST_PAIRS = 4_000_000  # of words to compare; longer texts count as changed as a whole
_ALIKE = 0.3  # the share of common words below which a text counts as rewritten
_LINE = 100  # the longest JSON value on one line of the page


@dataclass(frozen=True)
class ProgramState:
    """One of the two programs: the user's label, its name, and its compile, if it was compiled.

    A program that is not compiled has the default options.
    """

    label: str
    program: str
    options: Options
    state: State
    signatures: Mapping[str, Fields]
    about: CompiledAbout | None = None


@dataclass(frozen=True)
class Change:
    """A value that differs, of an option, a setting or a field's description; None for a missing value."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class TextSpan:
    kind: Literal["same", "removed", "added"]
    text: str


@dataclass(frozen=True)
class PredictorDiff:
    """The changes of a predictor, which `only` one side may have; `unguarded` if its instructions no longer say not to
    follow instructions in quoted texts. Of its demonstrations, those kept may be in another order."""

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
        return self != PredictorDiff(self.name, kept=self.kept)

    @property
    def words(self) -> tuple[TextSpan, ...]:
        """The instructions, word by word; see `word_diff`."""
        if self.instructions is None:
            return ()
        return word_diff(self.instructions.before or "", self.instructions.after or "")


@dataclass(frozen=True)
class ProgramDiff:
    """The changes between two programs, which `base` and `compiled` name as the user does: options that differ, such as
    `reason.combine`, predictors that changed, in the program's order, and the names of the others."""

    base: str
    compiled: str
    programs: tuple[str, str]
    options: tuple[Change, ...]
    predictors: tuple[PredictorDiff, ...]
    unchanged: tuple[str, ...]
    about: CompiledAbout | None = None

    def to_dict(self) -> dict[str, Any]:
        """The diff as JSON values."""
        about = TypeAdapter(CompiledAbout).dump_python(self.about, mode="json") if self.about else None
        return {**asdict(self), "about": about}


def read_sides(base: str, compiled: str) -> tuple[ProgramState, ProgramState]:
    """Read two programs to compare, as `program_source` reads them.

    A name stands for a program that was not compiled, with default options, and the predictors that the options of
    the other side give it.
    """
    sources = [program_source(text) for text in (base, compiled)]
    read = [source.compiled for source in sources]
    sides = []
    for label, source, other in zip((base, compiled), sources, reversed(read), strict=True):
        if own := source.compiled:
            sides.append(ProgramState(label, own.program, own.options, own.state, own.signatures, own.about))
        else:
            # strangers may have written the options: models and files that they name are not opened
            program = build_without_index(source.name, without_external_models(other.options) if other else None)
            sides.append(ProgramState(label, source.name, Options(), dump_state(program), signature_fields(program)))
    return sides[0], sides[1]


def diff_programs(base: ProgramState, compiled: ProgramState) -> ProgramDiff:
    """The changes from one program to the other."""
    names = list(dict.fromkeys((*compiled.state, *base.state)))
    diffs = [_predictor_diff(name, base, compiled) for name in names]
    return ProgramDiff(
        base=base.label,
        compiled=compiled.label,
        programs=(base.program, compiled.program),
        options=tuple(_changes(*(dict(flatten(side.options.model_dump())) for side in (base, compiled)))),
        predictors=tuple(diff for diff in diffs if diff.changed),
        unchanged=tuple(diff.name for diff in diffs if not diff.changed),
        about=compiled.about,
    )


def render_diff(diff: ProgramDiff) -> str:
    """The changes as an HTML page, whose policy allows no script and no loading."""

    def show(value: Any) -> str:
        if isinstance(value, str):
            return value
        line = json.dumps(value, ensure_ascii=False)
        return line if len(line) <= _LINE else json.dumps(value, ensure_ascii=False, indent=1)

    filters: dict[str, Callable[..., Any]] = {"value": show, "score": format_estimate, "p": format_p}
    title = f"{diff.compiled} against {diff.base}"
    return render_page(Path(__file__).with_name("diff_page"), filters, title=title, diff=diff)


def word_diff(before: str, after: str) -> tuple[TextSpan, ...]:
    """The pieces of a text that are the same, removed or added; spaces and line breaks make no difference.

    Example:
        >>> for piece in word_diff("Answer from the passages in short.", "Answer from the\\nbest passages in full."):
        ...     print(f"{piece.kind}: {piece.text!r}")
        same: 'Answer from the\\n'
        added: 'best '
        same: 'passages in '
        removed: 'short.'
        added: 'full.'
        >>> word_diff("", "Answer."), word_diff("Why?", "Why?")
        ((TextSpan(kind='added', text='Answer.'),), (TextSpan(kind='same', text='Why?'),))
    """

    def changed(removed: str, added: str) -> list[TextSpan]:
        pieces: list[tuple[Literal["removed", "added"], str]] = [("removed", removed), ("added", added)]
        return [TextSpan(kind, text) for kind, text in pieces if text]

    spaced = [re.findall(r"\s*\S+\s*", text) for text in (before, after)]
    had, has = ([word.strip() for word in words] for words in spaced)
    differing = changed(before, after)
    if len(had) * len(has) > _MOST_PAIRS:
        return tuple(differing)
    matcher = SequenceMatcher(None, had, has, autojunk=False)
    if had != has and matcher.ratio() < _ALIKE:
        return tuple(differing)
    pieces: list[TextSpan] = []
    for kind, i, j, k, n in matcher.get_opcodes():
        removed, added = ("".join(words[m:o]) for words, (m, o) in zip(spaced, ((i, j), (k, n)), strict=True))
        pieces += [TextSpan("same", added)] if kind == "equal" else changed(removed, added)
    return tuple(pieces)


def _predictor_diff(name: str, base: ProgramState, compiled: ProgramState) -> PredictorDiff:
    before, after = base.state.get(name), compiled.state.get(name)
    only: Literal["base", "compiled", ""] = "compiled" if before is None else "base" if after is None else ""
    fields = [side.signatures.get(name, {}) for side in (base, compiled)]
    changes = "" if only else field_changes(*fields)
    texts = [s.signature.instructions if s else None for s in (before, after)]
    had, has = ([json.dumps(d, ensure_ascii=False) for d in s.demos] if s else [] for s in (before, after))
    descriptions: tuple[dict[str, str], dict[str, str]] = {}, {}
    for described, state, names in zip(descriptions, (before, after), fields, strict=True):
        for field, own in zip(names, state.signature.fields, strict=False) if state else ():
            described |= {field: own.description, f"{field} (prefix)": own.prefix}
    common = Counter(had) & Counter(has)
    (stayed, removed), (stay, added) = _split(had, common), _split(has, common)
    return PredictorDiff(
        name=name,
        only=only,
        signature=(changes,) if changes else (),
        instructions=None if texts[0] == texts[1] else Change("instructions", *texts),
        unguarded=bool(before and after and lost_injection_guard({name: before}, {name: after})),
        descriptions=tuple(_changes(*descriptions)),
        settings=tuple(_changes(*(s.config.model_dump(exclude_unset=True) if s else {} for s in (before, after)))),
        removed=tuple(removed),
        added=tuple(added),
        kept=len(stay),
        reordered=stayed != stay,
    )


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield Change(name, before.get(name), after.get(name))


def _split(keys: Sequence[str], common: Counter[str]) -> tuple[list[str], list[Demonstration]]:
    left, stay, rest = Counter(common), [], []
    for key in keys:
        if left[key]:
            left[key] -= 1
            stay.append(key)
        else:
            rest.append(json.loads(key))
    return stay, rest

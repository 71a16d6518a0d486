"""Answers that were made elsewhere: by answer engines, other frameworks, or earlier runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy

from typedrag.core.errors import InputError
from typedrag.core.parameters import Published
from typedrag.core.records import ELSEWHERE, Answer, Passage, Step, Usage
from typedrag.datasets.reading import Entry, Id, Layout, Text, misfit, parse, read_json, read_rows, renamed
from typedrag.experiments.config import ProgramConfig
from typedrag.experiments.results import ANSWERS, read_run
from typedrag.files.text_files import WholeText, hash_files
from typedrag.programs import Options, Program
from typedrag.programs.loading import ProgramSource
from typedrag.runs import Result, Store, is_run
from typedrag.text.words import question_key

PREFIX = "answers:"  # the beginning of a program's spec that names a file of answers
_UNKNOWN = Usage(uncounted=1)
_FIELDS = ("id", "question", "answer", "error", "passages", "citations", "seconds")
_OURS = {"program", "steps", "usage"}  # fields of an answer that `typedrag ask --file` wrote


class _Passage(Layout):
    text: Text
    id: Id | None = None
    title: str = ""


class _Row(Layout):
    id: Id | None = None
    question: Text | None = None
    answer: WholeText | None = None
    error: str | None = None
    passages: list[Text | _Passage] | None = None
    citations: list[Id] | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class AnswersFile(ProgramSource):
    """A system whose answers are in a file, or the folder of an earlier run, in the place of a program."""

    path: Path = Path()
    answers: Mapping[tuple[str, str], Answer | str] = field(default_factory=dict)
    """Its answers, or why it gave none, by the key and the id of their questions; either may be empty."""

    @property
    def retrieves(self) -> bool:
        return False

    @property
    def retriever(self) -> str:
        return ""

    @property
    def settings(self) -> dict[str, Any]:
        """The name of the system, and what identifies its answers."""
        return {"program": self.name, "answers": hash_files(self.path)}

    def options(self, *, as_published: Published | None = None, overrides: Mapping[str, Any] | None = None) -> Options:
        return Options()

    def check(self, options: Options) -> None:
        """Nothing: the file was checked when it was read."""

    def build(self, *_: object) -> Program:
        """Refuse to be called: these answers can be measured, and no others be made."""
        raise InputError(f"{self.path} holds answers, which can only be measured", "Name a program: --program NAME")

    def find_answer(self, example: dspy.Example) -> Answer | str | None:
        """The answer to a question: by its text, with the id if several have that text; None if there is none."""
        key, id_ = question_key(example.question), str(example.id)
        places = ((key, id_), (key, ""), ("", id_))
        return next((self.answers[place] for place in places if place in self.answers), None)

    def unanswered(self, examples: Sequence[dspy.Example]) -> str:
        """The number of answered questions, in words; empty if all are."""
        answered = sum(self.find_answer(e) is not None for e in examples)
        return f"{self.path} answers {answered:,} of {len(examples):,} questions" if answered < len(examples) else ""

    def fill(self, store: Store, examples: Iterable[dspy.Example]) -> None:
        """Add the answers to a run that lacks them; nothing is spent."""
        held = {result.item for result in store.read().results if result.step == ANSWERS}
        for example in examples:
            id_, answer = str(example.id), self.find_answer(example)
            if answer and id_ not in held:
                value, problem = (answer.to_dict(), "") if isinstance(answer, Answer) else (None, answer)
                store.add(Result(id_, ANSWERS, value, problem))


def read_answers(program: ProgramConfig) -> AnswersFile | None:
    """The answers that `answers:FILE` names in the place of a program; None if it names a program."""
    if not program.program.startswith(PREFIX):
        return None
    path = Path(program.program.removeprefix(PREFIX))
    unused = program.model_fields_set - {"program", "name"}
    if unused:
        raise InputError(f"{path} holds answers, which have no {' and '.join(sorted(unused))}", "Leave these out")
    if not path.exists():
        raise InputError(f"{path} does not exist", "Name a file with an answer a line, or the folder of a run")
    system = program.name or path.name.partition(".")[0]
    if not is_run(path):
        return AnswersFile(system, path=path, answers=_read_file(path, system))
    answers = {(question_key(q.question), q.id): q.answer or q.error for q in read_run(path).questions}
    return AnswersFile(system, path=path, answers=answers)


def _read_file(path: Path, system: str) -> dict[tuple[str, str], Answer | str]:
    answers: dict[tuple[str, str], Answer | str] = {}
    places: dict[tuple[str, str], str] = {}
    for entry in _entries(path):
        values = {name: value for name, value in renamed(entry, _FIELDS, {}).items() if value is not None}
        row = parse(_Row, entry._replace(value=values))
        if not (row.id or row.question):
            raise misfit(entry.place, "it has neither the question nor its id, so that its question is not known")
        if row.answer is None and "answer" not in entry.value and not row.error:
            raise misfit(entry.place, 'it has no answer ("answer": null says that the system gave none)')
        key = (question_key(row.question) if row.question else "", row.id or "")
        if key in places:
            raise misfit(entry.place, f"it answers the same question as {places[key]}")
        places[key] = entry.place
        answers[key] = _given(row, entry, system)
    if not answers:
        raise InputError(f"{path} holds no answer", 'Write one a line: {"question": "…", "answer": "…"}')
    for (text, _), answer in list(answers.items()):  # its ids may be the system's own
        answers.setdefault((text, ""), answer)
    return answers


def _entries(path: Path) -> Iterable[Entry]:
    """The rows of a file; those of a JSON object are its ids with their answers, as Adaptive-RAG's code writes them."""
    if path.suffix == ".json" and isinstance(answers := read_json(path), dict):
        for id_, answer in answers.items():
            first = next(iter(answer), "") if isinstance(answer, list) else answer
            yield Entry({"id": id_, "answer": first}, f"{path}, id {id_}")
    else:
        yield from read_rows(path, kind="" if path.suffix else ".jsonl")


def _given(row: _Row, entry: Entry, system: str) -> Answer | str:
    if row.answer is None:
        return row.error or f"{system} gave no answer"
    if entry.value.keys() >= _OURS:
        try:
            return Answer.from_dict({n: v for n, v in entry.value.items() if n not in ("id", "spent")})
        except (ValueError, KeyError) as error:
            raise misfit(entry.place, f"it is no answer of this typedrag: {error}") from None
    passages = [p if isinstance(p, _Passage) else _Passage(text=p) for p in row.passages or ()]
    held = tuple(Passage(p.id or str(number), p.text, p.title) for number, p in enumerate(passages, 1))
    if strange := [cited for cited in row.citations or () if cited not in {p.id for p in held}]:
        raise misfit(entry.place, f"it cites '{strange[0]}', which is the id of none of its passages")
    return Answer(
        row.question or "", row.answer, program=system, passages=held, citations=tuple(row.citations or ()),
        steps=(Step(ELSEWHERE, output=system),), seconds=row.seconds or 0.0, usage=_UNKNOWN,
    )  # fmt: skip

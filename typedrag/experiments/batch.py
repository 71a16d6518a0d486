"""Answer many questions at once; a killed batch can be continued."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy

from typedrag.core.errors import InputError, TypedRAGError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.datasets.reading import TABLES, Entry, Id, Layout, TypeName, decode, misfit, parse, read_rows, renamed
from typedrag.experiments.config import SpendingCaps
from typedrag.experiments.cost import SPENT, SUFFIX, Estimator
from typedrag.experiments.executors import Executor, LocalExecutor
from typedrag.experiments.results import ANSWERS
from typedrag.files.text_files import WholeText, open_text, usable_lines
from typedrag.lms.cost import Spending
from typedrag.programs import Program
from typedrag.runs import AnyOf, MaxFailures, Progress, Result, RunFolder, Store, is_run, work


@dataclass(frozen=True)
class AskedQuestion:
    """A question with its id: its asker's, or its number from 1; and with its type, if the asker says it."""

    id: str
    question: str
    question_type: QuestionType | str | None = None


@dataclass(frozen=True)
class Outcome:
    """The answer to a question, or the reason why there is none: a refusal, or an unreadable reply.

    `index` is its position among the questions, from 0; `spent` what was paid for it, failed calls counted in.
    """

    index: int
    question: AskedQuestion
    answer: Answer | None
    error: str = ""
    spent: Spending = field(default_factory=Spending)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as a JSON object: the id, the answer's fields or the question and its error, `spent` if any."""
        fields = self.answer.to_dict() if self.answer else {"question": self.question.question, "error": self.error}
        spent = {SPENT: self.spent.to_dict()} if self.spent.usage.lm_calls else {}
        return {"id": self.question.id, **fields, **spent}


class _Asked(Layout):
    question: WholeText
    id: Id | None = None
    question_type: TypeName | None = None


def read_questions(lines: Iterable[str], source: str, fields: Mapping[str, str] | None = None) -> list[AskedQuestion]:
    """Read questions, one a line: as text, or as JSON objects with `question` and perhaps `id` and `question_type`.

    `fields` are the names of these three in the objects, as {"question": "query"}, where they differ.

    Example:
        >>> read_questions(['Why is the sky blue?', '{"id": "q7", "question": "Who?"}'], "example")
        [AskedQuestion(id='1', question='Why is the sky blue?', question_type=None), \
AskedQuestion(id='q7', question='Who?', question_type=None)]
    """
    numbered = enumerate((line.removeprefix("\ufeff") for line in lines), 1)
    rows = (
        (n, {"question": line.strip()} if not line.lstrip().startswith("{") else decode(line, source, n))
        for n, line in numbered
        if line.strip()
    )
    return _asked(source, ((n, Entry(row, f"{source}, line {n}")) for n, row in rows), fields)


def read_question_file(path: Path, fields: Mapping[str, str] | None = None) -> list[AskedQuestion]:
    """Read questions from a file: from column `question` of a CSV or TSV file, with `id` and `question_type` if there.

    Other files are read by `read_questions`. Files may be gzipped.
    """
    if Path(path.name.removesuffix(".gz")).suffix.lower() in TABLES:
        return _asked(str(path), enumerate(read_rows(path), 1), fields)
    with open_text(path) as lines:
        return read_questions(usable_lines(lines, str(path)), str(path), fields)


def _asked(source: str, rows: Iterable[tuple[int, Entry]], fields: Mapping[str, str] | None) -> list[AskedQuestion]:
    questions = []
    for number, entry in rows:
        named = renamed(entry, tuple(_Asked.model_fields), fields or {})
        if named["question"] is None:
            raise misfit(entry.place, f"it has no field 'question' (fields: {', '.join(entry.value)})")
        values = {n: v for n, v in named.items() if v is not None and (v != "" or n == "question")}
        row = parse(_Asked, entry._replace(value=values))
        questions.append(AskedQuestion(str(number) if row.id is None else row.id, row.question, row.question_type))
    if not questions:
        raise InputError(f"{source} holds no question", "Write one question a line")
    return questions


def open_answers(
    out: Path, questions: Sequence[AskedQuestion], settings: Mapping[str, Any], *, resume: bool
) -> RunFolder:
    """Open the folder, beside a file of answers, in which these are kept as they come."""
    folder = out.with_name(out.name + SUFFIX)
    if out.exists() and not (resume and is_run(folder)):
        raise InputError(f"{out} exists already", "Name another --out, or delete it")
    return RunFolder.open(folder, settings, kind="answers", resume=resume, items=_items(questions))


def answer_questions(
    program: Program | Executor,
    questions: Sequence[AskedQuestion],
    *,
    threads: int,
    store: Store | None = None,
    max_failures: float = 1.0,
    caps: SpendingCaps | None = None,
    on_outcome: Callable[[Outcome], object] = lambda outcome: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> list[Outcome]:
    """Answer questions in threads that carry the context, and return the outcomes in their order.

    The outcome of a question that is refused, that the LM fails at while it answers others, or whose answer
    cannot be read, is the reason. A fault of the system ends the batch after questions under way are done and
    kept; questions that it struck are asked again the next time.

    Args:
        program: Called within the caller's `use_lm`, whose LM is metered; or an executor, which answers elsewhere.
        questions: In any number.
        threads: Questions under way at once.
        store: Keeps each outcome, see `open_answers`; questions whose outcome it has are not asked again.
        max_failures: The share of questions that may fail.
        caps: What may be spent, earlier outcomes counted in.
        on_outcome: Called with each outcome as it comes, earlier ones first.
        on_notice: Called with what the questions will take in all, once some are done.
    """
    executor = LocalExecutor(program, {}) if isinstance(program, Program) else program
    results, caps = store or Store(), caps or SpendingCaps()
    outcomes = [_outcome(questions, result) for result in results.read().results]
    estimator = Estimator(len(questions), caps, on_notice)

    def show(progress: Progress) -> None:
        if progress.result:
            outcomes.append(_outcome(questions, progress.result))
            on_outcome(outcomes[-1])
        estimator.update(len(outcomes), lambda: [(ANSWERS, outcome.spent) for outcome in outcomes])

    def answer(item: str, *_: object) -> Any:
        question = questions[int(item)]
        return executor.answer(dspy.Example(question=question.question), question.question_type).to_dict()

    for outcome in outcomes:
        on_outcome(outcome)
    stop = AnyOf(caps.stopper(), MaxFailures(max_failures, {ANSWERS: "questions"}))
    ended = work(_items(questions), answer, results, steps=(ANSWERS,), threads=threads, stop=stop, listener=show)
    if ended.stopped:
        hint = "; what is done is kept: go on with --resume" if store else ""
        raise TypedRAGError(
            f"stopped after {len(outcomes):,} of {len(questions):,} questions: {ended.stopped}", f"Allow more{hint}"
        )
    return sorted(outcomes, key=lambda outcome: outcome.index)


def _items(questions: Sequence[AskedQuestion]) -> dict[str, Any]:
    return {str(place): {"id": q.id, "question": q.question.strip()} for place, q in enumerate(questions)}


def _outcome(questions: Sequence[AskedQuestion], result: Result) -> Outcome:
    place = int(result.item)
    answer = Answer.from_dict(result.value) if result.value else None
    return Outcome(place, questions[place], answer, result.problem, result.spent)

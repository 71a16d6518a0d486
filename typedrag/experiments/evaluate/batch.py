"""Answer many questions at once; a killed batch can be continued."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from typedrag.datasets.reading import TABLES, Entry, Id, Layout, TypeName, decode, misfit, parse, read_rows
from typedrag.errors import CallFailed, InputError, StepFailed, TypedRAGError
from typedrag.experiments.evaluate.config import SpendingCaps
from typedrag.experiments.evaluate.run_store import ANSWERS
from typedrag.experiments.executors.executor import Executor, Here
from typedrag.experiments.projection import Projection
from typedrag.files.journal import Journal
from typedrag.files.text_files import WholeText, open_text, usable_lines
from typedrag.lms.faults import Faults, fail, too_many
from typedrag.lms.spending import Account, Spending, charging
from typedrag.lms.threads import run_jobs
from typedrag.programs import Program
from typedrag.question_types import QuestionType
from typedrag.records import Answer, Usage

SPENT = "spent"


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

    @classmethod
    def from_dict(cls, index: int, question: AskedQuestion, data: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_dict` gave."""
        spent = spent_of_line(data)
        if "error" in data:
            return cls(index, question, None, data["error"], spent)
        answer = Answer.from_dict({name: value for name, value in data.items() if name not in ("id", SPENT)})
        return cls(index, question, answer, "", spent)


def spent_of_line(data: Mapping[str, Any]) -> Spending:
    """The spending on an outcome that `to_dict` gave; of one without it, what its answer has used."""
    if SPENT in data:
        return Spending.from_dict(data[SPENT])
    usage = Usage(**data.get("usage", {}))
    return Spending(usage, unpriced=usage.lm_calls)


class _Asked(Layout):
    question: WholeText
    id: Id | None = None
    question_type: TypeName | None = None


def read_questions(lines: Iterable[str], source: str) -> list[AskedQuestion]:
    """Read questions, one a line: as text, or as JSON objects with `question` and perhaps `id` and `question_type`.

    Raises:
        InputError: If a line cannot be used, or there is no question.

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
    return _asked(source, ((n, Entry(row, f"{source}, line {n}")) for n, row in rows))


def read_question_file(path: Path) -> list[AskedQuestion]:
    """Read questions from a file: from column `question` of a CSV or TSV file, with `id` and `question_type` if there.

    Other files are read by `read_questions`. Files may be gzipped.

    Raises:
        InputError: If the file cannot be read, or a row cannot be used.
    """
    if Path(path.name.removesuffix(".gz")).suffix.lower() in TABLES:
        return _asked(str(path), enumerate(read_rows(path), 1))
    with open_text(path) as lines:
        return read_questions(usable_lines(lines, str(path)), str(path))


def _asked(source: str, rows: Iterable[tuple[int, Entry]]) -> list[AskedQuestion]:
    questions = []
    for number, entry in rows:
        if "question" not in entry.value:
            raise misfit(entry.place, f"it has no field 'question' (fields: {', '.join(entry.value)})")
        values = {n: v for n, v in entry.value.items() if v != "" or n not in ("id", "question_type")}
        row = parse(_Asked, entry._replace(value=values))
        questions.append(AskedQuestion(str(number) if row.id is None else row.id, row.question, row.question_type))
    if not questions:
        raise InputError(f"{source} holds no question", "Write one question a line")
    return questions


def answer_questions(
    program: Program | Executor,
    questions: Sequence[AskedQuestion],
    *,
    threads: int,
    journal: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    max_failures: float = 1.0,
    caps: SpendingCaps | None = None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> Iterator[Outcome]:
    """Answer questions in threads that carry the context; yield outcomes as they come.

    The outcome of a question that is refused, that the LM fails at while it answers others, or whose answer
    cannot be read, is the reason. A fault of the system ends the batch after questions under way are done and
    written; questions that it struck are asked again the next time.

    Args:
        program: Called within the caller's `use_lm`, whose LM is metered; or an executor, which answers elsewhere.
        questions: In any number.
        threads: Questions under way at once.
        journal: A file that each outcome is appended to at once. Outcomes that it holds already are
            yielded without being asked again.
        settings: What the answers depend on besides the questions, as JSON values; the journal's
            first line. One of a run with other settings is refused.
        max_failures: The share of questions that may fail; those that are refused do not count.
        caps: What may be spent, outcomes of the journal counted in.
        on_notice: Called with what the questions will take in all, once some are done.

    Raises:
        InputError: If the journal belongs to other questions or settings.
        TypedRAGError: If a larger share fails, or a cap is reached before the last is asked; what was done is written.
        Unavailable: If the LM or the index cannot be used.
    """
    log = Journal(journal, durable=True) if journal else None
    done = _done_before(log, questions, dict(settings or {})) if log else {}
    caps = caps or SpendingCaps()
    projection = Projection(len(questions), caps, on_notice)
    records = [(ANSWERS, outcome.spent) for outcome in done.values()]
    account = Account(sum((outcome.spent for outcome in done.values()), Spending()))
    projection.watch(len(records), lambda: records)
    yield from done.values()
    begun = len(done)
    executor = Here(program, {}) if isinstance(program, Program) else program
    todo = (partial(_answer, executor, i, q) for i, q in enumerate(questions) if i not in done)
    faults = Faults(answered=any(outcome.answer for outcome in done.values()))
    ended: deque[tuple[Outcome, TypedRAGError | None]] = deque()
    tried, failed = 0, 0

    def next_job() -> Callable[[], tuple[Outcome, TypedRAGError | None]] | None:
        nonlocal begun
        job = None if caps.reached(account.spent) else next(todo, None)
        begun += job is not None
        return partial(fail, faults.fault) if job and faults.fault else job

    def keep() -> Iterator[Outcome]:
        nonlocal tried, failed
        while ended:
            outcome, failure = ended.popleft()
            if log:
                log.append({"index": outcome.index, **outcome.to_dict()})
            records.append((ANSWERS, outcome.spent))
            projection.watch(len(records), lambda: records)
            yield outcome
            tried += not isinstance(failure, InputError)
            failed += outcome.answer is None and not isinstance(failure, InputError)
            if too_many(failed, tried, max_failures):
                raise TypedRAGError(
                    f"{failed} of {tried} questions failed, where {max_failures:.0%} are allowed; the last: {failure}",
                    "Allow more: --max-failures",
                )

    for outcome, failure in run_jobs(next_job, threads):
        account.add(outcome.spent)
        if isinstance(failure, CallFailed):
            faults.hold(failure, partial(ended.append, (outcome, failure)))
        else:
            ended.append((outcome, failure))
        if outcome.answer:
            faults.answer()
        yield from keep()
    faults.settle(too_many=too_many(failed + len(faults), tried + len(faults), max_failures))
    yield from keep()
    if begun < len(questions):
        raise TypedRAGError(
            f"stopped after {begun:,} of {len(questions):,} questions: {caps.reached(account.spent)}",
            "Allow more" + ("; what is done is kept: go on with --resume" if log else ""),
        )


def _answer(executor: Executor, index: int, question: AskedQuestion) -> tuple[Outcome, TypedRAGError | None]:
    with charging(Account()) as account:
        try:
            answer = executor.answer(dspy.Example(question=question.question), question.question_type)
        except (InputError, StepFailed, CallFailed) as error:
            return Outcome(index, question, None, str(error), account.spent), error
    return Outcome(index, question, answer, spent=account.spent), None


def _done_before(journal: Journal, questions: Sequence[AskedQuestion], settings: dict[str, Any]) -> dict[int, Outcome]:
    """The outcomes in a journal; a new journal gets its first line."""
    done: dict[int, Outcome] = {}
    number = 0
    for number, data in enumerate(journal, 1):
        try:
            if number == 1:
                before = data["settings"]
                if changed := [n for n in {**before, **settings} if before.get(n) != settings.get(n)]:
                    raise InputError(
                        f"{journal.path} belongs to a run with another {' and '.join(changed)}",
                        "Continue it with the same settings, or delete it",
                    )
                continue
            index, question = data.pop("index"), data["question"]
        except (KeyError, TypeError):
            raise journal.unreadable(number) from None
        if index >= len(questions) or questions[index].question.strip() != question.strip():
            raise InputError(f"{journal.path} belongs to other questions", "Delete it, or name another --out")
        done[index] = Outcome.from_dict(index, questions[index], data)
    if not number:
        journal.append({"settings": settings})
    return done

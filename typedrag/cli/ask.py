"""`typedrag ask`: answer one question, drawn while it is answered, or a file of them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import Field, PositiveInt
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from typedrag.cli import options
from typedrag.cli.terminal import counting, echo, in_words, is_quiet, make_console, print_json, say
from typedrag.core import events
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import FALLBACK, Answer, Answered, Step
from typedrag.experiments.config import DatasetConfig, EvaluationConfig, LMConfig, ProgramConfig, SpendingCaps
from typedrag.experiments.results import Tally
from typedrag.files.text_files import write_text
from typedrag.lms.cost import Spending

if TYPE_CHECKING:
    from typedrag.experiments import AskedQuestion, Outcome
    from typedrag.experiments.executors import Executor
    from typedrag.programs import Program

STDIN = Path("-")
_WIDEST = 300
_SOURCES = {
    Answered.PASSAGES: "answered from passages",
    Answered.KNOWLEDGE: "answered from what the LM knows",
    Answered.NOTHING: "not answered",
}
FIELDS = options.field_options(
    EvaluationConfig,
    "programs.as_published",
    ("programs.options -o --option", "Set any option of the program; repeatable."),
    "programs.reranker", "programs.retriever",
    ("lm.spec --lm", options.LM_HELP),
    ("lm.api_base", "Address of an OpenAI-compatible server. For vllm, default: TYPEDRAG_API_BASE."),
    "lm.temperature", "lm.max_tokens", "lm.adapter", "calls_in_flight", "executor", "workers",
)  # fmt: skip
CAPS = options.field_options(SpendingCaps, *options.CAPS, under="caps")


@options.command(FIELDS, CAPS, name="ask", timeout=True)
def command(
    question: str | None = None,
    *,
    program_name: Annotated[
        str, "--program",
        "typed_rag, rag, hanrag, … or a compiled one: a folder, models:/NAME@ALIAS or runs:/ID/PATH.",
    ] = "typed_rag",
    question_type: Annotated[
        QuestionType | None, "--type", "Type of the question. Default: the program finds it out."
    ] = None,
    index: options.Index = None,
    top_k: Annotated[PositiveInt | None, "-k", "Passages retrieved per query."] = None,
    no_cache: Annotated[bool, "Ask the LM also what this server was asked before."] = False,
    trace: Annotated[bool, "Show the steps to the answer on stderr."] = False,
    questions_file: Annotated[
        Path | None, "--file", click.Path(path_type=Path, allow_dash=True),
        "Questions, one a line, or JSONL, or CSV or TSV with columns `question` and optionally `id` and "
        "`question_type`; - is stdin.",
    ] = None,
    fields: options.FieldMapping,
    out: Annotated[Path | None, "Write the answers of --file to this JSONL file."] = None,
    resume: Annotated[bool, "Continue an interrupted run into --out."] = False,
    threads: Annotated[PositiveInt, "Questions answered at once."] = 4,
    max_failures: Annotated[float, Field(ge=0, le=1), "Stop if a larger share of questions fails."] = 1.0,
    as_json: Annotated[bool, "Print the full answer as JSON.", "--json"] = False,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Answer QUESTION from the passages of an index.

    The answer goes to stdout, everything else to stderr, such as its sources: the passages that it
    cites. Questions can also come from --file or standard input; their answers are JSON lines, in the
    order of the questions.
    """
    caps, executor = values["caps"], values["executor"] or "local"
    file = questions_file or (None if question is not None or sys.stdin.isatty() else STDIN)
    wrong = (
        (question is not None and questions_file, "both a question and --file were given", "Give one of them"),
        (question is None and file is None, "no question was given", 'Write: typedrag ask "Why …?"'),
        (out and question is not None, "--out is for the answers of --file",
         "Redirect the answer: typedrag ask … > FILE"),
    )  # fmt: skip
    _refuse(wrong)
    questions = _read_questions(file, fields) if file else []
    _refuse((
        (question is None and question_type, "--type is of one question",
         "Give the file of questions a column question_type"),
        (question is not None and fields, "--field is of the columns of --file", "Leave it out"),
        (question is not None and any(caps.values()), "caps are for the questions of --file",
         "Leave them out: -o max_lm_calls=N is of one question"),
        (question is not None and executor != "local", "--executor is for the questions of --file", "Leave it out"),
        (resume and not out, "--resume continues a run into a file", "Name it with --out"),
        (out and not out.parent.is_dir(), f"the folder of {out} does not exist", "Make it, or name another --out"),
    ))  # fmt: skip

    from typedrag.experiments.batch import open_answers
    from typedrag.experiments.executors import ProgramJob
    from typedrag.experiments.ray_pool import RayPool, connect
    from typedrag.experiments.resources import Resources, configured_options
    from typedrag.lms.client import CALLS_IN_FLIGHT, limit_calls_in_flight
    from typedrag.lms.lm import use_lm
    from typedrag.lms.specs import default_spec

    how = options.chosen(**values["programs"])
    how["options"] = {**how["options"], **options.chosen(top_k=top_k)}
    configured = ProgramConfig(program=program_name, **how)
    lm = LMConfig(**options.chosen(**values["lm"]), cache=not no_cache)
    parts = Resources(
        EvaluationConfig(
            programs=(configured,), lm=lm, index=index, dataset=DatasetConfig(name="questions"), metrics=()
        ),
        Path(),
    )
    lm = parts.config.lm
    source = parts.source(configured)
    source.check_unlabelled(configured_options(configured, source), configured.retriever)
    program = parts.program(configured)
    if question is not None and not question.strip():
        raise InputError("the question is empty", 'Write: typedrag ask "Why …?"')
    over = f" over {Path(parts.retriever(configured).place).name}" if source.retrieves else ""
    say(f"{program_name} with {lm.spec or default_spec()}{over}")
    types = {q.id: q.question_type for q in questions if q.question_type}
    settings = {
        **parts.answer_settings(configured),
        "lm settings": lm.model_dump(include={"temperature", "top_p", "max_tokens", "adapter"}, exclude_none=True),
        **({"question types": types} if types else {}),
    }
    calls = values["calls_in_flight"] or CALLS_IN_FLIGHT
    limit_calls_in_flight(calls)
    with ExitStack() as stack:
        run = stack.enter_context(open_answers(out, questions, settings, resume=resume)) if out else None
        stack.enter_context(use_lm(parts.lm))
        if question is not None:
            _answer_one(program, question, question_type, as_json=as_json, trace=trace)
            return
        answering: Program | Executor = program
        if number := stack.enter_context(connect(executor, values["workers"], threads=threads, calls=calls)):
            pool = RayPool(ProgramJob.of(parts, configured), number, threads=threads, calls=calls)
            answering = stack.enter_context(closing(pool))
        _answer_many(
            questions, out, trace=trace, program=answering, threads=threads, store=run.store if run else None,
            max_failures=max_failures, caps=SpendingCaps(**caps), on_notice=say,
        )  # fmt: skip


def _refuse(mistakes: tuple[tuple[Any, str, str], ...]) -> None:
    """Refuse the first mistake that was made: what is true then, its name and the hint."""
    for mistaken, problem, hint in mistakes:
        if mistaken:
            raise InputError(problem, hint)


def _read_questions(file: Path, fields: dict[str, str]) -> list[AskedQuestion]:
    from typedrag.experiments import read_question_file, read_questions
    from typedrag.files.text_files import usable_lines

    name = "standard input"
    if file != STDIN:
        return read_question_file(file, fields)
    try:
        with click.open_file("-", encoding="utf-8") as lines:
            return read_questions(usable_lines(lines, name), name, fields)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text ({error})", "Send UTF-8") from None


def _answer_one(program: Program, question: str, question_type: str | None, *, as_json: bool, trace: bool) -> None:
    from typedrag.text.sentences import with_source_numbers

    console = make_console(stderr=True)
    answer = follow(program, question, question_type, console)
    if trace:
        draw_trace(answer, console)
    else:
        if answer.type_unsure:
            say(f"type unsure: perhaps {answer.question_type}; --type TYPE says it")
        if answer.fallback and (as_json or answer.answered is Answered.PASSAGES):
            say(f"fallback: {answer.fallback}")
    if as_json:
        print_json(answer.to_dict())
        return
    echo(with_source_numbers(answer))
    if answer.sources:
        say(f"\n{answer.sources}")
    elif answer.answered == Answered.PASSAGES:
        say(f"\nNo passage is cited. Read: {', '.join(p.id for p in answer.passages)}")
    elif answer.fallback and not trace:
        say("--trace shows what was tried.")


def _answer_many(questions: list[AskedQuestion], out: Path | None, *, trace: bool, **how: Any) -> None:
    from typedrag.experiments import answer_questions

    ended: dict[int, Outcome] = {}
    printed = 0
    with counting("questions", total=len(questions)) as on_progress:

        def show(outcome: Outcome) -> None:
            nonlocal printed
            ended[outcome.index] = outcome
            on_progress(len(ended))
            while out is None and printed in ended:
                print_json(ended[printed].to_dict())
                printed += 1
            if trace and outcome.answer:
                draw_trace(outcome.answer, make_console(stderr=True))

        outcomes = answer_questions(questions=questions, on_outcome=show, **how)
    if out:
        write_text(out, "".join(json.dumps(outcome.to_dict(), ensure_ascii=False) + "\n" for outcome in outcomes))
    for outcome in outcomes:
        if outcome.answer is None:
            say(f"question {outcome.question.id}: {outcome.error}")
    tally = Tally.of(outcome.answer for outcome in outcomes)
    say(f"{tally.questions - tally.failed} of {len(questions)} questions have an answer" + (f": {out}" if out else ""))
    say(f"of the answers: {tally.sources}")
    if tally.fallbacks:
        say(f"{tally.share(tally.fallbacks)} fell back; the field fallback says why")
    say(f"spent: {in_words(sum((outcome.spent for outcome in outcomes), Spending()))}")


def follow(program: Program, question: str, question_type: str | None, console: Console) -> Answer:
    """The answer to a question; at a terminal, its steps and text are shown while it is made, then cleared."""
    if not console.is_terminal or is_quiet():
        return Answer.from_prediction(program(question=question, question_type=question_type))
    drawing = Drawing(question)

    async def draw(stream: AsyncIterator[events.Event]) -> Answer:
        answer = None
        async for event in stream:
            drawing.add(event)
            if isinstance(event, events.AnswerEnded):
                answer = event.answer
        assert answer is not None  # a stream without an answer ends in an error
        return answer

    with Live(drawing, console=console, transient=True, refresh_per_second=8, vertical_overflow="visible"):
        return asyncio.run(draw(program.stream(question=question, question_type=question_type)))


class Drawing:
    """The state of an answer so far: a tree of its steps, its text, and the seconds that it has taken."""

    def __init__(self, question: str) -> None:
        self._question, self._started, self._spinner = question.strip(), time.monotonic(), Spinner("dots")
        self._tree = Tree(f"[bold]{escape(question)}[/bold]")
        self._parts: dict[str, Tree] = {"": self._tree}
        self._text = ""

    def add(self, event: events.Event) -> None:
        """Add an event."""
        branch = self._parts.get(event.part, self._tree)
        match event:
            case events.AnswerStarted():
                self._text = ""
            case events.AnswerToken(text=text):
                self._text += text
            case events.Classified(question_type=question_type, type_unsure=unsure, route=route):
                branch.add(f"[cyan]{escape(question_type or route)}[/cyan]{' (type unsure)' * unsure}")
            case events.Searched(queries=queries):
                for query in queries:
                    sub_query = query.removeprefix(self._question).strip() or query  # the rest is in the tree's root
                    self._parts.setdefault(sub_query, branch.add(escape(sub_query)))
            case events.Read(passages=passages):
                read = " ".join(p.id for p in passages) or "what the LM knows"
                branch.add(f"[green]{escape(read)}[/green]")
            case events.SubAnswered(sub_answer=sub_answer):
                branch.add(escape(sub_answer.answer))
            case events.StepEnded(step=step) if step.name == FALLBACK:
                branch.add(f"[yellow]fallback: {escape(step.output)}[/yellow]")

    def __rich__(self) -> RenderableType:
        self._spinner.update(text=f"{time.monotonic() - self._started:.0f} s")
        return Group(self._tree, *([Text(self._text)] if self._text else []), self._spinner)


def draw_trace(answer: Answer, console: Console) -> None:
    """Print the steps of an answer: input, output, passages, LM calls, tokens, seconds."""
    title = f"[bold]{escape(answer.question)}[/bold]"
    if answer.question_type:
        title += f"  [cyan]{answer.question_type}[/cyan]" + (" (type unsure)" if answer.type_unsure else "")
    if answer.route:
        title += f"  [cyan]{escape(answer.route)}[/cyan]"
    tree = Tree(title)
    for step in answer.steps:
        _add_step(tree, step)
    lines = [f"{answer.usage.in_words()}, {answer.seconds:.1f} s; {_SOURCES[answer.answered]}"]
    if answer.answered is Answered.PASSAGES:
        lines[0] += f"; cites {escape(', '.join(answer.citations)) or 'nothing'}"
    if answer.fallback:
        lines.append(f"[yellow]fallback: {escape(answer.fallback)}[/yellow]")
    console.print(Group(tree, *lines))


def _add_step(tree: Tree, step: Step) -> None:
    output = step.output if len(step.output) <= _WIDEST else step.output[:_WIDEST] + "…"
    label = f"[bold]{step.name}[/bold]  {escape(step.input)}"
    if output:
        label += f"  ─► {escape(output)}"
    if step.passage_ids:
        label += f"  [green]{escape(' '.join(step.passage_ids))}[/green]"
    calls = [step.usage.in_words()] if step.usage.lm_calls else []
    if cost := ", ".join([*calls, *([f"{step.seconds:.2f} s"] if step.seconds else [])]):
        label += f"  [dim]{cost}[/dim]"
    branch = tree.add(label)
    for dropped in step.dropped:
        branch.add(f"[yellow]dropped: {escape(dropped)}[/yellow]")
    for inner in step.steps:
        _add_step(branch, inner)

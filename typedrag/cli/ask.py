"""`typedrag ask`: answer one question, or a file of them."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import Field, PositiveInt

from typedrag.cli import options
from typedrag.cli.terminal import counting, in_words, print_json, say
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answered
from typedrag.experiments.config import EvaluationConfig, LMConfig, SpendingCaps
from typedrag.files.text_files import write_text

if TYPE_CHECKING:
    from typedrag.experiments import AskedQuestion, Outcome
    from typedrag.experiments.executors import Executor
    from typedrag.programs import Program

STDIN = Path("-")
FIELDS = options.field_options(
    EvaluationConfig,
    "programs.as_published",
    ("programs.options -o --option", "Set any option of the program; repeatable."),
    "programs.reranker",
    "programs.retriever",
    ("lm.spec --lm", options.LM_HELP),
    ("lm.api_base", "Address of an OpenAI-compatible server. For vllm, default: TYPEDRAG_API_BASE."),
    "lm.temperature",
    "lm.max_tokens",
    "calls_in_flight",
    "executor",
    "workers",
)
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
    how, lm, caps = values["programs"], values["lm"], values["caps"]
    executor = values["executor"] or "local"
    file = questions_file or (None if question is not None or sys.stdin.isatty() else STDIN)
    wrong = (
        (question is not None and questions_file, "both a question and --file were given", "Give one of them"),
        (question is None and file is None, "no question was given", 'Write: typedrag ask "Why …?"'),
        (out and question is not None, "--out is for the answers of --file",
         "Redirect the answer: typedrag ask … > FILE"),
    )  # fmt: skip
    _refuse(wrong)
    questions = _read_questions(file) if file else []
    _refuse((
        (question is None and question_type, "--type is of one question",
         "Give the file of questions a column question_type"),
        (question is not None and any(caps.values()), "caps are for the questions of --file",
         "Leave them out: -o max_lm_calls=N is of one question"),
        (question is not None and executor != "local", "--executor is for the questions of --file", "Leave it out"),
        (resume and not out, "--resume continues a run into a file", "Name it with --out"),
        (out and not out.parent.is_dir(), f"the folder of {out} does not exist", "Make it, or name another --out"),
    ))  # fmt: skip

    from typedrag.experiments.batch import open_answers
    from typedrag.experiments.loading import program_source
    from typedrag.experiments.ray_pool import connect
    from typedrag.lms.client import CALLS_IN_FLIGHT, limit_calls_in_flight
    from typedrag.lms.cost import track_calls
    from typedrag.lms.lm import default_spec, open_lm, use_lm
    from typedrag.lms.vllm import split_address
    from typedrag.retrieval import open_reranker

    spec, address = split_address(lm["spec"] or default_spec())
    source = program_source(program_name)
    as_published, retriever = bool(how["as_published"]), how["retriever"]
    program_options = source.options(
        as_published=as_published, overrides={**how["options"], **options.chosen(top_k=top_k)}
    )
    source.check_unlabelled(program_options, retriever)
    reranker = source.choose_reranker(how["reranker"], as_published=as_published)
    searched = source.open_retriever(index, retriever, as_published=as_published)
    program = source.build(searched, open_reranker(reranker), program_options)
    if question is not None and not question.strip():
        raise InputError("the question is empty", 'Write: typedrag ask "Why …?"')
    say(f"{program_name} with {spec}" + (f" over {Path(searched.place).name}" if searched else ""))
    types = {q.id: q.question_type for q in questions if q.question_type}
    lm_settings = options.chosen(temperature=lm["temperature"], max_tokens=lm["max_tokens"])
    identity = searched.identity if searched else {}
    settings = {
        **source.settings,
        "lm": spec,
        "lm settings": lm_settings,
        "reranker": reranker,
        **(identity or {"index": None}),
        "options": program_options.model_dump(mode="json"),
        **({"question types": types} if types else {}),
    }
    opened = {"cache": not no_cache, **lm_settings}
    calls = values["calls_in_flight"] or CALLS_IN_FLIGHT
    limit_calls_in_flight(calls)
    with ExitStack() as stack:
        run = stack.enter_context(open_answers(out, questions, settings, resume=resume)) if out else None
        stack.enter_context(use_lm(track_calls(open_lm(lm["spec"], api_base=lm["api_base"], **opened))))
        if question is not None:
            _answer_one(program, question, question_type, as_json=as_json, trace=trace)
            return
        answering: Program | Executor = program
        if number := stack.enter_context(connect(executor, values["workers"], threads=threads, calls=calls)):
            from typedrag.experiments.executors import ask_job
            from typedrag.experiments.ray_pool import RayPool

            job = ask_job(
                source, program_options, retriever=retriever, index=index, identity=identity, reranker=reranker,
                as_published=as_published,
                lm=LMConfig(spec=spec, api_base=address or lm["api_base"], **opened),
            )  # fmt: skip
            answering = stack.enter_context(closing(RayPool(job, number, threads=threads, calls=calls)))
        _answer_many(
            questions, out, trace=trace, program=answering, threads=threads, store=run.store if run else None,
            max_failures=max_failures, caps=SpendingCaps(**caps), on_notice=say,
        )  # fmt: skip


def _refuse(mistakes: tuple[tuple[Any, str, str], ...]) -> None:
    """Refuse the first mistake that was made: what is true then, its name and the hint."""
    for mistaken, problem, hint in mistakes:
        if mistaken:
            raise InputError(problem, hint)


def _read_questions(file: Path) -> list[AskedQuestion]:
    from typedrag.experiments import read_question_file, read_questions
    from typedrag.files.text_files import usable_lines

    name = "standard input"
    if file != STDIN:
        return read_question_file(file)
    try:
        with click.open_file("-", encoding="utf-8") as lines:
            return read_questions(usable_lines(lines, name), name)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text ({error})", "Send UTF-8") from None


def _answer_one(program: Program, question: str, question_type: str | None, *, as_json: bool, trace: bool) -> None:
    from rich.console import Console

    from typedrag.cli.answers import draw_trace, follow

    console = Console(stderr=True)
    answer = follow(program, question, question_type, console)
    if trace:
        draw_trace(answer, console)
    else:
        if answer.type_unsure:
            say(f"type unsure: perhaps {answer.question_type}; --type TYPE says it")
        if answer.fallback:
            say(f"fallback: {answer.fallback}")
    if as_json:
        print_json(answer.to_dict())
        return
    click.echo(answer.marked)
    if answer.sources:
        say(f"\n{answer.sources}")
    elif answer.answered == Answered.PASSAGES:
        say(f"\nNo passage is cited. Read: {', '.join(p.id for p in answer.passages)}")


def _answer_many(questions: list[AskedQuestion], out: Path | None, *, trace: bool, **how: Any) -> None:
    from rich.console import Console

    from typedrag.cli.answers import draw_trace
    from typedrag.experiments import answer_questions
    from typedrag.experiments.results import Tally
    from typedrag.lms.cost import Spending

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
                draw_trace(outcome.answer, Console(stderr=True))

        outcomes = answer_questions(questions=questions, on_outcome=show, **how)
    if out:
        write_text(out, "".join(json.dumps(outcome.to_dict(), ensure_ascii=False) + "\n" for outcome in outcomes))
    for outcome in outcomes:
        if outcome.answer is None:
            say(f"question {outcome.question.id}: {outcome.error}")
    tally = Tally.of(outcome.answer for outcome in outcomes)
    say(f"{tally.questions - tally.failed} of {len(questions)} questions have an answer" + (f": {out}" if out else ""))
    say(f"of the answers: {tally.sources}")
    say(f"spent: {in_words(sum((outcome.spent for outcome in outcomes), Spending()))}")

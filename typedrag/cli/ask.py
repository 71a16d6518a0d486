"""`typedrag ask`: answer one question, or a file of them."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import (
    assignments,
    calls_in_flight_option,
    cap_options,
    chosen,
    executor_options,
    index_option,
    nested,
    timeout_option,
)
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answered
from typedrag.files.text_files import write_text

if TYPE_CHECKING:
    from typedrag.core.records import Answer
    from typedrag.experiments import AskedQuestion, Outcome
    from typedrag.experiments.executors import Executor
    from typedrag.programs import Program

STDIN = Path("-")


@click.command()
@click.argument("question", required=False)
@click.option(
    "--program",
    "program_name",
    default="typed_rag",
    show_default=True,
    help="typed_rag, rag, hanrag, … or a compiled one: a folder, models:/NAME@ALIAS or runs:/ID/PATH.",
)
@click.option(
    "--type",
    "question_type",
    type=click.Choice([t.value for t in QuestionType], case_sensitive=False),
    help="Type of the question. Default: the program finds it out.",
)
@index_option
@click.option("--lm", help="embedded[:NAME|FILE.gguf], vllm:MODEL or a DSPy name. Default: TYPEDRAG_LM, else embedded.")
@timeout_option
@click.option("--api-base", help="Address of an OpenAI-compatible server. For vllm, default: TYPEDRAG_API_BASE.")
@click.option("--temperature", type=click.FloatRange(0), help="Temperature of the LM; default: 0.")
@click.option(
    "--max-tokens", type=click.IntRange(1), help="Maximum tokens of a reply; default: 1,024, or 512 if embedded."
)
@click.option(
    "--reranker",
    help="none, bi-encoder[:NAME], cross-encoder[:NAME], monot5:NAME, rankt5:NAME, lit5:NAME, list:FOLDER, "
    "lm-pointwise or lm-listwise. Default: none, or the compiled program's.",
)
@click.option(
    "--retriever",
    help="bm25, dense, hybrid[:WEIGHT], auto, http://HOST:PORT of an index server, "
    "milvus:http://HOST:PORT/COLLECTION, or pyserini:NAME_OR_FOLDER. Default: bm25; auto for preqrag.",
)
@click.option("--no-cache", is_flag=True, help="Ask the LM also what this server was asked before.")
@click.option("-k", "--top-k", type=click.IntRange(1), help="Passages retrieved per query.")
@assignments("-o", "--option", "changes", help="Set any option of the program; repeatable.")
@click.option("--as-published", is_flag=True, help="Use the options and the reranker that the program's paper has.")
@click.option("--json", "as_json", is_flag=True, help="Print the full answer as JSON.")
@click.option("--trace", is_flag=True, help="Show the steps to the answer on stderr.")
@click.option(
    "--file",
    "questions_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Questions, one a line, or JSONL, or CSV or TSV with columns `question` and optionally `id` and "
    "`question_type`; - is stdin.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the answers of --file to this JSONL file.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run into --out.")
@click.option("--threads", type=click.IntRange(1), default=4, show_default=True, help="Questions answered at once.")
@calls_in_flight_option
@click.option(
    "--max-failures", type=click.FloatRange(0, 1), default=1.0, help="Stop if a larger share of questions fails."
)
@executor_options("local")
@cap_options
def command(
    question: str | None,
    question_type: str | None,
    program_name: str,
    index: Path | None,
    lm: str | None,
    api_base: str | None,
    temperature: float | None,
    max_tokens: int | None,
    no_cache: bool,
    reranker: str | None,
    retriever: str | None,
    top_k: int | None,
    changes: dict[str, Any],
    as_published: bool,
    as_json: bool,
    trace: bool,
    questions_file: Path | None,
    out: Path | None,
    resume: bool,
    threads: int,
    calls_in_flight: int | None,
    max_failures: float,
    executor: str,
    workers: int | None,
    **caps: Any,
) -> None:
    """Answer QUESTION from the passages of an index.

    The answer goes to stdout, everything else to stderr, such as its sources: the passages that it
    cites. Questions can also come from --file or standard input; their answers are JSON lines, in the
    order of the questions.
    """
    file = questions_file or (None if question is not None or sys.stdin.isatty() else STDIN)
    if question is not None and questions_file:
        raise InputError("both a question and --file were given", "Give one of them")
    if question is None and file is None:
        raise InputError("no question was given", 'Write: typedrag ask "Why …?"')
    if out and question is not None:
        raise InputError("--out is for the answers of --file", "Redirect the answer: typedrag ask … > FILE")
    questions = _read_questions(file) if file else []
    if question is None and question_type:
        raise InputError("--type is of one question", "Give the file of questions a column question_type")
    if question is not None and any(caps.values()):
        raise InputError("caps are for the questions of --file", "Leave them out: -o max_lm_calls=N is of one question")
    if question is not None and executor != "local":
        raise InputError("--executor is for the questions of --file", "Leave it out")
    if resume and not out:
        raise InputError("--resume continues a run into a file", "Name it with --out")
    if out and not out.parent.is_dir():
        raise InputError(f"the folder of {out} does not exist", "Make it, or name another --out")

    from typedrag.experiments.batch import open_answers
    from typedrag.experiments.config import SpendingCaps
    from typedrag.experiments.loading import program_source
    from typedrag.experiments.ray_pool import connect
    from typedrag.lms.client import CALLS_IN_FLIGHT, limit_calls_in_flight
    from typedrag.lms.cost import track_calls
    from typedrag.lms.lm import default_spec, open_lm, use_lm
    from typedrag.lms.vllm import split_address
    from typedrag.retrieval import open_reranker

    spec, address = split_address(lm or default_spec())
    changes |= chosen(top_k=top_k)
    source = program_source(program_name)
    options = source.options(as_published=as_published, overrides=changes)
    source.check_unlabelled(options, retriever)
    reranker = source.choose_reranker(reranker, as_published=as_published)
    searched = source.open_retriever(index, retriever)
    program = source.build(searched, open_reranker(reranker), options)
    if question is not None and not question.strip():
        raise InputError("the question is empty", 'Write: typedrag ask "Why …?"')
    say(f"{program_name} with {spec}" + (f" over {Path(searched.place).name}" if searched else ""))
    types = {q.id: q.question_type for q in questions if q.question_type}
    lm_settings = chosen(temperature=temperature, max_tokens=max_tokens)
    settings = {
        **source.settings,
        "lm": spec,
        "lm settings": lm_settings,
        "reranker": reranker,
        **(searched.identity if searched else {"index": None}),
        "options": options.model_dump(mode="json"),
        **({"question types": types} if types else {}),
    }
    opened = {"cache": not no_cache, **lm_settings}
    calls = calls_in_flight or CALLS_IN_FLIGHT
    limit_calls_in_flight(calls)
    with ExitStack() as stack:
        run = stack.enter_context(open_answers(out, questions, settings, resume=resume)) if out else None
        stack.enter_context(use_lm(track_calls(open_lm(lm, api_base=api_base, **opened))))
        if question is not None:
            _answer_one(program, question, question_type, as_json=as_json, trace=trace)
            return
        answering: Program | Executor = program
        if number := stack.enter_context(connect(executor, workers, threads=threads, calls=calls)):
            from typedrag.experiments.config import LMConfig
            from typedrag.experiments.executors import ask_job
            from typedrag.experiments.ray_pool import RayPool

            job = ask_job(
                source, options, retriever=retriever, index=index, identity=searched.identity if searched else {},
                reranker=reranker, lm=LMConfig(spec=spec, api_base=address or api_base, **opened),
            )  # fmt: skip
            answering = stack.enter_context(closing(RayPool(job, number, threads=threads, calls=calls)))
        _answer_many(
            questions, out, trace=trace, program=answering, threads=threads, store=run.store if run else None,
            max_failures=max_failures, caps=SpendingCaps(**nested(caps)["caps"]), on_notice=say,
        )  # fmt: skip


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

    from typedrag.cli.follow import follow

    answer = follow(program, question, question_type, Console(stderr=True))
    if trace:
        _draw(answer)
    else:
        if answer.type_unsure:
            say(f"type unsure: perhaps {answer.question_type}; --type TYPE says it")
        if answer.fallback:
            say(f"fallback: {answer.fallback}")
    if as_json:
        click.echo(json.dumps(answer.to_dict(), ensure_ascii=False, indent=1))
        return
    click.echo(answer.marked)
    if answer.sources:
        say(f"\n{answer.sources}")
    elif answer.answered == Answered.PASSAGES:
        say(f"\nNo passage is cited. Read: {', '.join(p.id for p in answer.passages)}")


def _answer_many(questions: list[AskedQuestion], out: Path | None, *, trace: bool, **how: Any) -> None:
    from typedrag.cli.progress import counting, in_words
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
                click.echo(_line(ended[printed]))
                printed += 1
            if trace and outcome.answer:
                _draw(outcome.answer)

        outcomes = answer_questions(questions=questions, on_outcome=show, **how)
    if out:
        write_text(out, "".join(_line(outcome) + "\n" for outcome in outcomes))
    for outcome in outcomes:
        if outcome.answer is None:
            say(f"question {outcome.question.id}: {outcome.error}")
    tally = Tally.of(outcome.answer for outcome in outcomes)
    say(f"{tally.questions - tally.failed} of {len(questions)} questions have an answer" + (f": {out}" if out else ""))
    say(f"of the answers: {tally.sources}")
    say(f"spent: {in_words(sum((outcome.spent for outcome in outcomes), Spending()))}")


def _line(outcome: Outcome) -> str:
    return json.dumps(outcome.to_dict(), ensure_ascii=False)


def _draw(answer: Answer) -> None:
    from rich.console import Console

    from typedrag.cli.trace import draw_trace

    draw_trace(answer, Console(stderr=True))

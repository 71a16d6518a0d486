"""Ask the 24 sample questions with the embedded LM, and write a page of the answers with their traces and faults.

python scripts/ask_samples.py docs/examples.md
"""

import argparse
import datetime
import io
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import dspy
from rich.console import Console

from typedrag import Answer, BM25Retriever, TypedRAG, open_lm, use_lm
from typedrag.cli.ask import draw_trace
from typedrag.cli.terminal import run
from typedrag.core.records import Answered
from typedrag.datasets import SampleQuestion, sample_questions
from typedrag.experiments import AskedQuestion, answer_questions
from typedrag.lms.lm import DEFAULT_EMBEDDED
from typedrag.metrics import Defects, Scored
from typedrag.programs import Program
from typedrag.retrieval.opening import default_index

SPEC = f"embedded:{DEFAULT_EMBEDDED}"


def main() -> None:
    """Ask, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="the Markdown file to write")
    page = parser.parse_args().page
    program = TypedRAG(BM25Retriever(default_index()))
    with use_lm(open_lm(SPEC, cache=False)):  # so that traces show an answer's real cost
        started = time.monotonic()
        answers = dict(answer_all(program, sample_questions()))
    page.write_text(as_page(answers, time.monotonic() - started), "utf-8")


def answer_all(program: Program, questions: list[SampleQuestion]) -> Iterator[tuple[SampleQuestion, Answer]]:
    """Yield each question with its answer, in order."""
    asked_questions = [AskedQuestion(q.id, q.question) for q in questions]
    outcomes = answer_questions(program, asked_questions, threads=2)
    for question, outcome in zip(questions, outcomes, strict=True):
        if outcome.answer is None:
            raise SystemExit(f"{question.id}: {outcome.error}")
        yield question, outcome.answer


def as_page(answers: dict[SampleQuestion, Answer], seconds: float) -> str:
    """The answers as Markdown, each with its trace and its faults."""
    right = sum(a.question_type == q.question_type for q, a in answers.items())
    faults = {q: Defects().score(dspy.Example(question=q.question), a.to_prediction()) for q, a in answers.items()}
    cited = [(set(a.citations), set(q.passage_ids)) for q, a in answers.items()]
    precision = sum(len(c & labels) / len(c) for c, labels in cited if c) / max(1, sum(bool(c) for c, _ in cited))
    lines = [
        "# Answers to the sample questions",
        "",
        "Made by `make examples`, and not edited. The sample corpus, its 24 questions and the labels of the",
        "passages that each needs were written for the project.",
        "",
        f"- Model: `{SPEC}` (1.5 billion parameters, 4 bits), temperature 0",
        "- Program: `typed_rag`, not compiled, with its default options, over BM25 without a reranker",
        f"- Date: {datetime.datetime.now(datetime.UTC).date()}; {seconds / len(answers):.0f} s a question, two at once",
        f"- Types as labelled: {right} of {len(answers)}; answers with a fallback: "
        f"{sum(bool(a.fallback) for a in answers.values())}",
        f"- Cited passages that are labelled as needed: {precision:.0%} (mean over the answers that cite any)",
        f"- Answered from: {sources(answers)}; with a citation: {sum(a.grounded for a in answers.values())}",
        f"- Faults that show without knowing what is right: {counted(faults)}",
        "",
    ]
    for question, answer in answers.items():
        trace = io.StringIO()
        draw_trace(answer, Console(file=trace, width=120, color_system=None))
        lines += [
            f"## {question.question}",
            "",
            f"*{question.id}, answered as {answer.question_type} from {answer.answered}; "
            f"needs {', '.join(question.passage_ids)}*",
            "",
            answer.answer,
            "",
            *([f"**Faults:** {faults[question].feedback}", ""] if faults[question].feedback else []),
            "<details><summary>trace</summary>",
            "",
            "```",
            *(line.rstrip() for line in trace.getvalue().splitlines()),
            "```",
            "",
            "</details>",
            "",
        ]
    return "\n".join(lines)


def sources(answers: Mapping[SampleQuestion, Answer]) -> str:
    """The number of answers from each source."""
    counts = Counter(answer.answered for answer in answers.values())
    return ", ".join(f"{source} {counts[source]}" for source in Answered)


def counted(faults: Mapping[SampleQuestion, Scored]) -> str:
    """The number of faults of each kind, and of the answers that have them."""
    kinds = []
    for name in Defects.measures:
        counts = [scored.measures[name] for scored in faults.values()]
        kinds.append(f"{name.replace('_', ' ')} {sum(counts):.0f} (in {sum(map(bool, counts))} answers)")
    return ", ".join(kinds)


if __name__ == "__main__":
    run(main)

"""Shows an answer in the terminal while it is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from typedrag.core.events import (
    AnswerEnded,
    AnswerStarted,
    AnswerToken,
    Classified,
    Event,
    Read,
    Searched,
    StepEnded,
    SubAnswered,
)
from typedrag.core.records import FALLBACK, Answer
from typedrag.programs import Program


def follow(program: Program, question: str, question_type: str | None, console: Console) -> Answer:
    """The answer to a question; its steps and text are shown while it is made, and cleared at the end.

    Args:
        program: The program that answers.
        question: The question.
        question_type: Its type, if the user says it.
        console: The console to draw on; nothing is drawn if it is no terminal.
    """
    if not console.is_terminal:
        return Answer.from_prediction(program(question=question, question_type=question_type))
    drawing = Drawing(question)
    with Live(drawing.render(), console=console, transient=True, vertical_overflow="visible") as live:
        events = program.stream(question=question, question_type=question_type)
        return asyncio.run(_follow(events, drawing, lambda: live.update(drawing.render())))


async def _follow(events: AsyncIterator[Event], drawing: Drawing, redraw: Callable[[], None]) -> Answer:
    answer = None
    async for event in events:
        drawing.add(event)
        redraw()
        if isinstance(event, AnswerEnded):
            answer = event.answer
    assert answer is not None  # a stream without an answer ends in an error
    return answer


class Drawing:
    """The state of an answer so far: a tree of its steps, and its text.

    Args:
        question: The question, the root of the tree.
    """

    def __init__(self, question: str) -> None:
        self._tree = Tree(f"[bold]{escape(question)}[/bold]")
        self._parts: dict[str, Tree] = {"": self._tree}
        self._text = ""

    def add(self, event: Event) -> None:
        """Add an event."""
        match event:
            case AnswerStarted():
                self._text = ""
            case AnswerToken(text=text):
                self._text += text
            case Classified(question_type=question_type, type_unsure=unsure, route=route):
                self._add(event, f"[cyan]{escape(question_type or route)}[/cyan]{' (type unsure)' * unsure}")
            case Searched(queries=queries):
                for query in queries:
                    self._parts.setdefault(query, self._add(event, escape(query)))
            case Read(passages=passages):
                read = " ".join(p.id for p in passages) or "what the LM knows"
                self._add(event, f"[green]{escape(read)}[/green]")
            case SubAnswered(sub_answer=sub_answer):
                self._add(event, escape(sub_answer.answer))
            case StepEnded(step=step) if step.name == FALLBACK:
                self._add(event, f"[yellow]fallback: {escape(step.output)}[/yellow]")

    def render(self) -> RenderableType:
        """The drawing as a renderable of rich."""
        return Group(self._tree, Text(self._text)) if self._text else self._tree

    def _add(self, event: Event, label: str) -> Tree:
        return self._parts.get(event.part, self._tree).add(label)

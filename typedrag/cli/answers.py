"""An answer at the terminal: drawn while it is made, and its steps as a tree."""

import asyncio
from collections.abc import AsyncIterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from typedrag.cli.terminal import is_quiet
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
from typedrag.core.records import FALLBACK, Answer, Answered, Step
from typedrag.programs import Program

_WIDEST = 300
_SOURCES = {
    Answered.PASSAGES: "answered from passages",
    Answered.KNOWLEDGE: "answered from what the LM knows",
    Answered.NOTHING: "not answered",
}


def follow(program: Program, question: str, question_type: str | None, console: Console) -> Answer:
    """The answer to a question; at a terminal, its steps and text are shown while it is made, then cleared."""
    if not console.is_terminal or is_quiet():
        return Answer.from_prediction(program(question=question, question_type=question_type))
    drawing = Drawing(question)

    async def draw(events: AsyncIterator[Event]) -> Answer:
        answer = None
        async for event in events:
            drawing.add(event)
            live.update(drawing.render())
            if isinstance(event, AnswerEnded):
                answer = event.answer
        assert answer is not None  # a stream without an answer ends in an error
        return answer

    with Live(drawing.render(), console=console, transient=True, vertical_overflow="visible") as live:
        return asyncio.run(draw(program.stream(question=question, question_type=question_type)))


class Drawing:
    """The state of an answer so far: a tree of its steps, and its text."""

    def __init__(self, question: str) -> None:
        self._tree = Tree(f"[bold]{escape(question)}[/bold]")
        self._parts: dict[str, Tree] = {"": self._tree}
        self._text = ""

    def add(self, event: Event) -> None:
        """Add an event."""
        branch = self._parts.get(event.part, self._tree)
        match event:
            case AnswerStarted():
                self._text = ""
            case AnswerToken(text=text):
                self._text += text
            case Classified(question_type=question_type, type_unsure=unsure, route=route):
                branch.add(f"[cyan]{escape(question_type or route)}[/cyan]{' (type unsure)' * unsure}")
            case Searched(queries=queries):
                for query in queries:
                    self._parts.setdefault(query, branch.add(escape(query)))
            case Read(passages=passages):
                read = " ".join(p.id for p in passages) or "what the LM knows"
                branch.add(f"[green]{escape(read)}[/green]")
            case SubAnswered(sub_answer=sub_answer):
                branch.add(escape(sub_answer.answer))
            case StepEnded(step=step) if step.name == FALLBACK:
                branch.add(f"[yellow]fallback: {escape(step.output)}[/yellow]")

    def render(self) -> RenderableType:
        """The drawing as a renderable of rich."""
        return Group(self._tree, Text(self._text)) if self._text else self._tree


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

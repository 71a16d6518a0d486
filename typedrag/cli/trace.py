"""Draws the steps of an answer as a tree."""

from __future__ import annotations

from rich.console import Console, Group
from rich.markup import escape
from rich.tree import Tree

from typedrag.core.records import Answer, Answered, Step

_WIDEST = 300
_SOURCES = {
    Answered.PASSAGES: "answered from passages",
    Answered.KNOWLEDGE: "answered from what the LM knows",
    Answered.NOTHING: "not answered",
}


def draw_trace(answer: Answer, console: Console) -> None:
    """Print the steps of an answer: input, output, passages, LM calls, tokens, seconds."""
    total = answer.usage
    title = f"[bold]{escape(answer.question)}[/bold]"
    if answer.question_type:
        title += f"  [cyan]{answer.question_type}[/cyan]" + (" (type unsure)" if answer.type_unsure else "")
    if answer.route:
        title += f"  [cyan]{escape(answer.route)}[/cyan]"
    tree = Tree(title)
    for step in answer.steps:
        _add(tree, step)
    lines = [f"{total.in_words()}, {answer.seconds:.1f} s; {_SOURCES[answer.answered]}"]
    if answer.answered is Answered.PASSAGES:
        lines[0] += f"; cites {escape(', '.join(answer.citations)) or 'nothing'}"
    if answer.fallback:
        lines.append(f"[yellow]fallback: {escape(answer.fallback)}[/yellow]")
    console.print(Group(tree, *lines))


def _add(tree: Tree, step: Step) -> None:
    output = step.output if len(step.output) <= _WIDEST else step.output[:_WIDEST] + "…"
    label = f"[bold]{step.name}[/bold]  {escape(step.input)}"
    if output:
        label += f"  ─► {escape(output)}"
    if step.passage_ids:
        label += f"  [green]{escape(' '.join(step.passage_ids))}[/green]"
    if cost := _cost(step):
        label += f"  [dim]{cost}[/dim]"
    branch = tree.add(label)
    for dropped in step.dropped:
        branch.add(f"[yellow]dropped: {escape(dropped)}[/yellow]")
    for inner in step.steps:
        _add(branch, inner)


def _cost(step: Step) -> str:
    parts = []
    if step.usage.lm_calls:
        parts.append(step.usage.in_words())
    if step.seconds:
        parts.append(f"{step.seconds:.2f} s")
    return ", ".join(parts)

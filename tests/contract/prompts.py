"""The prompts of all programs, by default and as published."""

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

from dspy.lm15 import Request

from tests.contract.lm import deterministic_lm
from tests.programs.passages import ASKING_PROGRAMS, Numbered
from tests.scripted import signatures
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.programs import Options, build_program

QUESTIONS = [QuestionType.REASON.example, QuestionType.COMPARISON.example, QuestionType.DEBATE.example]
SIGNATURES = list(vars(signatures).values())


def prompts() -> dict[str, Any]:
    """By program, options and question: the signature of each call, with the digests of its messages.

    Calls of one signature in a row are sorted, since they may have been made side by side. The first line of each
    system message stands once, by its digest.
    """
    calls: dict[str, dict[str, list[str]]] = {}
    systems: dict[str, str] = {}
    for program in ASKING_PROGRAMS:
        for how, options in _options(program):
            for question in QUESTIONS:
                with deterministic_lm() as engine:
                    build_program(program, Numbered(), options=options)(question=question)
                runs = itertools.groupby(engine.requests, _signature)
                lines = [line for _, run in runs for line in sorted(map(_call, run))]
                calls.setdefault(f"{program}, {how}", {})[question] = lines
                systems |= {_digest(str(r.system)): _first_line(r) for r in engine.requests}
    return {"calls": calls, "system messages": systems}


def _options(program: str) -> Iterator[tuple[str, Options]]:
    yield "by default", Options(threads=1).as_defaults()
    try:
        published = Options.as_published(program)
    except InputError:
        return
    yield "as published", published.model_copy(update={"type_classifier": "linear", "threads": 1}).as_defaults()


def _call(request: Request) -> str:
    messages = [str(request.system), *(f"{message.role}: {message.text}" for message in request.messages)]
    return " ".join([_signature(request), *map(_digest, messages)])


def _signature(request: Request) -> str:
    system = " ".join(str(request.system).split())
    return next(s.__name__ for s in SIGNATURES if system.startswith(" ".join(s.instructions.split())))


def _first_line(request: Request) -> str:
    return f"{_signature(request)}: {str(request.system).splitlines()[0]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]

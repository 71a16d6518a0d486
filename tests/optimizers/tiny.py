"""A program that is small enough to be compiled by every optimizer, and an LM that gets better when told to."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import dspy
from dspy.lm15 import Request, Response

from benchmarks.stub_server import Instances
from tests.scripted import respond
from typedrag.lms.asking import ask
from typedrag.lms.trace import run_concurrently
from typedrag.optimizers.compile.prompt_optimizers.base import CompileRequest

GOOD, POOR = "good", "poor"
OPTIONS: dict[str, dict[str, Any]] = {
    "bootstrap": {},
    "bootstrap-random-search": {"candidates": 4},
    "mipro": {"instructions": 2, "demonstration_sets": 3, "trials": 3},
    "simba": {"batch_size": 4, "candidates": 2, "steps": 2},
    "gepa": {"evaluations": 5},
    "rule-search": {"rules": ["Be kind.", "Be BETTER."]},
    "instruction-search": {
        "instructions": {"kind": {"AnswerTiny": "Be kind."}, "better": {"AnswerTiny": "Be BETTER."}}
    },
    "dspy:COPRO": {"breadth": 2, "depth": 2, "init_temperature": 1.0},
    "dspy:InferRules": {"num_candidates": 2},
    "dspy:BootstrapFewShot": {},
    "dspy:BootstrapFewShotWithOptuna": {"max_demos": 2, "num_candidate_programs": 3},
    "dspy:LabeledFewShot": {},
}
"""Small ones, for each optimizer that needs no provider."""


class NameKind(dspy.Signature):
    """Say whether the question is about a cat or a dog."""

    question: str = dspy.InputField()
    kind: Literal["cat", "dog"] = dspy.OutputField()


class AnswerTiny(dspy.Signature):
    """Answer the question in a word."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Tiny(dspy.Module):
    """Asks for a kind, and at once for two answers by the predictor of that kind."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = dspy.Predict(NameKind)
        self.answerers = {"cat": dspy.Predict(AnswerTiny), "dog": dspy.Predict(AnswerTiny)}

    def forward(self, question: str) -> dspy.Prediction:
        kind = ask("classify", self.classify, retries=1, question=question).prediction.kind
        parts = [f"{question} Part {n}." for n in (1, 2)]
        answers = run_concurrently(lambda part: self.answer_part(kind, part), parts, threads=2)
        return dspy.Prediction(answer=" ".join(answers), kind=kind)

    def answer_part(self, kind: str, question: str) -> str:
        return ask("answer", self.answerers[kind], retries=1, question=question).prediction.answer


class Raising(Tiny):
    """Raises what a function of the question gives; where that is nothing, it answers."""

    def __init__(self, error: Callable[[str], Exception | None]) -> None:
        super().__init__()
        self.error = error

    def forward(self, question: str) -> dspy.Prediction:
        if (error := self.error(question)) is not None:
            raise error
        return super().forward(question)


class Goodness:
    """The share of the two answers that are good; before it is taken, `see` is called with what DSPy passes."""

    name = "goodness"

    def __init__(self, see: Callable[..., object] = lambda gold, pred, trace: None) -> None:
        self.see = see

    def __call__(self, gold: Any, pred: Any, trace: Any = None, *of_a_predictor: Any) -> dspy.Prediction:
        self.see(gold, pred, trace)
        score = pred.answer.split().count(GOOD) / 2
        return dspy.Prediction(score=score, feedback=f"{score:.0%} of it is good")


def examples(count: int, start: int = 0) -> list[dspy.Example]:
    types = itertools.cycle((("cat", "reason"), ("dog", "debate")))
    return [
        dspy.Example(id=f"q{n}", question=f"Why does {kind} {n} sleep?", kind=kind, question_type=type_).with_inputs(
            "question"
        )
        for n, (kind, type_) in zip(range(start, start + count), types, strict=False)
    ]


def brain(system: str, prompt: str, demonstrations: int, wanted: list[str], schema: dict[str, Any]) -> dict[str, Any]:
    """What the LM replies: better with demonstrations, and best if the instructions say to be better."""
    if wanted == ["kind"]:
        return {"kind": "cat" if "cat" in prompt else "dog"}
    if wanted == ["answer"]:
        lot = int(hashlib.sha256(f"{prompt}{demonstrations}".encode()).hexdigest(), 16) % 10
        better = 10 if "BETTER" in system else 7 if demonstrations else 4
        return {"answer": GOOD if lot < better else POOR}
    number = hashlib.sha256(f"{system}{prompt}".encode()).hexdigest()[:6]
    told = f"Answer the question in a word. Be BETTER, number {number}."
    made = Instances(schema, "Why?", 2).make() if schema else dict.fromkeys(wanted, "said")
    for field in ("proposed_instruction", "improved_instruction", "new_instruction", "natural_language_rules"):
        if field in made:
            made[field] = told
    if "module_advice" in made:
        made["module_advice"] = {"answerers['cat']": told, "answerers['dog']": told}
    return made


class Engine:
    """Replies by `brain`.

    Args:
        seconds: That a call takes.
        limit: Calls after which it raises `error`.
        random: Whether replies above temperature 0 vary.
    """

    def __init__(self, seconds: float = 0.0, limit: int | None = None, random: bool = False) -> None:
        self.seconds, self.limit, self.random = seconds, limit, random
        self.error: Callable[[], Exception] = lambda: ConnectionError("nobody answers")
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def complete(self, request: Request) -> Response:
        system, prompt = str(request.system), request.messages[-1].text
        with self._lock:
            self.requests.append(f"{system}\n{[m.text for m in request.messages]}\n{request.config.temperature}")
            if self.limit is not None and len(self.requests) > self.limit:
                raise self.error()
            number = next(self._numbers)
        time.sleep(self.seconds)
        schema = (request.config.response_format or {}).get("json_schema", {}).get("schema", {})
        wanted = list(schema.get("properties", {})) or _listed(system)
        salt = str(number) if self.random and request.config.temperature else ""
        said = brain(system, prompt + salt, (len(request.messages) - 1) // 2, wanted, schema)
        return respond(request, self.text(request, said))

    def text(self, request: Request, said: dict[str, Any]) -> str:
        return json.dumps(said)

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self


class SchemaLM(dspy.LM):
    """An LM whose server is told the schema of its reply."""

    supports_response_schema = True
    supported_params = frozenset({"response_format", "temperature", "max_tokens"})


def tiny_lm(engine: Engine, name: str = "tiny/lm") -> dspy.LM:
    return SchemaLM(name, engine=engine, num_retries=0, cache=False, temperature=0.0)


def request_for(folder: Path, engine: Engine, **changes: Any) -> CompileRequest:
    """To compile `Tiny` on ten training and eight validation examples."""
    sets: dict[str, Any] = {"trainset": examples(10), "valset": examples(8, start=100)}
    given = {"student": Tiny(), "metric": Goodness(), "task_lm": tiny_lm(engine), "log_dir": folder, "threads": 2}
    return CompileRequest(**{**sets, **given, **changes})


def _listed(system: str) -> list[str]:
    lines = system.split("You reply with a JSON object of:\n")[-1].splitlines()
    return [line[2:].split(":")[0] for line in lines if line.startswith("- ")]

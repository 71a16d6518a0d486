"""Programs as targets: end to end, some modules while the others stay as they are, or only the search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import dspy

from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.experiments.question_typing import infer_type
from typedrag.metrics import Metric, Rewrite
from typedrag.optimizers.compile.targets.target import Target, needed, of_kind, transfer, unfrozen
from typedrag.programs import Program
from typedrag.programs.artifact.state import named_predictors
from typedrag.signatures.fields import Citations
from typedrag.signatures.roles import module_of, role_of


class ModuleKind(NamedTuple):
    """A module under the name that users know.

    Attributes:
        about: What it does, in a line.
        types: The question types that reach it; empty if all do.
    """

    about: str
    types: tuple[QuestionType, ...] = ()


MODULES: Mapping[str, ModuleKind] = {
    "type-classifier": ModuleKind("names a question's type, where the LM does so"),
    "keyword-extractor": ModuleKind("writes the keywords of an experience question", (QuestionType.EXPERIENCE,)),
    "comparison-frame": ModuleKind("finds what a question compares, and for what", (QuestionType.COMPARISON,)),
    "reason-sub-queries": ModuleKind("writes the sub-queries of a reason question", (QuestionType.REASON,)),
    "instruction-sub-queries": ModuleKind(
        "writes the sub-queries of an instruction question", (QuestionType.INSTRUCTION,)
    ),
    "debate-frame": ModuleKind(
        "writes topic, sides and their sub-queries of a debate question", (QuestionType.DEBATE,)
    ),
    "sub-aspect-explorer": ModuleKind("names the sub-aspects of a question"),
    "query-variants": ModuleKind("asks the question in other words"),
    "scope-classifier": ModuleKind("says whether a question needs one document or several, where the LM does so"),
    "question-rewriter": ModuleKind("rewrites a single-document question for BM25 and for dense retrieval"),
    "question-splitter": ModuleKind("writes the two sub-questions of a multi-document question"),
    "router": ModuleKind("says how much retrieval a question takes"),
    "decomposer": ModuleKind("writes the parts of a compound question"),
    "refiner": ModuleKind("writes what a complex question needs to know next"),
    "reasoner": ModuleKind("reasons a sentence at a time, each the next query"),
    "relevance": ModuleKind("judges whether a passage is relevant"),
    "ending": ModuleKind("judges whether a complex question is answered"),
    "core-sub-questions": ModuleKind(
        "writes and types sub-questions, of which the core ones are searched for",
    ),
    "gate": ModuleKind("judges which of the passages found are of use, where the LM does so"),
    "answer": ModuleKind("writes answers, or parts of one, from passages"),
    "sub-answer-combiner": ModuleKind(
        "writes an answer out of the answers to a question's parts",
    ),
    "aggregator": ModuleKind(
        "writes an answer out of the answers to sub-queries",
        (QuestionType.REASON, QuestionType.INSTRUCTION),
    ),
    "debate-mediator": ModuleKind("writes an answer out of what the sides say", (QuestionType.DEBATE,)),
    "coverage-judge": ModuleKind("says which core sub-questions a passage answers, or an answer leaves open"),
    "reviser": ModuleKind("revises an answer that leaves core sub-questions open"),
    "answer-without-passages": ModuleKind("answers from what the LM knows"),
    "reply": ModuleKind("replies to what is no question", (QuestionType.NOT_A_QUESTION,)),
    "classifier": ModuleKind("names what a question is, in a program of a package"),
    "searcher": ModuleKind("writes what is searched for, in a program of a package"),
    "judge": ModuleKind("says something about texts, in a program of a package"),
}
"""The modules that can be compiled, in the order in which questions pass them; each signature names its module."""

_WITHIN = "program."
_BY_SIGNATURES = (
    "type-classifier",
    "core-sub-questions",
    "aggregator",
    "debate-mediator",
    "coverage-judge",
    "reviser",
)
"""Modules that `typed_rag` has by the option `modules=signatures`, and not by default."""


def modules_of(program: Program) -> dict[str, tuple[str, ...]]:
    """The names of a program's predictors by module, in the order of `MODULES`.

    Example:
        >>> from typedrag.programs import DirectLM
        >>> modules_of(DirectLM())
        {'answer-without-passages': ('answer_without_passages',)}
    """
    by_module: dict[str, tuple[str, ...]] = dict.fromkeys(MODULES, ())
    for name, predictor in named_predictors(program).items():
        module = module_of(predictor.signature)
        by_module[module] = (*by_module.get(module, ()), name)
    return {module: names for module, names in by_module.items() if module and names}


class Focused(dspy.Module):
    """A program that shows teleprompters only some of its predictors.

    DSPy marks sub-modules as compiled to hide them, which cannot hide one of two predictors in a module.
    """

    def __init__(self, program: dspy.Module, names: Collection[str]) -> None:
        super().__init__()
        self.program = program
        self.names = frozenset(names)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return self.program(**inputs)

    def named_parameters(self) -> list[tuple[str, dspy.Predict]]:
        """The visible predictors: DSPy finds predictors by this method alone."""
        return [(f"{_WITHIN}{n}", p) for n, p in named_predictors(self.program).items() if n in self.names]


class _Silent(dspy.Module):
    """Replaces a predictor that writes, and writes nothing: no LM is asked."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answered=True, answer="", citations=Citations([]))


def silence(module: dspy.Module) -> dspy.Module:
    """A copy of a module whose answer-writing predictors write nothing."""

    def writes(predictor: dspy.Predict) -> bool:
        role = role_of(predictor.signature)
        return role is not None and role.writes

    silent = unfrozen(module)
    silent.map_named_predictors(lambda predictor: _Silent() if writes(predictor) else predictor)
    return silent


class ProgramTarget(Target):
    """A program, or some of its modules by their names in `MODULES`; the whole program runs.

    Raises:
        InputError: If there is no such module.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        if unknown := [module for module in modules if module not in MODULES]:
            raise InputError(f"no module is called '{unknown[0]}'", f"Modules: {', '.join(MODULES)}")
        self.modules = tuple(dict.fromkeys(modules))
        self.name = ",".join(self.modules) or "program"
        self.about = "; ".join(MODULES[m].about for m in self.modules) or "the whole program, end to end"

    @property
    def types(self) -> tuple[QuestionType, ...]:
        """The question types that reach one of its modules; empty if all do."""
        types = [MODULES[module].types for module in self.modules]
        return tuple(t for t in QuestionType if any(t in some for some in types)) if all(types) else ()

    def student(self, program: Program | None = None) -> dspy.Module:
        program = needed(program, self.name)
        return Focused(unfrozen(program), self.predictors(program))

    def predictors(self, program: Program) -> tuple[str, ...]:
        """The names of the predictors to compile; an `InputError` if the program lacks a module."""
        if not self.modules:
            return tuple(named_predictors(program))
        there = modules_of(program)
        if absent := [module for module in self.modules if module not in there]:
            hint = f"It has: {', '.join(there)}"
            if absent[0] in _BY_SIGNATURES:
                hint += "; typed_rag has all its modules with -o modules=signatures"
            raise InputError(f"program '{program.name}', with these options, has no {absent[0]}", hint)
        return tuple(name for module in self.modules for name in there[module])

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """The example, if its question reaches the modules by its labelled or classified type."""
        return (example,) if not self.types or infer_type(example) in self.types else ()

    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        program = needed(program, self.name)
        focused = of_kind(compiled, Focused, self.name)
        copy = unfrozen(program)
        transfer(focused.program, copy, self.predictors(program))
        return copy


class SearchTarget(ProgramTarget):
    """Modules that write queries, scored by the retrieval recall of these queries.

    The student is the program itself, with answer-writing predictors silenced: it classifies, decomposes
    and searches as it always does, at the cost of one LM call a question.
    """

    datasets = ("antique", "trec-dl-nf", "wikipassageqa", "researchy-questions", "sample", "file")

    def __init__(self, modules: Sequence[str], name: str) -> None:
        super().__init__(modules)
        self.name = name
        self.about = f"{self.about}: alone, by the labelled passages that are found"

    def student(self, program: Program | None = None) -> dspy.Module:
        program = needed(program, self.name)
        return Focused(silence(program), self.predictors(program))

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """The example, if it has labelled passages and its question reaches the modules."""
        return super().cases(example) if example.get("passage_ids") else ()

    def metric(self) -> Metric:
        return Rewrite()

"""Targets of compiles: a program end to end, some of its modules, or only its search."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import dspy

from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets import Dataset
from typedrag.experiments.question_typing import infer_type
from typedrag.metrics import Metric, Rewrite
from typedrag.programs import Program
from typedrag.programs.artifact import named_predictors
from typedrag.signatures.fields import Citations
from typedrag.signatures.roles import module_name, signature_role

M = TypeVar("M", bound=dspy.Module)


class Target(ABC):
    """A student to compile, the examples that it learns from, and a way to put it back into its program."""

    name: str
    about: str
    datasets: tuple[str, ...] = ()
    metric: Metric | None = None
    """The target's own metric; None if it is compiled against the user's objective."""

    @abstractmethod
    def student(self, program: Program | None = None) -> dspy.Module:
        """Make a new module for a teleprompter to compile."""

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """A dataset's examples with the student's inputs and the labels of its metric.

        The split is `train`, `validation`, `test` or `all`. Examples that belong together, such as answers to one
        question, are in one split.
        """
        self.check_dataset(dataset)
        return [case for example in dataset.split(split) for case in self.cases(example)]

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """The training examples made from a dataset's example."""
        return (example,)

    def test_examples(self, dataset: Dataset) -> list[dspy.Example]:
        """The examples of the test split, as the test takes them."""
        return self.examples(dataset, "test")

    @property
    def test_metric(self) -> Metric | None:
        """The metric of the test, as `metric` is that of the compile."""
        return self.metric

    @abstractmethod
    def merge_into(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """The module to save: a copy of the program with the compiled student in its place, or the judge."""

    def tested(self, module: dspy.Module) -> dspy.Module:
        """The module to test: of a program the one in the student's place, which may be of another class."""
        return self.student(require_program(module, self.name))

    def check_dataset(self, dataset: Dataset) -> None:
        if self.datasets and dataset.name not in self.datasets:
            raise InputError(
                f"'{self.name}' cannot be compiled on dataset '{dataset.name}'",
                f"Datasets with its labels: {', '.join(self.datasets)}",
            )


def require_program(program: dspy.Module | None, name: str) -> Program:
    if not isinstance(program, Program):
        raise InputError(f"'{name}' is compiled within a program", "Name one: --program NAME")
    return program


def check_kind(compiled: dspy.Module, kind: type[dspy.Module], name: str) -> dspy.Module:
    if not isinstance(compiled, kind):
        raise InputError(
            f"what was compiled of '{name}' is a {type(compiled).__name__}, which cannot be put back",
            "Use another optimizer",
        )
    return compiled


def copy_unmarked(module: M) -> M:
    """A copy without marks of being compiled: DSPy neither compiles nor saves marked modules."""
    copy: M = module.deepcopy()
    for _, part in copy.named_sub_modules(dspy.Module):
        part._compiled = False
    return copy


def transfer(source: dspy.Module, target: dspy.Module, names: Collection[str] | None = None) -> None:
    """Copy the signature, demonstrations and settings of predictors to the target, by default of all that both have."""
    compiled, mine = named_predictors(source), named_predictors(target)
    for name in compiled.keys() & mine.keys() if names is None else names:
        mine[name].signature = compiled[name].signature
        mine[name].demos = list(compiled[name].demos)
        mine[name].config = dict(compiled[name].config)


class ModuleKind(NamedTuple):
    """A module under the name that users know."""

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
    "core-sub-questions": ModuleKind("writes and types sub-questions, of which the core ones are searched for"),
    "gate": ModuleKind("judges which of the passages found are of use, where the LM does so"),
    "answer": ModuleKind("writes answers, or parts of one, from passages"),
    "sub-answer-combiner": ModuleKind("writes an answer out of the answers to a question's parts"),
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
_BY_SIGNATURES = "type-classifier core-sub-questions aggregator debate-mediator coverage-judge reviser".split()
"""Modules that `typed_rag` has by the option `modules=signatures`, and not by default."""


def list_modules(program: Program) -> dict[str, tuple[str, ...]]:
    """The names of a program's predictors by module, in the order of `MODULES`.

    Example:
        >>> from typedrag.programs import DirectLM
        >>> list_modules(DirectLM())
        {'answer-without-passages': ('answer_without_passages',)}
    """
    by_module: dict[str, tuple[str, ...]] = dict.fromkeys(MODULES, ())
    for name, predictor in named_predictors(program).items():
        module = module_name(predictor.signature)
        by_module[module] = (*by_module.get(module, ()), name)
    return {module: names for module, names in by_module.items() if module and names}


class PredictorSubset(dspy.Module):
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


class _NoOpPredictor(dspy.Module):
    """Replaces a predictor that writes, and writes nothing: no LM is asked."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answered=True, answer="", citations=Citations([]))


def mute_writers(module: dspy.Module) -> dspy.Module:
    """A copy of a module whose answer-writing predictors write nothing."""

    def mute(predictor: dspy.Predict) -> dspy.Module:
        role = signature_role(predictor.signature)
        return _NoOpPredictor() if role is not None and role.writes else predictor

    silent = copy_unmarked(module)
    silent.map_named_predictors(mute)
    return silent


class ProgramTarget(Target):
    """A program, or some of its modules by their names in `MODULES`; the whole program runs."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        if unknown := [module for module in modules if module not in MODULES]:
            raise InputError(f"no module is called '{unknown[0]}'", f"Modules: {', '.join(MODULES)}")
        self.modules = tuple(dict.fromkeys(modules))
        self.name = ",".join(self.modules) or "program"
        self.about = "; ".join(MODULES[m].about for m in self.modules) or "the whole program, end to end"

    def student(self, program: Program | None = None) -> dspy.Module:
        program = require_program(program, self.name)
        return PredictorSubset(copy_unmarked(program), self.predictors(program))

    def predictors(self, program: Program) -> tuple[str, ...]:
        """The names of the predictors to compile; an `InputError` if the program lacks a module."""
        if not self.modules:
            return tuple(named_predictors(program))
        there = list_modules(program)
        if absent := [module for module in self.modules if module not in there]:
            hint = f"It has: {', '.join(there)}"
            if absent[0] in _BY_SIGNATURES:
                hint += "; typed_rag has all its modules with -o modules=signatures"
            raise InputError(f"program '{program.name}', with these options, has no {absent[0]}", hint)
        return tuple(name for module in self.modules for name in there[module])

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        types = [MODULES[module].types for module in self.modules]
        reached = not types or not all(types) or any(infer_type(example) in some for some in types)
        return (example,) if reached else ()

    def merge_into(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        program = require_program(program, self.name)
        focused = check_kind(compiled, PredictorSubset, self.name)
        copy = copy_unmarked(program)
        transfer(focused.program, copy, self.predictors(program))
        return copy


class SearchTarget(ProgramTarget):
    """Modules that write queries, scored by the retrieval recall of these queries.

    The student is the program itself, with answer-writing predictors silenced: it classifies, decomposes
    and searches as it always does, at the cost of one LM call a question.
    """

    datasets = ("antique", "trec-dl-nf", "wikipassageqa", "researchy-questions", "sample", "file")
    metric = Rewrite()

    def __init__(self, modules: Sequence[str], name: str) -> None:
        super().__init__(modules)
        self.name = name
        self.about = f"{self.about}: alone, by the labelled passages that are found"

    def student(self, program: Program | None = None) -> dspy.Module:
        program = require_program(program, self.name)
        return PredictorSubset(mute_writers(program), self.predictors(program))

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        return super().cases(example) if example.get("passage_ids") else ()

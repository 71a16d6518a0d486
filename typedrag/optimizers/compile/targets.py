"""Targets of compiles: a program end to end, its modules, its search, or a module or judge by labels of its own."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import dspy
from pydantic import TypeAdapter, ValidationError

from typedrag.core.errors import InputError, NotMeasurable, names_hint
from typedrag.core.question_types import DocumentScope, QuestionType, RevelatorRole, Route
from typedrag.core.records import Passage
from typedrag.datasets import REVELATOR, Dataset
from typedrag.datasets.dataset import check_split, question_group, text_hash
from typedrag.experiments.question_typing import infer_type
from typedrag.metrics import LabelMatch, Metric, QuestionTypeMatch, Rewrite
from typedrag.metrics.judges import human_labels
from typedrag.metrics.judges.linkage import Convention, LinkageJudge
from typedrag.metrics.labels import QueryMatch
from typedrag.programs import HANRAG, Options, PreQRAG, Program, RichRAG, TypedRAG
from typedrag.programs.artifact import named_predictors
from typedrag.programs.hanrag import REVELATOR_SIGNATURES, RevelatorModule
from typedrag.programs.preqrag import LMScopeClassifier
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.programs.typed_rag.type_classifiers import LMTypeClassifier
from typedrag.signatures.fields import AS_ASKED_FOR, Citations, SubAspects, Verdict, add_keys, number_passages
from typedrag.signatures.roles import module_name, signature_role
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper

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
        """Make a new module for an optimizer to compile."""

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


MODULES: Mapping[str, str] = {
    "type-classifier": "names a question's type, where the LM does so",
    "keyword-extractor": "writes the keywords of an experience question",
    "comparison-frame": "finds what a question compares, and for what",
    "reason-sub-queries": "writes the sub-queries of a reason question",
    "instruction-sub-queries": "writes the sub-queries of an instruction question",
    "debate-frame": "writes topic, sides and their sub-queries of a debate question",
    "sub-aspect-explorer": "names the sub-aspects of a question",
    "query-variants": "asks the question in other words",
    "scope-classifier": "says whether a question needs one document or several, where the LM does so",
    "question-rewriter": "rewrites a single-document question for BM25 and for dense retrieval",
    "question-splitter": "writes the two sub-questions of a multi-document question",
    "router": "says how much retrieval a question takes",
    "decomposer": "writes the parts of a compound question",
    "refiner": "writes what a complex question needs to know next",
    "reasoner": "reasons a sentence at a time, each the next query",
    "relevance": "judges whether a passage is relevant",
    "ending": "judges whether a complex question is answered",
    "core-sub-questions": "writes and types sub-questions, of which the core ones are searched for",
    "gate": "judges which of the passages found are of use, where the LM does so",
    "answer": "writes answers, or parts of one, from passages",
    "sub-answer-combiner": "writes an answer out of the answers to a question's parts",
    "aggregator": "writes an answer out of the answers to sub-queries",
    "debate-mediator": "writes an answer out of what the sides say",
    "coverage-judge": "says which core sub-questions a passage answers, or an answer leaves open",
    "reviser": "revises an answer that leaves core sub-questions open",
    "answer-without-passages": "answers from what the LM knows",
    "reply": "replies to what is no question",
    "classifier": "names what a question is, in a program of a package",
    "searcher": "writes what is searched for, in a program of a package",
    "judge": "says something about texts, in a program of a package",
}
"""The modules that can be compiled, in the order in which questions pass them; each signature names its module."""
_TYPES: Mapping[str, tuple[QuestionType, ...]] = {
    "keyword-extractor": (QuestionType.EXPERIENCE,),
    "comparison-frame": (QuestionType.COMPARISON,),
    "reason-sub-queries": (QuestionType.REASON,),
    "instruction-sub-queries": (QuestionType.INSTRUCTION,),
    "debate-frame": (QuestionType.DEBATE,),
    "aggregator": (QuestionType.REASON, QuestionType.INSTRUCTION),
    "debate-mediator": (QuestionType.DEBATE,),
    "reply": (QuestionType.NOT_A_QUESTION,),
}
"""The types of question that reach a module, where not all do."""

_WITHIN = "program."
_BY_SIGNATURES = "type-classifier core-sub-questions aggregator debate-mediator coverage-judge reviser".split()
"""Modules that `typed_rag` has by the option `modules=signatures`, and not by default."""


def list_modules(program: Program) -> dict[str, tuple[str, ...]]:
    """The names of a program's predictors by module, in the order of `MODULES`."""
    by_module: dict[str, tuple[str, ...]] = dict.fromkeys(MODULES, ())
    for name, predictor in named_predictors(program).items():
        module = module_name(predictor.signature)
        by_module[module] = (*by_module.get(module, ()), name)
    return {module: names for module, names in by_module.items() if module and names}


class PredictorSubset(dspy.Module):
    """A program that shows optimizers only some of its predictors.

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

    def __init__(self, signature: type[dspy.Signature]) -> None:
        super().__init__()
        self.signature = signature

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answered=True, answer="", citations=Citations([]))


def mute_writers(module: dspy.Module) -> dspy.Module:
    """A copy of a module whose answer-writing predictors write nothing."""

    def mute(predictor: dspy.Predict) -> dspy.Module:
        role = signature_role(predictor.signature)
        return _NoOpPredictor(predictor.signature) if role is not None and role.writes else predictor

    silent = copy_unmarked(module)
    silent.map_named_predictors(mute)
    return silent


class ProgramTarget(Target):
    """A program, or some of its modules by their names in `MODULES`; the whole program runs."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        if unknown := [module for module in modules if module not in MODULES]:
            raise InputError(f"no module is called '{unknown[0]}'", names_hint("Modules", unknown[0], MODULES))
        self.modules = tuple(dict.fromkeys(modules))
        self.name = ",".join(self.modules) or "program"
        self.about = "; ".join(MODULES[m] for m in self.modules) or "the whole program, end to end"

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
        types = [_TYPES.get(module, ()) for module in self.modules]
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


class PartTarget(Target):
    """A module of a program, alone."""

    program: type[Program]
    kind: type[dspy.Module]
    lack: str  # what other programs lack, for errors
    lm_options: ClassVar[Mapping[str, Any]] = {}  # the options with which a program has this module

    def student(self, program: Program | None = None) -> dspy.Module:
        """A copy of the program's module; a new one without a program, or if the program's is of another class."""
        if program and (own := self.find_part(self.check_program(program))):
            return copy_unmarked(own)
        return self.kind(program.options if program else Options())

    def merge_into(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        program = self.check_program(require_program(program, self.name))
        copy = copy_unmarked(program)
        if self.find_part(copy) is None:  # it works in another way, and asks the LM from now on
            options = program.options.with_given(self.lm_options)
            copy = type(program)(program.retriever, program.reranker, options)
            transfer(program, copy)
        part = self.find_part(copy)
        assert part is not None, "it is asked"
        transfer(check_kind(compiled, self.kind, self.name), part)
        return copy

    def tested(self, module: dspy.Module) -> dspy.Module:
        program: Any = self.check_program(require_program(module, self.name))
        return program.classifier if self.lm_options else self.student(program)  # it may classify in another way

    def check_program(self, program: Program) -> Program:
        if not isinstance(program, self.program):
            raise InputError(f"program '{program.name}' {self.lack}", f"Use {self.program.name}")
        return program

    def find_part(self, program: Program) -> dspy.Module | None:
        return next((module for _, module in program.named_sub_modules(self.kind)), None)


class TypeClassifierTarget(PartTarget):
    """The module that asks the LM for a question's type, on labelled questions."""

    name = "type-classifier-alone"
    about = "the type classifier that asks the LM: alone, by labelled question types"
    datasets = ("nf-cats", "sample", "file")
    program, kind, lack = TypedRAG, LMTypeClassifier, "has no type classifier"
    metric = QuestionTypeMatch()
    lm_options: ClassVar[Mapping[str, Any]] = {"type_classifier": "lm"}


class ScopeClassifierTarget(PartTarget):
    """PreQRAG's classifier that asks the LM, on questions whose subset is their scope (paper 3, table 1)."""

    name = "scope-classifier-alone"
    about = "PreQRAG's classifier that asks the LM: alone, by questions that datasets build preqrag has made"
    datasets = ("file",)
    program, kind, lack = PreQRAG, LMScopeClassifier, "does not classify by documents"
    metric = LabelMatch(field="scope")
    lm_options: ClassVar[Mapping[str, Any]] = {"preqrag": {"classifier": "lm"}}

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        self.check_dataset(dataset)
        return labelled_scopes(dataset, split)


def labelled_scopes(dataset: Dataset, split: str = "all") -> list[dspy.Example]:
    """The examples whose subset is a scope, with the subset as their `scope`."""
    scopes = {scope.value for scope in DocumentScope}
    examples = [
        dspy.Example(**e.toDict(), scope=e.subset).with_inputs("question")
        for e in dataset.split(split)
        if e.get("subset") in scopes
    ]
    if not examples:
        raise InputError(
            f"{dataset.source} has no question of subset {' or '.join(sorted(scopes))}",
            "Make some: typedrag datasets build preqrag",
        )
    return examples


class SubAspectExplorerTarget(PartTarget):
    """RichRAG's explorer, on the data that its paper fine-tunes it with (RichRAG, section 3.2)."""

    name = "sub-aspect-explorer-alone"
    about = "RichRAG's sub-aspect explorer: alone, by labelled sub-aspects"
    datasets = ("wikiasp",)
    program, kind, lack = RichRAG, SubAspectExplorer, "has no sub-aspect explorer"
    metric = QueryMatch(field="sub_aspects")

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """Yield the question with its `sub_aspects`, unless they are more than an explorer may name."""
        # if they were cut to seven, right sub-aspects among the others would count as wrong
        try:
            aspects = SubAspects.model_validate(list(example.aspects), context=AS_ASKED_FOR)
        except ValidationError:
            return
        yield example.copy(sub_aspects=aspects)


class RevelatorTarget(PartTarget):
    """One role of HANRAG's revelator, on labels made for it (HANRAG, section 4.2)."""

    datasets = (REVELATOR,)
    program, kind = HANRAG, RevelatorModule

    def __init__(self, role: RevelatorRole) -> None:
        self.role, self.metric = role, role_metric(role)
        self.name = f"{role}-alone"
        self.about = f"HANRAG's {role}: alone, by the revelator's training set"

    def student(self, program: Program | None = None) -> dspy.Module:
        return super().student(program) if program else RevelatorModule(self.role, Options())

    def check_program(self, program: Program) -> Program:
        if not isinstance(program, HANRAG) or self.role not in program.revelator():
            raise InputError(f"program '{program.name}', with these options, has no {self.role}", "Use hanrag")
        return program

    def find_part(self, program: Program) -> dspy.Module:
        return program.revelator()[self.role]

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        return (typed_example(self.role, example),) if example.subset == self.role else ()


def role_metric(role: RevelatorRole) -> Metric:
    if role is RevelatorRole.ROUTER:
        definitions = {r.value: f"a question that {r.definition}, such as «{r.example}»" for r in Route}
        return LabelMatch(field="route", definitions=definitions)
    if role is RevelatorRole.RELEVANCE:
        return LabelMatch(field="relevant")
    if role is RevelatorRole.ENDING:
        return LabelMatch(field="ending")
    return QueryMatch(field="query" if role is RevelatorRole.REFINER else "sub_queries")


def typed_example(role: RevelatorRole, example: dspy.Example, options: Options | None = None) -> dspy.Example:
    """A row of the revelator's training set with its values in the types of the role's signature."""
    options = options or Options()
    values: dict[str, Any] = {}
    for name, field in REVELATOR_SIGNATURES[role].fields.items():
        value = example[name]
        if name == "passage":
            [values[name]] = number_passages([Passage("", value["text"], value["title"])], options.passage_words)
            continue
        try:
            values[name] = TypeAdapter(field.annotation).validate_python(value, context=AS_ASKED_FOR)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise InputError(
                f"row '{example.id}' has a {name} that the {role} does not write ({why})",
                "Correct or remove the row",
            ) from None
    others = {name: example[name] for name in ("id", "part", "origin")}
    return dspy.Example(**others, **values).with_inputs(*REVELATOR_SIGNATURES[role].input_fields)


_EXAMPLES_A_QUESTION = 4
"""The most candidates to rank for a question, each with another label."""


class JudgeTarget(Target):
    """A judge, and the labels of people that it is compiled on."""

    kind: type[dspy.Module]
    metric: human_labels.HumanLabels

    def __init__(self, **options: Any) -> None:
        self.options = options

    def student(self, program: Program | None = None) -> dspy.Module:
        return self.kind(**self.options)

    def merge_into(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        return copy_unmarked(check_kind(compiled, self.kind, self.name))

    @property
    def test_metric(self) -> Metric:
        return human_labels.Agreement(labels=self.metric)

    def test_examples(self, dataset: Dataset) -> list[dspy.Example]:
        """An example for each question of the test split, with all its `cases`."""
        of_question: dict[str, list[dspy.Example]] = defaultdict(list)
        for case in self.examples(dataset, "test"):
            of_question[question_group(case)].append(case)
        return [
            dspy.Example(id=cases[0].id, question=cases[0].question, cases=cases).with_inputs("cases")
            for cases in of_question.values()
            if self.metric.comparable(cases)
        ]

    def tested(self, module: dspy.Module) -> dspy.Module:
        return _OfQuestion(module)


class LinkageJudgeTarget(JudgeTarget):
    """LINKAGE's judge, on labelled answers: it ranks a labelled answer among the references."""

    name = "linkage-judge"
    about = "LINKAGE's judge: by labelled answers"
    datasets = ("antique", "trec-dl-nf", "wiki-nfqa", "file")
    kind = LinkageJudge

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.metric = human_labels.RankLabels(convention=Convention(options.get("convention", Convention.TYPED_RAG)))

    def cases(self, example: dspy.Example) -> Iterator[dspy.Example]:
        """Yield a few labelled answers to the question, no two with the same label."""
        try:
            answers = human_labels.labelled_answers(example)
        except NotMeasurable:
            return
        of_label = {answer.candidate.label: answer for answer in reversed(answers)}
        for answer in list(of_label.values())[:_EXAMPLES_A_QUESTION]:
            references = answer.references
            yield dspy.Example(
                id=f"{example.id}/{answer.candidate.label}",
                question=example.question,
                references=[r.text for r in references],
                candidate=answer.candidate.text,
                rank=answer.rank,
                label=answer.candidate.label,
                tied=any(r.label == answer.candidate.label for r in references),
            ).with_inputs("question", "references", "candidate")


class CoverageJudgeTarget(JudgeTarget):
    """The judge of coverage, on people's verdicts of which sub-questions an answer covers."""

    name = "coverage-judge"
    about = "the judge of sub-question coverage: by what people said an answer answers"
    datasets = ("sub-question-coverage",)
    kind = CoverageJudge
    metric = human_labels.VerdictLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Examples of an answer with as many sub-questions as one call judges; see `Target.examples`."""
        self.check_dataset(dataset)
        texts = _group_rows(dataset.examples, split, "answer")
        size = self.student().sub_questions_per_call
        parts = [rows[start : start + size] for rows in texts for start in range(0, len(rows), size)]
        return [
            dspy.Example(
                id=rows[0].id,
                question=rows[0].question,
                text=rows[0].answer,
                sub_questions=add_keys([row.sub_question for row in rows]),
                verdicts=add_keys(Verdict(fragment=row.fragment[:240], answered=row.covered) for row in rows),
            ).with_inputs("text", "sub_questions")
            for rows in parts
        ]


class SubQuestionTyperTarget(JudgeTarget):
    """The typer of sub-questions, on the types that most people chose."""

    name = "sub-question-typer"
    about = "what types sub-questions: by the types that most people chose"
    datasets = ("sub-question-types",)
    kind = SubQuestionTyper
    metric = human_labels.TypeLabels()

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """Examples of a question with the sub-questions on whose types people agree; see `Target.examples`."""
        self.check_dataset(dataset)
        return [
            dspy.Example(
                id=rows[0].id,
                question=rows[0].question,
                sub_questions=add_keys([row.sub_question for row in rows]),
                types=add_keys(human_labels.majority(row.annotated_types) for row in rows),
            ).with_inputs("question", "sub_questions")
            for rows in _group_rows(
                dataset.examples, split, "question", lambda row: human_labels.majority(row.annotated_types)
            )
        ]


JUDGES: Mapping[str, type[JudgeTarget]] = {
    target.name: target for target in (LinkageJudgeTarget, CoverageJudgeTarget, SubQuestionTyperTarget)
}
"""The targets by the names of their judges."""


class _OfQuestion(dspy.Module):
    """A judge of all cases of a question, one after the other."""

    def __init__(self, judge: dspy.Module) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, cases: Sequence[dspy.Example]) -> dspy.Prediction:
        return dspy.Prediction(judgments=[self.judge(**case.inputs()) for case in cases])


def _group_rows(
    rows: Sequence[dspy.Example], split: str, column: str, keep: Callable[[dspy.Example], object] = lambda row: True
) -> list[list[dspy.Example]]:
    """The rows to keep of a split, by a column; a split has whole questions, and needs at least three."""
    check_split(split)
    if split != "all":
        first = sorted(rows, key=lambda row: row.question, reverse=True)
        by_group = {question_group(row): row.question for row in first}
        questions = sorted(by_group, key=lambda group: text_hash(by_group[group]))
        quarter = max(1, len(questions) // 4)
        if len(questions) < 3:
            raise InputError(f"labels of {len(questions)} questions cannot be split in three", "Give labels of more")
        bounds = {"test": questions[:quarter], "validation": questions[quarter : 2 * quarter]}
        chosen = set(bounds.get(split, questions[2 * quarter :]))
        rows = [row for row in rows if question_group(row) in chosen]
    grouped: dict[str, list[dspy.Example]] = defaultdict(list)
    for row in filter(keep, rows):
        grouped[row[column]].append(row)
    return list(grouped.values())


_SEARCHING = ("keyword-extractor", "comparison-frame", "reason-sub-queries", "instruction-sub-queries", "debate-frame")

ALONE: dict[str, Target] = {
    target.name: target
    for target in (
        TypeClassifierTarget(),
        ScopeClassifierTarget(),
        SubAspectExplorerTarget(),
        SearchTarget(_SEARCHING, "searches-alone"),
        *(SearchTarget([module], f"{module}-alone") for module in _SEARCHING),
        SubQuestionTyperTarget(),
        LinkageJudgeTarget(),
        *(RevelatorTarget(role) for role in RevelatorRole),
    )
} | {"coverage-judge-alone": CoverageJudgeTarget()}  # without "alone" it is the module of a program
"""Targets that learn from labels of their own instead of whole answers, by name."""


def find_target(spec: str) -> Target:
    """The target that a spec names: empty for the whole program, modules with commas between, or a name of `ALONE`."""
    if spec in ALONE:
        return ALONE[spec]
    names = [name.strip() for name in spec.split(",") if name.strip()]
    if unknown := [name for name in names if name not in MODULES]:
        raise InputError(
            f"nothing that can be compiled is called '{unknown[0]}'",
            f"Modules: {', '.join(MODULES)}; alone: {', '.join(ALONE)}",
        )
    return ProgramTarget(names)

"""Modules and judges as targets of their own, each with labels made for it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import dspy
from pydantic import TypeAdapter, ValidationError

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.question_types import DocumentScope, RevelatorRole, Route
from typedrag.core.records import Passage
from typedrag.datasets import REVELATOR, SPLITS, Dataset
from typedrag.datasets.dataset import question_group, text_hash
from typedrag.metrics import LabelMatch, Metric, QuestionTypeMatch
from typedrag.metrics.judges import human_labels
from typedrag.metrics.judges.linkage import Convention, LinkageJudge
from typedrag.metrics.labels import QueryMatch
from typedrag.optimizers.compile import targets
from typedrag.optimizers.compile.targets import MODULES, ProgramTarget, SearchTarget, Target
from typedrag.programs import HANRAG, Options, PreQRAG, Program, RichRAG, TypedRAG
from typedrag.programs.hanrag import REVELATOR_SIGNATURES, RevelatorModule
from typedrag.programs.preqrag import LMScopeClassifier
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.programs.typed_rag.type_classifiers import LMTypeClassifier
from typedrag.signatures.fields import AS_ASKED_FOR, SubAspects, Verdict, add_keys, number_passages
from typedrag.sub_questions.coverage_judge import CoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionTyper


class PartTarget(Target):
    """A module of a program, alone."""

    program: type[Program]
    kind: type[dspy.Module]
    lack: str  # what other programs lack, for errors
    lm_options: ClassVar[Mapping[str, Any]] = {}  # the options with which a program has this module

    def student(self, program: Program | None = None) -> dspy.Module:
        """A copy of the program's module; a new one without a program, or if the program's is of another class."""
        if program and (own := self.find_part(self.check_program(program))):
            return targets.copy_unmarked(own)
        return self.kind(program.options if program else Options())

    def merge_into(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        program = self.check_program(targets.require_program(program, self.name))
        copy = targets.copy_unmarked(program)
        if self.find_part(copy) is None:  # it works in another way, and asks the LM from now on
            options = program.options.with_given(self.lm_options)
            copy = type(program)(program.retriever, program.reranker, options)
            targets.transfer(program, copy)
        part = self.find_part(copy)
        assert part is not None, "it is asked"
        targets.transfer(targets.check_kind(compiled, self.kind, self.name), part)
        return copy

    def tested(self, module: dspy.Module) -> dspy.Module:
        program: Any = self.check_program(targets.require_program(module, self.name))
        part = self.find_part(program)
        return program.classifier if part is None else part  # only a classifier may be of another class

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
                "Mend the row, or leave it out",
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
        return targets.copy_unmarked(targets.check_kind(compiled, self.kind, self.name))

    @property
    def test_metric(self) -> Metric:
        return human_labels.Agreement(self.metric)

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
        agreed = [row for row in dataset.examples if human_labels.majority(row.annotated_types)]
        return [
            dspy.Example(
                id=rows[0].id,
                question=rows[0].question,
                sub_questions=add_keys([row.sub_question for row in rows]),
                types=add_keys(human_labels.majority(row.annotated_types) for row in rows),
            ).with_inputs("question", "sub_questions")
            for rows in _group_rows(agreed, split, "question")
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


def _group_rows(rows: Sequence[dspy.Example], split: str, column: str) -> list[list[dspy.Example]]:
    """The rows of a split by a column; a split has all rows of a question, and needs at least three questions."""
    if split not in ("all", *SPLITS):
        raise InputError(f"no split is called '{split}'", f"Splits: all, {', '.join(SPLITS)}")
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
    for row in rows:
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
    """The target that a spec names: empty for the whole program, modules with commas between, or a name of `ALONE`.

    Example:
        >>> find_target("answer,debate-mediator").name
        'answer,debate-mediator'
    """
    if spec in ALONE:
        return ALONE[spec]
    names = [name.strip() for name in spec.split(",") if name.strip()]
    if unknown := [name for name in names if name not in MODULES]:
        raise InputError(
            f"nothing that can be compiled is called '{unknown[0]}'",
            f"Modules: {', '.join(MODULES)}; alone: {', '.join(ALONE)}",
        )
    return ProgramTarget(names)

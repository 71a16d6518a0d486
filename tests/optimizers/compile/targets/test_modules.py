import dspy
import pytest

from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.ways import PUBLISHED
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets.sample import load_sample
from typedrag.experiments.loading import load_program
from typedrag.optimizers.compile.targets import ProgramTarget, find_target, list_modules
from typedrag.programs import (
    HANRAG,
    RAG,
    AdaptiveRAG,
    CoverageEndToEnd,
    DirectLM,
    IRCoT,
    Options,
    PreQRAG,
    PreQRAGOptions,
    RAGFusion,
    RichRAG,
    TypedRAG,
)
from typedrag.programs.artifact import dump_state, named_predictors
from typedrag.programs.compiled import save_compiled
from typedrag.signatures.roles import signature_role

PROGRAMS = {
    "lm classifier": TypedRAG(WordRetriever(), options=Options(type_classifier="lm")),
    "published": TypedRAG(WordRetriever(), options=PUBLISHED),
    "direct": DirectLM(),
    "preqrag": PreQRAG(
        WordRetriever(), options=Options(preqrag=PreQRAGOptions(classifier="lm", prompt_style="D", generation=2))
    ),
    "in phrases": AdaptiveRAG(WordRetriever(), options=Options(answer_length="phrase")),
    **{cls.name: cls(WordRetriever()) for cls in (RAG, HANRAG, IRCoT, RichRAG, RAGFusion, CoverageEndToEnd)},
}
TYPED = PROGRAMS["lm classifier"]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_every_predictor_of_a_program_belongs_to_one_module_and_has_a_role(program):
    names = [name for names in list_modules(program).values() for name in names]
    assert sorted(names) == sorted(named_predictors(program))
    assert all(signature_role(predictor.signature) for predictor in program.predictors())


def test_modules_are_compiled_while_others_stay():
    target = find_target("reason-sub-queries, debate-frame")
    student = target.student(TYPED)
    assert [name for name, _ in student.named_predictors()] == [
        "program.strategies['reason'].decomposer",
        "program.strategies['debate'].decomposer",
    ]
    student.predictors()[0].demos = []
    assert TYPED.strategies["reason"].decomposer.demos  # the program itself stays as it is


def test_what_was_compiled_is_put_back_into_a_copy():
    program, target = TYPED, find_target("reason-sub-queries")
    before = dump_state(program)
    student = target.student(program)
    predictor = student.predictors()[0]
    predictor.signature = predictor.signature.with_instructions("Ask about yeast.")
    predictor.demos = [dspy.Example(question="Why?", sub_queries=["Why does a rise?", "Why does b rise?"])]
    student.program.strategies["debate"].decomposer.demos = []  # nothing that was to be compiled
    student._compiled = True
    made = target.merge_into(program, student)
    assert isinstance(made, TypedRAG) and dump_state(program) == before
    after = dump_state(made)
    assert {name for name in before if after[name] != before[name]} == {"strategies['reason'].decomposer"}
    assert len(made.predictors()) == len(program.predictors())


def test_examples_are_those_that_reach_the_modules():
    dataset = load_sample()
    assert {e.question_type for e in ProgramTarget(["debate-frame"]).examples(dataset)} == {QuestionType.DEBATE}
    both = ProgramTarget(["aggregator", "debate-frame"]).examples(dataset)
    assert {e.question_type for e in both} == {QuestionType.REASON, QuestionType.INSTRUCTION, QuestionType.DEBATE}
    assert len(ProgramTarget(["answer", "debate-frame"]).examples(dataset)) == len(dataset.examples)
    train, test = (ProgramTarget(["debate-frame"]).examples(dataset, split) for split in ("train", "test"))
    assert train and test and not {e.id for e in train} & {e.id for e in test}


def test_what_cannot_be_compiled_is_refused():
    refused = {
        "no debate-mediator": lambda: ProgramTarget(["debate-mediator"]).student(PROGRAMS["rag"]),
        "--program": lambda: ProgramTarget(["answer"]).student(),
        "Modules: ": lambda: find_target("answer,nonsense"),
        "put back": lambda: ProgramTarget().merge_into(TYPED, dspy.Module()),
    }
    for said, act in refused.items():
        with pytest.raises(InputError, match=said):
            act()


SIX = {
    "type-classifier": "ClassifyQuestion",
    "keyword-extractor": "ExtractKeywords",
    "reason-sub-queries": "DecomposeReason",
    "debate-mediator": "MediatePerspectives",
    "aggregator": "AggregateReasons",
    "coverage-judge": "FindAnsweringSentences",
}


def test_each_module_of_the_user_s_program_is_a_signature_that_is_compiled_by_name(tmp_path):
    program = TypedRAG(WordRetriever(), options=Options(modules="signatures"))
    there = list_modules(program)
    assert {module: named_predictors(program)[there[module][0]].signature.__name__ for module in SIX} == SIX
    for module in SIX:
        student = ProgramTarget([module]).student(program)
        [(_, predictor), *_] = student.named_parameters()
        predictor.signature = predictor.signature.with_instructions(f"The {module}.")
        program = ProgramTarget([module]).merge_into(program, student)
    save_compiled(program, tmp_path / "six")
    saved = load_program(tmp_path / "six", retriever=WordRetriever())
    told = {module: named_predictors(saved)[there[module][0]].signature.instructions for module in SIX}
    assert told == {module: f"The {module}." for module in SIX}

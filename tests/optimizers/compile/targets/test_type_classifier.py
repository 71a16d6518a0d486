import dspy
import pytest

from tests.optimizers.compile.targets.words import WordRetriever
from tests.scripted import scripted
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets import Dataset
from typedrag.optimizers.compile.labelled_targets import ALONE
from typedrag.programs import RAG, TypedRAG
from typedrag.programs.artifact import dump_state
from typedrag.signatures.typed_rag import ClassifyQuestion

TARGET = ALONE["type-classifier-alone"]


def nf_cats(*subsets: str) -> Dataset:
    examples = [
        dspy.Example(
            id=f"{s}{n}", question=f"Why is {s} {n} so?", question_type=QuestionType.REASON, subset=s
        ).with_inputs("question")
        for s in subsets
        for n in range(8)
    ]
    return Dataset("nf-cats", tuple(examples))


def test_what_is_measured_is_never_trained_on():
    dataset = nf_cats("train", "valid")
    parts = {split: {e.subset for e in TARGET.examples(dataset, split)} for split in ("train", "validation", "test")}
    assert parts == {"train": {"train"}, "validation": {"train"}, "test": {"valid"}}
    assert len(TARGET.examples(dataset)) == 16 and len(TARGET.examples(dataset, "test")) == 8
    alone = nf_cats("valid")
    assert sum(len(TARGET.examples(alone, split)) for split in parts) == 8


def test_a_program_without_a_type_classifier_is_refused_before_anything_is_paid_for():
    with pytest.raises(InputError, match="program 'rag' has no type classifier"):
        TARGET.student(RAG(WordRetriever()))


def test_labelled_questions_make_demonstrations_for_it():
    student = TARGET.student()
    compiled = dspy.LabeledFewShot(k=2).compile(student, trainset=TARGET.examples(nf_cats("train")))
    with scripted({ClassifyQuestion: {"question_type": "reason"}}) as engine:
        prediction = compiled(question="Why?")
    assert TARGET.metric(nf_cats("train").examples[0], prediction).score == 1
    assert len(engine.prompts) == 1
    assert [set(d) >= {"question", "question_type"} for d in compiled.predictors()[0].demos] == [True, True]


def test_a_compiled_classifier_is_put_into_a_program_that_asks_it():
    program = TypedRAG(WordRetriever())
    program.strategies["reason"].decomposer.demos = []
    student = TARGET.student(program)
    student.classify.signature = student.classify.signature.with_instructions("Name its type.")
    made = TARGET.merge_into(program, student)
    assert made.options == program.options.model_copy(update={"type_classifier": "lm"})
    assert made.classifier.classify.signature.instructions == "Name its type."
    before, after = dump_state(program), dump_state(made)
    assert {name for name in after if name not in before or after[name] != before[name]} == {"classifier.classify"}
    again = TARGET.student(made)
    assert again.classify.signature.instructions == "Name its type." and again is not made.classifier

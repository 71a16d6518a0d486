import json

import dspy
import pytest

from tests.optimizers.compile.targets.words import WordRetriever
from tests.scripted import scripted
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets import Dataset, load_dataset
from typedrag.datasets.sample import load_sample
from typedrag.optimizers.compile.targets import ALONE, labelled_scopes
from typedrag.programs import RAG, Options, PreQRAG, PreQRAGOptions, TypedRAG
from typedrag.programs.artifact import dump_state
from typedrag.programs.preqrag import LMScopeClassifier
from typedrag.signatures.typed_rag import ClassifyQuestion

TYPES, SCOPES = ALONE["type-classifier-alone"], ALONE["scope-classifier-alone"]
ROWS = [
    *({"question": f"Why does bread number {n} rise?", "subset": "single-document"} for n in range(8)),
    *({"question": f"How do bread {n} and cake {n} differ?", "subset": "multi-document"} for n in range(6)),
    *({"question": f"Tell of the ties of bread {n} to cake.", "subset": "multi-document"} for n in range(2)),
]


def nf_cats(*subsets: str) -> Dataset:
    rows = [{"id": f"{s}{n}", "question": f"Why is {s} {n} so?", "subset": s} for s in subsets for n in range(8)]
    typed = [dspy.Example(**row, question_type=QuestionType.REASON).with_inputs("question") for row in rows]
    return Dataset("nf-cats", tuple(typed))


def taught(classifier) -> dspy.Module:
    classifier.classify.signature = classifier.classify.signature.with_instructions("Name it.")
    return classifier


def test_what_is_measured_is_never_trained_on():
    dataset = nf_cats("train", "valid")
    parts = {split: {e.subset for e in TYPES.examples(dataset, split)} for split in ("train", "validation", "test")}
    assert parts == {"train": {"train"}, "validation": {"train"}, "test": {"valid"}}
    assert len(TYPES.examples(dataset)) == 16 and len(TYPES.examples(dataset, "test")) == 8
    alone = nf_cats("valid")
    assert sum(len(TYPES.examples(alone, split)) for split in parts) == 8


def test_scopes_are_the_subsets_of_questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    examples = SCOPES.examples(load_dataset("file", path))
    assert [e.scope for e in examples] == [row["subset"] for row in ROWS]
    splits = [SCOPES.examples(load_dataset("file", path), split) for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == 16 and all(splits)
    said = [dspy.Prediction(scope=scope) for scope in (examples[0].scope, "x")]
    assert [SCOPES.metric(examples[0], prediction).score for prediction in said] == [1, 0]
    with pytest.raises(InputError, match="Datasets with its labels: file"):
        SCOPES.examples(load_sample())
    with pytest.raises(InputError, match="Make some: typedrag datasets build preqrag"):
        labelled_scopes(load_sample())


def test_labelled_questions_make_demonstrations():
    compiled = dspy.LabeledFewShot(k=2).compile(TYPES.student(), trainset=TYPES.examples(nf_cats("train")))
    with scripted({ClassifyQuestion: {"question_type": "reason"}}) as engine:
        prediction = compiled(question="Why?")
    assert TYPES.metric(nf_cats("train").examples[0], prediction).score == 1
    assert len(engine.prompts) == 1
    assert [set(d) >= {"question", "question_type"} for d in compiled.predictors()[0].demos] == [True, True]


def test_a_compiled_classifier_is_put_into_a_copy_that_asks_it():
    program = TypedRAG(WordRetriever())
    program.strategies["reason"].decomposer.demos = []
    made = TYPES.merge_into(program, taught(TYPES.student(program)))
    assert made.options == program.options.model_copy(update={"type_classifier": "lm"})
    before, after = dump_state(program), dump_state(made)
    assert {name for name in after if name not in before or after[name] != before[name]} == {"classifier.classify"}
    again = TYPES.student(made)
    assert again.classify.signature.instructions == "Name it." and again is not made.classifier


@pytest.mark.parametrize(("before", "after"), [("rule", "lm"), ("lm", "lm"), ("either", "either")])
def test_a_compiled_classifier_of_scopes_is_put_into_a_copy_that_asks_it(before, after):
    program = PreQRAG(WordRetriever(), options=Options(preqrag=PreQRAGOptions(classifier=before, prompt_style="D")))
    untouched = dump_state(program)
    made = SCOPES.merge_into(program, taught(SCOPES.student(program)))
    assert made.options.preqrag == PreQRAGOptions(classifier=after, prompt_style="D")
    assert made.classifier.classify.signature.instructions == "Name it."
    assert dump_state(program) == untouched


def test_other_programs_are_refused():
    rag = RAG(WordRetriever())
    with pytest.raises(InputError, match="program 'rag' has no type classifier"):
        TYPES.student(rag)
    for act in (SCOPES.student, lambda other: SCOPES.merge_into(other, LMScopeClassifier(Options()))):
        with pytest.raises(InputError, match="Use preqrag"):
            act(rag)

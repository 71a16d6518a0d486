import json

import dspy
import pytest

from tests.optimizers.compile.targets.words import WordRetriever
from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset
from typedrag.datasets.sample import load_sample
from typedrag.optimizers.compile.labelled_targets import ALONE, labelled_scopes
from typedrag.programs import RAG, Options, PreQRAG, PreQRAGOptions
from typedrag.programs.artifact import dump_state
from typedrag.programs.preqrag import LMScopeClassifier

TARGET = ALONE["scope-classifier-alone"]
ROWS = [
    *({"question": f"Why does bread number {n} rise?", "subset": "single-document"} for n in range(8)),
    *({"question": f"How do bread {n} and cake {n} differ?", "subset": "multi-document"} for n in range(6)),
    *({"question": f"Tell of the ties of bread {n} to cake.", "subset": "multi-document"} for n in range(2)),
]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def compiled(classifier) -> dspy.Module:
    classifier.classify.signature = classifier.classify.signature.with_instructions("Say it.")
    return classifier


def test_it_learns_from_questions_whose_subset_is_their_scope(data):
    examples = TARGET.examples(load_dataset("file", data))
    assert [e.scope for e in examples] == [row["subset"] for row in ROWS]
    splits = [TARGET.examples(load_dataset("file", data), split) for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == 16 and all(splits)
    metric = TARGET.metric
    assert [metric(examples[0], dspy.Prediction(scope=scope)).score for scope in (examples[0].scope, "x")] == [1, 0]
    with pytest.raises(InputError, match="Datasets with its labels: file"):
        TARGET.examples(load_sample())
    with pytest.raises(InputError, match="Make some: typedrag datasets build preqrag"):
        labelled_scopes(load_sample())


@pytest.mark.parametrize(("before", "after"), [("rule", "lm"), ("lm", "lm"), ("either", "either")])
def test_what_was_compiled_is_put_back_and_the_lm_is_asked(before, after):
    program = PreQRAG(WordRetriever(), options=Options(preqrag=PreQRAGOptions(classifier=before, prompt_style="D")))
    untouched = dump_state(program)
    made = TARGET.merge_into(program, compiled(TARGET.student(program)))
    assert made.options.preqrag == PreQRAGOptions(classifier=after, prompt_style="D")
    assert made.classifier.classify.signature.instructions == "Say it."
    assert dump_state(program) == untouched
    with pytest.raises(InputError, match="Use preqrag"):
        TARGET.merge_into(RAG(WordRetriever()), LMScopeClassifier(Options()))
    with pytest.raises(InputError, match="Use preqrag"):
        TARGET.student(RAG(WordRetriever()))

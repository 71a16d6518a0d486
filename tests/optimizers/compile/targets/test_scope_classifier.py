from __future__ import annotations

import json

import dspy
import pytest

from benchmarks import document_scope
from tests.optimizers.compile.targets.words import WordRetriever
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset
from typedrag.datasets.sample import load_sample
from typedrag.optimizers.compile.labelled_targets import ALONE, labelled_scopes
from typedrag.programs import RAG, Options, PreQRAG, PreQRAGOptions
from typedrag.programs.artifact.compiled import save_compiled
from typedrag.programs.artifact.state import state_of
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
    metric = TARGET.metric()
    assert [metric(examples[0], dspy.Prediction(scope=scope)).score for scope in (examples[0].scope, "x")] == [1, 0]
    with pytest.raises(InputError, match="Datasets with its labels: file"):
        TARGET.examples(load_sample())
    with pytest.raises(InputError, match="Make some: typedrag datasets build preqrag"):
        labelled_scopes(load_sample())


@pytest.mark.parametrize(("before", "after"), [("rule", "lm"), ("lm", "lm"), ("either", "either")])
def test_what_was_compiled_is_put_back_and_the_lm_is_asked(before, after):
    program = PreQRAG(WordRetriever(), options=Options(preqrag=PreQRAGOptions(classifier=before, prompt_style="D")))
    untouched = state_of(program)
    made = TARGET.put_back(program, compiled(TARGET.student(program)))
    assert made.options.preqrag == PreQRAGOptions(classifier=after, prompt_style="D")
    assert made.classifier.classify.signature.instructions == "Say it."
    assert state_of(program) == untouched
    with pytest.raises(InputError, match="Use preqrag"):
        TARGET.put_back(RAG(WordRetriever()), LMScopeClassifier(Options()))
    with pytest.raises(InputError, match="Use preqrag"):
        TARGET.student(RAG(WordRetriever()))


def test_the_benchmark_shows_each_make(data, tmp_path, capsys, monkeypatch):
    program = TARGET.put_back(PreQRAG(WordRetriever()), compiled(TARGET.student()))
    save_compiled(program, tmp_path / "program")

    def said(prompt):
        return {"scope": "multi-document" if "differ" in prompt or "ties" in prompt else "single-document"}

    with scripted(
        {s.ClassifyDocumentScope: said, s.ClassifyDocumentScope.with_instructions("Say it."): said}
    ) as engine:
        lm, adapter = dspy.settings.lm, dspy.settings.adapter
    monkeypatch.setattr(document_scope, "open_lm", lambda *_, **__: lm)
    monkeypatch.setattr("typedrag.lms.lm.choose_adapter", lambda _: adapter)
    arguments = ["document_scope", str(data), "--compiled", str(tmp_path / "program"), "--threads", "2"]
    monkeypatch.setattr("sys.argv", arguments)
    document_scope.main()
    shown = capsys.readouterr().out
    assert "16 questions" in shown
    assert "rule      all 0.875, single-document 1.000, multi-document 0.750; mistakes: multi-document as " in shown
    for make, calls in (("lm", 16), ("either", 10), ("compiled", 16)):
        assert f"{make:9} all 1.000, single-document 1.000, multi-document 1.000; mistakes: none" in shown
        assert f"{calls} LM calls" in shown
    assert "both      all 0.875, single-document 1.000, multi-document 0.750" in shown
    assert len(engine.asked()) == 48

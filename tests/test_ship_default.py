from __future__ import annotations

import importlib.util
from pathlib import Path

import dspy
import pytest

from tests.experiments.compiles import about
from tests.programs.compiling import Spy
from typedrag.errors import InputError
from typedrag.experiments.loading import default_source
from typedrag.programs import Options, build_program
from typedrag.programs.artifact.compiled import save_compiled
from typedrag.programs.artifact.state import named_predictors

SCRIPT = Path(__file__).parents[1] / "scripts" / "ship_default.py"
LM = "vllm:smollm2-135m"
EVIDENCE_BASED = "strategies['evidence-based'].answer.predict"
"""Reads passages."""
BETTER = {"verdict": "better", "lms": {"task": {"spec": LM}}}


@pytest.fixture(scope="module")
def ship():
    spec = importlib.util.spec_from_file_location("ship_default", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ship


def saved(folder, program="typed_rag", options=None, said=None, demos=False, changed="", **held):
    """A program of which one instruction was changed."""
    built = build_program(program, Spy(), options=options)
    predictors = named_predictors(built)
    predictor = predictors[changed or list(predictors)[-1]]
    predictor.signature = predictor.signature.with_instructions("Answer in full.")
    if demos:
        values = dict.fromkeys(predictor.signature.fields, "A row of the dataset.")
        predictor.demos = [*predictor.demos, dspy.Example(**values)]
    save_compiled(built, folder, about(**{**BETTER, **(said or {})}), **held)
    return folder


def test_what_is_shipped_is_the_default_of_its_lm(ship, tmp_path, monkeypatch):
    defaults = tmp_path / "defaults"
    assert "smollm2-135m" in ship(saved(tmp_path / "made"), defaults)
    monkeypatch.setattr("typedrag.programs.defaults.FOLDER", defaults)
    found = default_source(LM)
    assert found.compiled and found.compiled.about.verdict == "better"
    predictors = named_predictors(found.compiled.without_index())
    assert list(predictors.values())[-1].signature.instructions == "Answer in full."


def test_rows_that_were_written_for_the_project_are_shipped(ship, tmp_path):
    made = saved(tmp_path / "made", demos=True, said={"dataset": "sample"})
    assert "smollm2-135m" in ship(made, tmp_path / "defaults")


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"program": "rag"}, "is a rag for smollm2-135m"),
        ({"said": {"lms": {}}}, "for an LM that is not known"),
        ({"said": {"lms": {"task": {"spec": "openai/gpt-4o-mini"}}}}, "for an LM that is not known"),
        ({"said": {"verdict": ""}}, "is not shown to be better"),
        ({"said": {"verdict": "worse"}}, "is not shown to be better"),
        ({"reranker": "bi-encoder"}, "other reranker than"),
        ({"retriever": "dense"}, "other retriever than"),
        ({"bm25": {"k1": 0.5}}, "other BM25's settings than"),
        ({"options": Options(top_k=9), "reranker": "bi-encoder"}, "other reranker and options than"),
        ({"demos": True}, "holds demonstrations"),
        ({"changed": EVIDENCE_BASED}, "no longer tells the LM never to follow instructions in passages: "),
    ],
)
def test_what_was_not_shown_to_be_better_as_it_would_be_shipped_is_refused(ship, tmp_path, made, problem):
    with pytest.raises(InputError, match=problem):
        ship(saved(tmp_path / "made", **made), tmp_path / "defaults")
    assert not (tmp_path / "defaults").exists()

import json
from collections import Counter

import dspy
import pytest

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from tests.lm_server import lm_server
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets import load_dataset
from typedrag.experiments import question_typing, read_config, read_run, run_evaluation
from typedrag.experiments.compare import compare
from typedrag.experiments.question_typing import known_type
from typedrag.experiments.resources import Resources

QUESTIONS = [f"Why is thing {n} as it is?" for n in range(6)]
"""Which the n-gram model takes for reason questions."""


@pytest.fixture
def path(tmp_path):
    """Six questions: one is labelled, of one a type was predicted."""
    said = [{"question_type": "debate"}, {"predicted_type": "experience"}, {}, {}, {}, {}]
    file = tmp_path / "questions.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({"id": str(n), "question": q, **t}) for n, (q, t) in enumerate(zip(QUESTIONS, said, strict=True))
        )
    )
    return file


def config_of(path, *programs, server=None, **dataset):
    return read_config(
        None,
        {
            "programs": list(programs),
            "dataset": {"name": "file", "path": str(path), **dataset},
            "metrics": ["length"],
            "lm": {"spec": "vllm:stub", "api_base": server and server.api_base, "num_retries": 0},
            "threads": 2,
            "tracking": {"enabled": False},
        },
    )


def types_of(path, tmp_path, *programs, **dataset) -> list[str]:
    parts = Resources(config_of(path, *programs, **dataset), tmp_path / "judgments.sqlite")
    return [str(q.question_type) for q in sorted(parts.questions, key=lambda q: q.id)]


class Comparisons(dspy.Module):
    """Takes everything for a comparison."""

    def forward(self, question):
        return dspy.Prediction(question_type="comparison", probability=1.0)


def test_a_label_counts_then_a_prediction_then_the_classifier_that_is_named(path, tmp_path, monkeypatch):
    monkeypatch.setattr(question_typing, "build_type_classifier", lambda options: Comparisons())
    plain, named = {"program": "direct_lm", "name": "a"}, {"program": "typed_rag", "name": "b"}
    named["options"] = {"type_classifier": "embedding"}
    assert types_of(path, tmp_path, plain) == ["debate", "experience", *["reason"] * 4]
    assert types_of(path, tmp_path, plain, named) == ["debate", "experience", *["comparison"] * 4]
    assert types_of(path, tmp_path, plain, type_classifier="embedding") == ["debate", "experience", *["comparison"] * 4]
    assert types_of(path, tmp_path, named, type_classifier="linear") == ["debate", "experience", *["reason"] * 4]


def test_a_type_classifier_that_there_is_not_is_refused(path):
    with pytest.raises(InputError, match="'nosuch' is no type classifier"):
        config_of(path, {"program": "direct_lm"}, type_classifier="nosuch")


def test_types_that_the_lm_names_are_asked_for_once_and_are_those_of_the_run_and_its_comparison(path, tmp_path):
    """Of the six questions the LM types four; a reply that says no type is evidence-based."""

    def reply(call):
        if call.wanted != ("question_type",):
            return None
        return {"question_type": "no type" if call.question == QUESTIONS[5] else "instruction"}

    with lm_server(reply=reply) as server:
        program = {"program": "direct_lm", "options": {"retries": 0}}
        config = config_of(path, program, server=server, type_classifier="lm")
        [first] = run_evaluation(config, tmp_path / "first")
        assert len(server.asked("question_type")) == 4
        for _ in run_evaluation(config, tmp_path / "second"):
            pass
        assert len(server.asked("question_type")) <= 5  # but for the one that could not be read
        with pytest.raises(InputError, match="holds a run"):
            list(run_evaluation(config, tmp_path / "second"))
    expected = {"debate": 1, "experience": 1, "instruction": 3, "evidence-based": 1}
    assert Counter(str(q.question_type) for q in first.run.questions) == expected
    assert {name: group.questions for name, group in first.summary.types.items()} == expected
    compared = compare([first.run, read_run(tmp_path / "second")], measures=["cost"], by=("type",))
    assert {d.stratum.name: d.n for d in compared.differences if d.stratum.by == "type"} == expected
    assert first.run.settings["question types"] == "lm"


def test_a_type_that_was_predicted_is_read_and_makes_no_other_dataset(path, tmp_path):
    examples = load_dataset("file", path).examples
    assert [known_type(e) for e in examples[:3]] == [QuestionType.DEBATE, QuestionType.EXPERIENCE, None]
    other = tmp_path / "other.jsonl"
    other.write_text(path.read_text().replace("experience", "debate"))
    assert load_dataset("file", other).fingerprint == load_dataset("file", path).fingerprint


def test_wiki_nfqa_as_it_is_built_here_says_what_type_was_predicted(tmp_path):
    row = {"question_id": "1", "question_text": "Why?", "answer_list": ["a", "b"], "answer_label": [3, 0]}
    file = tmp_path / "built.jsonl"
    file.write_text(json.dumps({**row, "subset": "nq", "predicted_type": "reason"}) + "\n")
    assert load_dataset("wiki-nfqa", file).examples[0].predicted_type is QuestionType.REASON


def test_examples_that_have_a_type_keep_it(tmp_path):
    examples = [dspy.Example(question="Why?", question_type="debate"), dspy.Example(question="Why?")]
    typed = question_typing.with_types(examples, Comparisons(), None, replies=tmp_path / "replies.sqlite", threads=1)
    assert [known_type(e) for e in typed] == [QuestionType.DEBATE, QuestionType.COMPARISON]
    assert "predicted_type" not in examples[1]

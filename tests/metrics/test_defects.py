from __future__ import annotations

import dspy
import pytest

from tests.scripted import scripted, signatures
from typedrag.core.errors import InputError, Unavailable
from typedrag.core.records import CUT_OFF, Passage
from typedrag.experiments.results import higher_is_better
from typedrag.metrics import build_metric
from typedrag.metrics.defects import contradictions
from typedrag.programs import RAG
from typedrag.signatures.judging import SupportVerdict

QUESTION = "Is nuclear power or wind power safer?"
PASSAGES = (
    Passage("power-1", "Nuclear power makes electricity from the heat of split uranium."),
    Passage("power-2", "Wind farms may kill birds and bats."),
    Passage("cats-1", "Cats wash themselves."),
)


def counts(answer: str, citations: tuple[str, ...] = (), fallback: str = "") -> tuple[list[float], float, str]:
    prediction = dspy.Prediction(answer=answer, citations=citations, passages=PASSAGES, fallback=fallback)
    scored = build_metric("defects")(dspy.Example(question=QUESTION), prediction)
    names = ["repeated_sentences", "contradictions", "unused_citations", "cut_off"]
    return [scored.measures[name] for name in names], scored.score, scored.feedback


GOOD = "Wind farms kill birds. Uranium is split for heat."
TWICE = f"{GOOD} Uranium is split for heat."
BOTH = "Nuclear power is safer. Wind power is safer."


@pytest.mark.parametrize(
    ("answer", "citations", "fallback", "found", "feedback"),
    [
        (GOOD, ("power-1", "power-2"), "", [0, 0, 0, 0], ""),
        (TWICE, ("power-1",), "", [1, 0, 0, 0], "It says again: «Uranium is split for heat.»."),
        (
            BOTH,
            (),
            "",
            [0, 1, 0, 0],
            "It says «Nuclear power is safer.» and «Wind power is safer.», which exclude each other.",
        ),
        (GOOD, ("power-2", "cats-1"), "", [0, 0, 1, 0], "It cites, and uses nothing of: cats-1."),
        ("The sun is hot.", ("cats-1",), "", [0, 0, 1, 0], "It cites, and uses nothing of: cats-1."),
        ("Windräder töten Vögel und Fledermäuse.", ("power-2",), "", [0, 0, 0, 0], ""),
        (GOOD, (), f"step 'answer': {CUT_OFF}, 512; and so on", [0, 0, 0, 1], "A reply was cut off before its end."),
        (GOOD, (), "step 'decompose' failed", [0, 0, 0, 0], ""),
    ],
)
def test_faults_are_counted(answer, citations, fallback, found, feedback) -> None:
    assert counts(answer, citations, fallback) == (found, 1 / (1 + sum(found)), feedback)


def test_one_sentence_that_contradicts_itself() -> None:
    found, _, feedback = counts("Nuclear power is safer, while wind power is safer.")
    assert found == [0, 1, 0, 0]
    assert feedback == "It contradicts itself in «Nuclear power is safer, while wind power is safer.»."


def test_a_model_may_tell_contradictions() -> None:
    class Grudging:
        """Says that what follows is excluded by the sentence with an elephant."""

        def verdicts(self, question, sentences, sources):
            excluded = SupportVerdict.CONTRADICTED if "elephant" in sources[0] else SupportVerdict.NOT_STATED
            return [excluded] * len(sentences)

    text = "Cats purr. An elephant is large. An elephant is tiny. Dogs bark."
    large, tiny, dogs = "An elephant is large.", "An elephant is tiny.", "Dogs bark."
    assert contradictions(text, support=Grudging()) == [(large, tiny), (large, dogs)]
    assert contradictions("", support=Grudging()) == []


def test_who_tells_contradictions_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match="'lm' is no way to find contradictions"):
        build_metric("defects", make="lm")
    nowhere = build_metric("defects", make=f"nli:{tmp_path / 'nowhere'}")
    with pytest.raises(Unavailable, match="nowhere"):
        nowhere(dspy.Example(question=QUESTION), dspy.Prediction(answer=BOTH))


def test_more_of_them_is_worse() -> None:
    assert not any(higher_is_better(f"defects/{name}") for name in build_metric("defects").measures)


def test_a_programs_answer_is_measured(sample_retriever) -> None:
    with scripted({signatures.AnswerFromPassages: {"citations": [1], "answer": BOTH}}):
        made = RAG(sample_retriever)(question=QUESTION)
    assert build_metric("defects")(dspy.Example(question=QUESTION), made).measures["contradictions"] == 1

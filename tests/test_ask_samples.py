import importlib.util
from pathlib import Path

import pytest

from typedrag.core.records import CUT_OFF, Answer, Answered, Passage
from typedrag.datasets import sample_questions

SCRIPT = Path(__file__).parents[1] / "scripts" / "ask_samples.py"
ASKED = {"evidence-based-1", "evidence-based-2", "comparison-1", "reason-1"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("ask_samples", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_counts_the_faults_of_its_answers(script):
    vaccines, rain, power, bread = (q for q in sample_questions() if q.id in ASKED)
    passages = (Passage("rain-1", "Rising air cools."), Passage("cats-1", "Cats wash themselves."))
    again = "The body clock releases melatonin in the evening."
    answers = {
        vaccines: Answer(vaccines.question, "The collection does not say.", answered=Answered.NOTHING),
        rain: Answer(rain.question, "Rising air cools first.", passages=passages, citations=("rain-1", "cats-1")),
        power: Answer(power.question, "Nuclear power is safer. Wind power is safer.", answered=Answered.KNOWLEDGE),
        bread: Answer(bread.question, f"{again} {again} {again}", fallback=f"step 'answer': {CUT_OFF}, 512; so it is"),
    }
    page = script.as_page(answers, 8.0)
    assert "- Answered from: passages 2, knowledge 1, nothing 1; with a citation: 1\n" in page
    assert (
        "- Faults that show without knowing what is right: repeated sentences 2 (in 1 answers), contradictions 1 (in 1 "
        "answers), unused citations 1 (in 1 answers), cut off 1 (in 1 answers)\n"
    ) in page
    assert "\n**Faults:** It cites, and uses nothing of: cats-1.\n" in page

import json

import dspy
import pytest

from tests.metrics.scripted_judge import scored, scripted_judge
from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.records import ELSEWHERE, Nugget, Passage, Step
from typedrag.lms import models
from typedrag.metrics import Nuggets, build_metric
from typedrag.metrics.metric import PredictorCall
from typedrag.metrics.nuggets import without_texts
from typedrag.signatures.judging import AssignNuggets, NuggetVerdict
from typedrag.signatures.roles import Role

SUPPORT, PARTIAL, NONE = NuggetVerdict
QUESTION = "Why does bread rise?"
YEAST = Nugget("Yeast feeds on the sugar in the dough.")
GAS = Nugget("Yeast gives off carbon dioxide, which lifts the dough.")
WARM = Nugget("Dough rises faster where it is warm, at about 30 degrees.", vital=False)
SAYS = {
    YEAST: "The yeast eats sugar that is in the dough.",
    GAS: "It gives off carbon dioxide, and this gas lifts the dough.",
    WARM: "At about 30 degrees the dough rises faster.",
}
ASIDE = "My grandmother had a cat that liked to sleep beside the window of her old kitchen in the afternoon sun."


@pytest.fixture(scope="module", autouse=True)
def _minilm() -> None:
    models.fetch("all-minilm-l6-v2")


def example(*nuggets: Nugget, **fields: object) -> dspy.Example:
    return dspy.Example(id="q", question=QUESTION, nuggets=nuggets, **fields).with_inputs("question")


def answer(*texts: str, passages: tuple[str, ...] = (), **more: object) -> dspy.Prediction:
    shown = tuple(Passage(f"p{n}", text) for n, text in enumerate(passages))
    return dspy.Prediction(answer=" ".join(texts), passages=shown, **more)


def verdicts(metric: Nuggets, text: str, *nuggets: Nugget) -> list[NuggetVerdict]:
    return metric.assign(QUESTION, nuggets, [text])


@pytest.mark.parametrize(
    ("text", "nugget", "verdict"),
    [
        (SAYS[GAS], GAS, SUPPORT),
        (SAYS[WARM], WARM, SUPPORT),
        ("At about 90 degrees the dough rises faster.", WARM, PARTIAL),
        ("The dough gets bigger because of yeast.", GAS, PARTIAL),
        (ASIDE, GAS, NONE),
        ("", GAS, NONE),
    ],
)
def test_a_text_supports_a_nugget_by_its_meaning_and_its_numbers(text, nugget, verdict):
    assert verdicts(Nuggets(), text, nugget) == [verdict]


def test_what_retrieval_lost_and_what_the_answer_lost_are_told_apart():
    made = answer(SAYS[YEAST], passages=(f"{SAYS[YEAST]} {SAYS[GAS]}", ASIDE))
    values = scored(Nuggets(), example(YEAST, GAS, WARM), made)
    assert values.measures["passage_vital_strict"] == 1  # retrieval has found what is vital
    assert values.measures["vital_strict"] == 0.5  # and the answer says half of it
    assert values.measures["passage_weighted_strict"] == pytest.approx(2 / 2.5)
    assert 0.5 <= values.measures["passage_used"] < 1
    assert values.score == values.measures["weighted"] <= 0.8
    assert values.details["nuggets"][0] == {
        "text": YEAST.text,
        "vital": True,
        "answer": "support",
        "passages": "support",
    }
    assert values.details["nuggets"][1]["answer"] == "partial support"  # it is about yeast and dough


def test_nothing_retrieved_is_0_and_passages_that_are_not_told_are_not_measured():
    without = scored(Nuggets(), example(YEAST, WARM), answer(SAYS[YEAST])).measures
    assert without["passage_weighted"] == without["passage_vital"] == 0 and "passage_used" not in without
    elsewhere = answer(SAYS[YEAST], steps=(Step(ELSEWHERE),))
    assert not [name for name in scored(Nuggets(), example(YEAST), elsewhere).measures if "passage" in name]
    assert not [
        name for name in scored(Nuggets(passages=False), example(YEAST), answer("x")).measures if "pass" in name
    ]


def test_length_is_no_virtue():
    short, long = (
        scored(Nuggets(), example(YEAST, GAS), answer(SAYS[YEAST], SAYS[GAS], *[ASIDE] * n)).measures for n in (0, 5)
    )
    assert short["vital_strict"] == long["vital_strict"] == 1
    assert short["density"] == pytest.approx(100 * 2 / 19, rel=0.1)
    assert long["density"] < 0.3 * short["density"]


def test_without_vital_nuggets_nothing_vital_is_measured():
    measures = scored(Nuggets(passages=False), example(WARM), answer(SAYS[WARM])).measures
    assert "vital" not in measures and measures["weighted"] == 1


def test_an_lm_is_asked_only_where_embeddings_are_unsure():
    said = {"verdicts": {"q1": "no support"}}
    lm, engine = scripted_judge({AssignNuggets: said})
    metric = Nuggets(lm, make="cascade", passages=False)
    surely = [SAYS[YEAST], ASIDE]
    partly = "The dough gets bigger because of yeast."
    assert scored(metric, example(GAS), answer(partly)).measures["weighted"] == 0
    assert len(engine.prompts) == 1 and GAS.text in engine.prompts[0][1] and partly in engine.prompts[0][1]
    for text in surely:
        metric(example(YEAST), answer(text))
    assert len(engine.prompts) == 1


def test_an_lm_alone_judges_all_nuggets_in_one_call():
    replies = {"verdicts": {"q1": "support", "q2": "partial support", "q3": "no support"}}
    lm, engine = scripted_judge({AssignNuggets: replies})
    measures = scored(Nuggets(lm, make="lm", passages=False), example(YEAST, GAS, WARM), answer("It does.")).measures
    assert len(engine.prompts) == 1
    assert {name: measures[name] for name in ("vital", "vital_strict", "weighted", "weighted_strict")} == {
        "vital": 0.75, "vital_strict": 0.5, "weighted": 0.6, "weighted_strict": 0.4
    }  # fmt: skip


@pytest.mark.parametrize("make", ["cascade", "lm"])
def test_a_make_that_asks_an_lm_needs_one(make):
    with pytest.raises(InputError, match="metric 'nuggets' needs a scorer"):
        build_metric("nuggets", make=make)


def test_a_make_that_there_is_not_is_refused():
    with pytest.raises(InputError, match="way to assign nuggets"):
        build_metric("nuggets", make="words")


def test_nuggets_are_those_of_a_file_by_the_question_whatever_its_id(tmp_path):
    file = tmp_path / "nuggets.jsonl"
    rows = [{"id": "7", "question": "why does bread  rise", "nuggets": [{"text": YEAST.text}]}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metric = build_metric("nuggets", file=file)
    assert scored(metric, example(), answer(SAYS[YEAST])).measures["vital"] == 1
    with pytest.raises(NotMeasurable, match="no nuggets"):
        metric.require(dspy.Example(id="x", question="Why is the sky blue?"))
    file.write_text('{"question": "Why?"}\n')
    with pytest.raises(InputError, match="has no question with nuggets"):
        build_metric("nuggets", file=file)


def test_nuggets_without_a_text_are_as_the_others_say_them():
    shared = Nugget("Yeast makes gas.", True, {"a": "Yeast makes gas.", "b": "Gas is made by yeast."})
    alone, written = Nugget("Salt slows it.", True, {"a": "Salt slows it."}), Nugget("A person's own.")
    edited = Nugget("Yeast makes CO2.", True, shared.wordings)
    known = without_texts([shared, alone, written, edited], {"a"})
    assert [n.text for n in known] == ["Gas is made by yeast.", "A person's own.", "Yeast makes CO2."]
    assert without_texts([shared, alone], set()) == (shared, alone)


def test_feedback_names_what_a_predictor_could_mend():
    metric, made = Nuggets(), answer(SAYS[YEAST], passages=(SAYS[YEAST],))
    of = example(YEAST, Nugget("Bakers in Vienna rolled it out by 1850."))
    told = scored(metric, of, made)
    searcher, writer = (
        metric.predictor_feedback(PredictorCall(role), of, made, told) for role in (Role.SEARCHER, Role.ANSWERER)
    )
    assert searcher == "No passage that was found says: «Bakers in Vienna rolled it out by 1850.»."
    assert writer.startswith("The answer says 1 of the 2 things") and "which no passage says" in writer
    assert metric.predictor_feedback(PredictorCall(Role.CLASSIFIER), of, made, told) == ""

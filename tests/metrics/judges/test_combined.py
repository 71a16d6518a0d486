import math

import dspy
import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.core.errors import InputError
from typedrag.core.records import Reference
from typedrag.lms import models
from typedrag.metrics import Linkage, build_metric
from typedrag.metrics.judges.combined import features, quality
from typedrag.metrics.metric import PredictorCall
from typedrag.retrieval.local_models import LogisticModel
from typedrag.signatures.judging import RankAmongReferences
from typedrag.signatures.roles import Role

QUESTION = "When did Napoleon die, and of what?"
REFERENCES = (
    Reference("Napoleon died on 5 May 1821 of stomach cancer, on Saint Helena.", 3),
    Reference("He died of stomach cancer in 1821.", 3),
    Reference("Napoleon died in 1821.", 2),
    Reference("Napoleon was an emperor.", 1),
    Reference("Napoleon died in 1815 when he fell at Waterloo.", 0),
    Reference("A battle is fought between armies.", 0),
)
RIGHT = "Napoleon Bonaparte died in May 1821; the cause was cancer of the stomach."
FABRICATED = "Napoleon Bonaparte died in June 1834; the cause was a wound from Moscow."
COMBINED = Linkage(make="combined")
EXAMPLE = dspy.Example(id="q1", question=QUESTION, references=REFERENCES).with_inputs("question")


@pytest.fixture
def _shared_words(monkeypatch):
    """Cosines that need no model: the share of the words that two texts have in common."""

    def share(text, others, model=""):
        words = set(text.lower().split())
        return [len(words & set(o.lower().split())) / len(words | set(o.lower().split())) for o in others]

    monkeypatch.setattr("typedrag.metrics.judges.combined.cosines", share)


@pytest.mark.usefixtures("_shared_words")
def test_what_an_answer_shares_with_good_and_bad_references_is_counted():
    references = (Reference("Gas from yeast", 3), Reference("yeast", 2), Reference("Flour", 0))
    found = features("Why does bread rise?", "Gas from Bologna yeast", references)
    assert found["cosine with the nearest good one"] == pytest.approx(3 / 4)
    assert found["cosine with the nearest bad one"] == 0
    assert found["cosine with good ones"] == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert found["worth of all"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert found["words recalled"] == 1  # gas and yeast are all that is worth something
    assert found["words of good ones"] == pytest.approx(2 / 3)
    assert found["names of none"] == pytest.approx(1 / 2)  # Bologna, beside Gas
    assert found["topic"] == 0
    assert found["nearer than good ones to each other"] == pytest.approx(3 / 4 - 1 / 3)
    assert found["length"] == pytest.approx(math.log(5))


def test_a_model_adds_up_standardized_features_and_takes_the_mean_of_what_is_missing(tmp_path):
    model = LogisticModel(
        intercept=0.5, weights={"a": 3.0, "b": 5.0}, mean={"a": 1.0, "b": 0.0}, scale={"a": 2.0, "b": 1.0}
    )
    expected = 1 / (1 + math.exp(-(0.5 + 3 * (2 - 1) / 2)))
    assert model.probability({"a": 2.0, "b": math.nan}) == pytest.approx(expected)
    model.save(tmp_path / "model.json")
    assert LogisticModel.load(tmp_path / "model.json") == model


def test_a_right_answer_is_worth_more_than_its_fabrication_and_than_one_off_the_subject():
    models.fetch("all-minilm-l6-v2")
    found = [COMBINED(EXAMPLE, dspy.Prediction(answer=text)) for text in (RIGHT, FABRICATED, "Bread rises by yeast.")]
    scores = [said.score for said in found]
    assert scores[0] > 0.7 and scores[0] > scores[1] + 0.2 and scores[1] > scores[2]
    assert found[0].measures == {"quality": scores[0]}


@pytest.mark.usefixtures("_shared_words")
def test_both_have_the_ranks_beside_the_quality_that_is_the_score():
    lm, engine = scripted_judge({RankAmongReferences: {"rank": 4}})
    found = Linkage(lm, make="both")(EXAMPLE, dspy.Prediction(answer=RIGHT))
    assert tuple(found.measures) == Linkage(lm, make="both").measures == (*Linkage.measures, "quality")
    assert found.score == found.measures["quality"] == quality(QUESTION, RIGHT, REFERENCES)
    assert found.measures["rank"] == 4 and engine.asked() == ["RankAmongReferences"]
    assert found.details["labels"] == [3, 2, 1, 0]


def test_a_make_that_there_is_not_is_refused():
    with pytest.raises(InputError, match="no make 'best'"):
        build_metric("linkage", make="best")


@pytest.mark.usefixtures("_shared_words")
def test_feedback_names_what_better_ones_say_and_what_no_reference_speaks_of():
    said = COMBINED(EXAMPLE, dspy.Prediction(answer=FABRICATED))
    assert "«June»" in said.feedback and "may be made up" in said.feedback
    call = PredictorCall(Role.TELLER, written=FABRICATED)
    told = COMBINED.predictor_feedback(call, EXAMPLE, dspy.Prediction(answer=FABRICATED), said)
    assert told.startswith("The answer is worth 0.") and "Better ones say this" in told

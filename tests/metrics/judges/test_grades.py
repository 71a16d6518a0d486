import dspy
import pytest

from tests.scripted import scripted
from typedrag.core.errors import InputError, NotMeasurable, StepFailed
from typedrag.core.records import Passage, Reference
from typedrag.metrics.judges.grades import Correctness, Equivalence, Faithfulness, Grade, Relevance

EXAMPLE = dspy.Example(
    id="q1",
    question="Why does bread rise?",
    references=(Reference("Yeast makes gas.", 3), Reference("Because of magic.", 0)),
).with_inputs("question")
PREDICTION = dspy.Prediction(
    answer="Yeast lets the dough rise.\nIt makes gas.", passages=(Passage("p1", "Yeast makes gas in dough.", "Bread"),)
)


def grade(metric: type[Grade], reply, example=EXAMPLE, prediction=PREDICTION, **options):
    signature = metric.plain_signature if options.get("plain") else metric.signature
    with scripted({signature or metric.signature: reply}) as engine:
        result = metric(dspy.settings.lm, **options)(example, prediction)
    return result, engine


@pytest.mark.parametrize(
    ("metric", "grades", "scores", "normalized"),
    [
        (Equivalence, (0, 1, 2), (0, 0.5, 1), (0, 0.5, 1)),
        (Relevance, (0, 1, 2), (0, 0.5, 1), (0, 0.5, 1)),
        (Faithfulness, (-1, 0, 1), (0, 0.5, 1), (-1, 0, 1)),
        (Correctness, (-1, 0, 1, 2), (0, 1 / 3, 2 / 3, 1), (-0.5, 0, 0.5, 1)),
    ],
)
def test_every_grade_has_its_score_and_says_what_it_means(metric, grades, scores, normalized):
    assert tuple(metric.meanings) == grades
    for given, score, norm in zip(grades, scores, normalized, strict=True):
        result, _ = grade(metric, {"grade": given})
        assert result.score == pytest.approx(score)
        assert result.measures == {"grade": given, "normalized": norm}
        assert tuple(result.measures) == metric.measures
        assert metric.meanings[given] in result.feedback


@pytest.mark.parametrize("metric", [Equivalence, Relevance, Faithfulness, Correctness])
@pytest.mark.parametrize("reply", [{"grade": 3}, {"grade": -2}, {"grade": "good"}, "It is a fine answer."])
def test_a_grade_that_is_not_on_the_scale_is_a_failure_of_the_judge(metric, reply):
    with pytest.raises(StepFailed, match="grade"):
        grade(metric, reply, retries=1)


def test_the_judge_sees_the_best_reference_alone_or_instead_gold_answers():
    _, engine = grade(Equivalence, {"grade": 2})
    assert "Yeast makes gas." in engine.prompts[0][1]
    assert "magic" not in engine.prompts[0][1]
    result, engine = grade(Correctness, {"grade": 2}, example=EXAMPLE.copy(answers=("carbon dioxide", "CO2")))
    assert "carbon dioxide" in engine.prompts[0][1] and "CO2" in engine.prompts[0][1]
    assert "Yeast makes gas." not in engine.prompts[0][1]
    assert "carbon dioxide" in result.feedback


def test_the_judge_of_faithfulness_sees_the_passages_and_no_reference():
    _, engine = grade(Faithfulness, {"grade": 1}, passage_words=2)
    assert '"text": "Yeast makes"' in engine.prompts[0][1]
    assert "Yeast makes gas." not in engine.prompts[0][1]


@pytest.mark.parametrize(
    ("options", "given", "words"), [({}, 400, 300), ({"passage_words": 50}, 400, 50), ({}, None, 200)]
)
def test_the_judge_sees_as_much_of_a_passage_as_the_program(options, given, words):
    passage = Passage("p", " ".join(f"w{n}." for n in range(300)))
    prediction = dspy.Prediction(answer="Yeast.", passages=(passage,), passage_words=given)
    _, engine = grade(Faithfulness, {"grade": 1}, prediction=prediction, **options)
    assert engine.prompts[0][1].count("w") >= words
    assert f"w{words - 1}." in engine.prompts[0][1] and f"w{words}." not in engine.prompts[0][1]


@pytest.mark.parametrize(
    ("metric", "prediction", "lack"),
    [
        (Equivalence, PREDICTION, "gold answers"),
        (Correctness, PREDICTION, "gold answers"),
        (Faithfulness, dspy.Prediction(answer="Yeast."), "passages"),
        (Faithfulness, dspy.Prediction(answer="Yeast.", passages=()), "passages"),
    ],
)
def test_without_a_gold_answer_or_passages_there_is_nothing_to_measure_by(metric, prediction, lack):
    with pytest.raises(NotMeasurable, match=lack):
        grade(metric, {"grade": 1}, example=dspy.Example(id="q1", question="Why?"), prediction=prediction)


@pytest.mark.parametrize(("metric", "words"), [
    (Equivalence, "semantic similarity, not surface similarity"),
    (Relevance, "regardless of correctness"),
    (Faithfulness, "grounded in the passages"),
])  # fmt: skip
def test_as_published_the_judge_is_asked_as_in_the_paper(metric, words):
    scored, engine = grade(metric, {"grade": 1}, plain=True)
    [(name, _)] = engine.prompts
    assert name == f"{metric.signature.__name__}Plainly" and scored.measures["grade"] == 1
    assert words in " ".join(metric.plain_signature.instructions.split())
    with pytest.raises(InputError, match="no prompt of its own"):
        grade(Correctness, {"grade": 1}, plain=True)

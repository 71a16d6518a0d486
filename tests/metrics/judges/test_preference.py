import json
import random

import dspy
import numpy as np
import pytest

from tests.metrics.scripted_judge import LogprobsEngine, scored, scripted_judge
from tests.scripted import scripted
from typedrag.core.errors import InputError, NotMeasurable, StepFailed
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Reference, SubQuestion
from typedrag.lms.adapter import SchemaAdapter
from typedrag.lms.replies import use_reply_store
from typedrag.metrics import Preference
from typedrag.metrics.judges.preference import (
    GRID,
    PairwiseJudge,
    PairwiseOutcome,
    Verdicts,
    best_weights,
    compare_in_both_orders,
    cross_validated,
    points,
)
from typedrag.metrics.metric import Scored
from typedrag.signatures.judging import CompareAnswers, ComparePlain
from typedrag.signatures.sub_question_coverage import (
    DecomposeIntoSubQuestions,
    FindAnsweringSentences,
    TypeSubQuestions,
)  # fmt: skip

QUESTION = "Why does bread rise?"
GOOD, BAD = "Yeast makes gas.", "It likes to."


def prefers_good(prompt: str) -> dict[str, str]:
    return {"verdict": "first" if prompt.index(GOOD) < prompt.index(BAD) else "second"}


def compare(reply, answer=GOOD, other=BAD, retries=0):
    with scripted({CompareAnswers: reply}) as engine:
        verdicts = compare_in_both_orders(PairwiseJudge(retries), QUESTION, answer, other)
    return verdicts, engine


def test_answers_are_shown_in_both_orders():
    verdicts, engine = compare(prefers_good)
    assert verdicts == Verdicts(forward="first", backward="second")
    first, second = engine.prompts
    assert first[1].index(GOOD) < first[1].index(BAD)
    assert second[1].index(BAD) < second[1].index(GOOD)
    assert QUESTION in first[1] and QUESTION in second[1]


def test_either_way_round_is_the_same_two_questions(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        verdicts, _ = compare(prefers_good)
        again, silent = compare(AssertionError("asked twice"), answer=BAD, other=GOOD)
    assert not silent.prompts
    assert again == Verdicts(forward=verdicts.backward, backward=verdicts.forward)


def test_probabilities_tell_how_strong_a_liking_for_a_place_is_and_are_kept(tmp_path):
    engine = LogprobsEngine({CompareAnswers: {"verdict": "first"}}, {"first": 0.6, "second": 0.1, "tie": 0.3})
    for _ in range(2):
        lm = dspy.LM("scripted/lm", engine=engine, cache=True)
        with use_reply_store(tmp_path / "replies"), dspy.context(lm=lm, adapter=SchemaAdapter()):
            judge = PairwiseJudge()
            verdicts = compare_in_both_orders(judge, QUESTION, GOOD, BAD)
            said = judge(question=QUESTION, first_answer=GOOD, second_answer=BAD)
        assert said.probabilities == pytest.approx({"first": 0.6, "second": 0.1, "tie": 0.3})
        assert verdicts == Verdicts("first", "first", pytest.approx(0.5))
    assert len(engine.prompts) == 2


def test_what_is_no_more_than_likelier_than_the_other_is_preferred_by_so_much():
    class Undecided(dspy.Module):
        def forward(self, question: str, first_answer: str, second_answer: str) -> dspy.Prediction:
            held = {"first": 0.3, "second": 0.1} if first_answer == GOOD else {"first": 0.2, "second": 0.2}
            return dspy.Prediction(verdict="tie", probabilities={**held, "tie": 0.6})

    verdicts = compare_in_both_orders(Undecided(), QUESTION, GOOD, BAD)
    assert verdicts == Verdicts("tie", "tie", pytest.approx(0.55))
    assert (verdicts.outcome, verdicts.likelier) == (PairwiseOutcome.TIE, 1)
    other = compare_in_both_orders(Undecided(), QUESTION, BAD, GOOD)
    assert (other.preference, other.likelier) == (pytest.approx(0.45), 0)


@pytest.mark.parametrize("reply", ["The first one.", {"verdict": "both"}, {"verdict": 1}, {}])
def test_a_verdict_that_is_none_is_a_failure(reply):
    with pytest.raises(StepFailed, match="compare"):
        compare(reply)


def pairs(n: int, weights: tuple[float, float, float], noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """What the better of two answers covers more, where people go by these weights, but for the noise."""
    rng = random.Random(seed)
    differences = []
    for _ in range(n):
        sides = [np.array([rng.randrange(6) / 5 for _ in range(3)]) for _ in range(2)]
        first, second = (float(np.dot(weights, side)) + rng.gauss(0, noise) for side in sides)
        differences.append(sides[0] - sides[1] if first > second else sides[1] - sides[0])
    return np.array(differences)


def test_weights_that_people_go_by_are_found():
    assert GRID.shape == (124, 3)  # all weights, but none at all
    differences = pairs(300, (1.0, 0.5, -1.0))
    core, background, follow_up = best_weights(differences)
    assert (background / core, follow_up / core) == (0.5, -1.0)
    assert points(differences, np.array([[1.0, 0.5, -1.0]])).mean() > 0.95
    assert cross_validated(differences, [f"q{n}" for n in range(300)]) > 0.95


def test_the_pairs_of_a_question_are_in_one_fold():
    """Each question has a pair and its opposite: whoever sees the one would get the other wrong."""
    one = pairs(10, (1.0, 0.0, 0.0))
    differences = np.concatenate([one, one])
    questions = [f"q{n}" for n in range(10)] * 2
    halves = cross_validated(differences[:10], questions[:10]), cross_validated(differences, questions)
    assert halves[0] == pytest.approx(halves[1])
    assert cross_validated(one[:2], ["q", "q"]) is None


TYPES = list(SubQuestionType)
WORDS = "gas yeast bakery".split()
"""What the sub-questions are about: a core, a background and a follow-up one."""
OWN = tuple(SubQuestion(f"What of the {word}?", type_) for word, type_ in zip(WORDS, TYPES, strict=True))
ANYTHING = dspy.Prediction(answer="Anything.")


def find(prompt: str) -> dict:
    """Each sub-question is answered by the first sentence that has its word."""

    def field(name: str) -> dict:
        return json.loads(prompt.partition(f"[[ ## {name} ## ]]\n")[2].partition("\n")[0])

    sentences = field("sentences").items()
    asked = field("sub_questions").items()
    return {"verdicts": {k: next((int(n) for n, s in sentences if q.split()[-1][:-1] in s), 0) for k, q in asked}}


REPLIES = {
    DecomposeIntoSubQuestions: {"sub_questions": [s.text for s in OWN] + [f"What of part {n}?" for n in range(7)]},
    TypeSubQuestions: {"types": {f"q{n + 1}": str(TYPES[n % 3]) for n in range(10)}},
    FindAnsweringSentences: find,
    CompareAnswers: {"verdict": "first"},
    ComparePlain: {"verdict": "first"},
}


def compared(first: str, second: str, preference: float, question: str = "Why does bread rise?") -> dspy.Example:
    answers = (f"It is the {first}.", f"It is the {second}.")
    return dspy.Example(
        id="q1", question=question, answers_compared=answers, preference=preference, sub_questions=OWN
    ).with_inputs("question")


def measured(example: dspy.Example, **options):
    lm, engine = scripted_judge(REPLIES)
    return scored(Preference(lm, coverage={"cite": "sentences"}, **options), example, ANYTHING), engine


@pytest.mark.parametrize(
    ("first", "second", "preference", "accuracy", "core_only"),
    [
        ("gas", "bakery", 1.0, 1.0, 1.0),
        ("gas", "bakery", -1.0, 0.0, 0.0),
        ("yeast", "bakery", 1.0, 1.0, 0.5),  # neither covers the core sub-question
        ("oven", "bakery", 0.5, 1.0, 0.5),
        ("gas", "gas", 1.0, 0.5, 0.5),
    ],
)
def test_the_rating_prefers_what_people_prefer(first, second, preference, accuracy, core_only):
    result, engine = measured(compared(first, second, preference))
    assert result.measures == {"accuracy": accuracy, "core_only": core_only}
    assert result.score == accuracy
    assert set(engine.asked()) == {"FindAnsweringSentences"}


def test_references_of_different_labels_are_compared_all_with_all():
    example = dspy.Example(
        id="q1",
        question="Why does bread rise?",
        references=(Reference("The gas.", 3), Reference("The yeast.", 2), Reference("A bakery.", 1)),
    ).with_inputs("question")
    result, engine = measured(example)
    assert result.measures == {"accuracy": 1.0, "core_only": pytest.approx(2.5 / 3)}
    assert len(result.details["differences"]) == 3
    assert engine.asked()[:2] == ["DecomposeIntoSubQuestions", "TypeSubQuestions"]


def test_an_lm_that_always_likes_the_first_is_a_coin_toss():
    result, engine = measured(compared("gas", "bakery", 1.0), lm_judge=True)
    assert result.measures["lm_judge"] == 0.5
    assert engine.asked().count("CompareAnswers") == 2


@pytest.mark.parametrize(
    ("first", "second", "preference", "points"), [("gas", "bakery", 1, 1), ("bakery", "gas", -1, 0)]
)
def test_as_published_the_lm_is_asked_once_in_the_order_of_the_dataset(first, second, preference, points):
    result, engine = measured(compared(first, second, preference), lm_judge=True, plain=True)
    assert result.measures["lm_judge"] == points
    assert engine.asked().count("ComparePlain") == 1


def test_over_all_questions_weights_are_found_anew():
    found = []
    for n in range(10):
        example = compared("yeast", "gas", 1.0, question=f"Why does bread {n} rise?")
        found.append(measured(example)[0])
    whole = Preference(scripted_judge(REPLIES)[0]).over_all(found)
    assert whole["cross_validated"] == 1.0
    assert whole["best_background"] > whole["best_core"]
    assert whole.keys() == {"cross_validated", "best_core", "best_background", "best_follow_up"}


def test_as_published_weights_are_found_on_questions_beside_those_that_they_are_measured_on():
    rng = np.random.default_rng(0)
    results = [  # people prefer what covers more of the background, but for three questions
        Scored(0.0, details={"differences": [[1.0, -1.0 if n < 3 else 1.0, 0.0]], "question": f"{n:02}"})
        for n in range(10)
    ]
    rng.shuffle(results)
    for validation in (3, 5):
        metric = Preference(scripted_judge(REPLIES)[0], validation=validation)
        first = [one for one in results if one.details["question"] < f"{validation:02}"]
        best = best_weights(np.array([one.details["differences"][0] for one in first]))
        rest = np.array([one.details["differences"][0] for one in results if one not in first])
        assert metric.over_all(results)["held_out"] == points(rest, best[None]).mean()
    assert "held_out" not in Preference(scripted_judge(REPLIES)[0], validation=10).over_all(results)


def test_what_lacks_two_answers_cannot_be_measured():
    lm, _ = scripted_judge(REPLIES)
    with pytest.raises(NotMeasurable, match="no answers that people have compared"):
        Preference(lm).require(dspy.Example(question="Why?"))
    with pytest.raises(NotMeasurable):
        Preference(lm).require(dspy.Example(id="q", question="Why?", references=(Reference("One.", 1),)))
    with pytest.raises(InputError, match="needs a scorer"):
        Preference(None, lm_judge=True)


def test_what_is_fitted_to_chance_is_no_better_than_chance():
    """The accuracy on the pairs that weights were chosen by is too good; that of the cross-validation is not."""
    differences = pairs(60, (0.0, 0.0, 0.0), noise=1.0)
    fitted = points(differences, best_weights(differences)[None]).mean()
    assert fitted > 0.58
    assert cross_validated(differences, [f"q{n}" for n in range(60)]) < fitted - 0.05


def test_equal_answers_are_a_tie_that_costs_nothing():
    verdicts, engine = compare(AssertionError("asked"), other=GOOD)
    assert verdicts == Verdicts("tie", "tie", 0.5)
    assert not engine.prompts


def test_one_order_that_failed_is_asked_again_alone(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        with pytest.raises(StepFailed):
            compare(lambda prompt: prefers_good(prompt) if prompt.index(GOOD) < prompt.index(BAD) else "?")
        verdicts, engine = compare(prefers_good)
    assert verdicts == Verdicts("first", "second")
    assert len({prompt.partition("Respond")[0] for _, prompt in engine.prompts}) == 1

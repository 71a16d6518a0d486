from typing import ClassVar

import dspy
import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.core.errors import InputError
from typedrag.metrics import Metric, Scored, build_metric, metric_class
from typedrag.metrics.metric import touched, untouched
from typedrag.signatures import AnswerWithoutPassages

EXAMPLE = dspy.Example(question="Why?", answer="Because.").with_inputs("question")


class Same(Metric):
    name = "same"

    def score(self, example, prediction):
        same = example.answer == prediction.answer
        return Scored(float(same), "Same." if same else "Differs.", {"length": float(len(prediction.answer))}, {"a": 1})


class Asked(Metric):
    """Asks its scorer."""

    name = "asked"
    judged: ClassVar[bool] = True

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.judge = dspy.Predict(AnswerWithoutPassages)

    def score(self, example, prediction):
        return Scored(1.0, self.judge(question=example.question).answer)


def test_a_metric_takes_what_all_of_dspy_calls_it_with():
    right = dspy.Prediction(answer="Because.")
    for arguments in ((), (None,), ([],), ([], "predictor", [])):
        said = Same()(EXAMPLE, right, *arguments)
        assert (said.score, said.feedback, said.measures, said.details) == (1.0, "Same.", {"length": 8.0}, {"a": 1})


def test_a_judge_asks_the_scorer_and_leaves_no_trace():
    scorer, at_scorer = scripted_judge({AnswerWithoutPassages: {"answer": "Well judged."}})
    program, at_program = scripted_judge({AnswerWithoutPassages: {"answer": "An answer."}})
    with dspy.context(lm=program, trace=[]):
        said = Asked(scorer)(EXAMPLE, dspy.Prediction(answer="x"), dspy.settings.trace)
        assert dspy.settings.trace == []
        assert dspy.settings.lm is program
    assert (said.feedback, said.measures) == ("Well judged.", {"score": 1.0})  # where the metric gives no other
    assert (len(at_scorer.prompts), len(at_program.prompts)) == (1, 0)
    with pytest.raises(InputError, match="--scorer"):
        Asked()


def test_a_summary_is_the_mean_of_what_answers_have():
    scored = [Scored(0, measures={"f1": 0.0, "em": 1.0}), Scored(1, measures={"f1": 1.0})]
    assert Same().summarize(scored) == {"f1": 0.5, "em": 1.0}
    assert Same().summarize([]) == {}


def test_names_and_options_that_are_unknown_are_refused():
    with pytest.raises(InputError, match="Metrics: "):
        metric_class("nonsense")
    with pytest.raises(InputError, match=r"metric 'f1' has no option 'speed'\. Its options: none"):
        build_metric("f1", speed=3)
    with pytest.raises(InputError, match=r"metric 'rewrite' has no option 'depth'\. Its options: k"):
        build_metric("rewrite", depth=3)


QUESTION = "Why does bread rise?"


def test_what_others_say_in_other_forms_of_the_words_is_not_missing():
    texts = ["Yeasts make gases. Gluten traps the bubbles in dough."]
    assert untouched(texts, ["Gas is made by yeast."], QUESTION) == ["Gluten traps the bubbles in dough."]
    assert untouched(texts, ["Gas is made by yeast.", "The dough's gluten traps it."], QUESTION) == []


def test_no_two_texts_together_touch_a_sentence():
    assert untouched(["Gluten traps carbon dioxide."], ["Gluten is strong.", "Carbon is black."], QUESTION)


def test_the_question_s_own_words_are_no_news():
    assert untouched(["Bread rises and bread rises."], [], QUESTION) == []
    assert not touched("Why does bread rise?", ["Bread rises."], QUESTION)

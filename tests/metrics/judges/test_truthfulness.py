import json

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.scripted_judge import scored, scripted_judge
from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.records import NOT_IN_COLLECTION, Answered, Passage, Reference
from typedrag.datasets import load_dataset
from typedrag.metrics import build_metric
from typedrag.metrics.judges.support import Support
from typedrag.metrics.judges.truthfulness import Truthfulness
from typedrag.metrics.metric import PredictorCall, Scored
from typedrag.signatures.judging import GradeEquivalence, JudgeSupport, SupportVerdict
from typedrag.signatures.roles import Role

QUESTION = "Who invented the term?"
SHORT = dspy.Example(id="q1", question=QUESTION, answers=("Aksel Sandemose",))
LONG = SHORT.copy(answers=("He was the first who wrote down the law of Jante in a novel",))
NO_GOLD = dspy.Example(
    id="q2",
    question="Why does bread rise?",
    references=(Reference("Yeast gives off carbon dioxide.", 4), Reference("Flour is white.", 1)),
    passage_ids=("p1",),
)
PASSAGES = (Passage("p1", "Yeast gives off gas in warm dough."), Passage("p2", "Sourdough bread is eaten in Ghent."))


class Told(Support):
    """Says of each sentence what it is told, and remembers the sources."""

    def __init__(self, told: dict[str, SupportVerdict]) -> None:
        self.told, self.sources = told, []

    def verdicts(self, question, sentences, sources):
        self.sources = list(sources)
        return [self.told[sentence] for sentence in sentences]


def score(example: dspy.Example, answer: str, scorer: dspy.LM | None = None, make: str = "auto", **fields) -> Scored:
    return scored(build_metric("truthfulness", scorer, make=make), example, dspy.Prediction(answer=answer, **fields))


def supported(told: dict[str, SupportVerdict], example: dspy.Example = NO_GOLD, **fields) -> tuple[Scored, list[str]]:
    metric = Truthfulness()
    metric._support = support = Told(told)
    return metric.score(example, dspy.Prediction(answer=" ".join(told), **fields)), support.sources


@pytest.mark.parametrize(
    ("answer", "fields", "truthfulness", "right", "wrong", "not_answered"),
    [
        ("Aksel Sandemose did.", {}, 1, 1, 0, 0),
        ("Jenssen did.", {}, -1, 0, 1, 0),
        ("Jenssen did.", {"answered": Answered.KNOWLEDGE}, -1, 0, 1, 0),
        ("Aksel Sandemose did.", {"answered": "knowledge"}, 1, 1, 0, 0),
        (NOT_IN_COLLECTION, {"answered": Answered.NOTHING}, 0, 0, 0, 1),
        (NOT_IN_COLLECTION, {"answered": "nothing"}, 0, 0, 0, 1),
        ("I found nothing on this.", {}, -1, 0, 1, 0),
        (" ", {}, 0, 0, 0, 1),
    ],
)
def test_right_one_unknown_zero_wrong_minus_one(answer, fields, truthfulness, right, wrong, not_answered) -> None:
    found = score(SHORT, answer, **fields)
    assert tuple(found.measures.items()) == tuple(
        zip(Truthfulness.measures, (truthfulness, right, wrong, not_answered), strict=True)
    )
    assert found.score == (truthfulness + 1) / 2


@pytest.mark.parametrize(("grade", "right", "wrong"), [(2, 1, 0), (1, 0.5, 0), (0, 0, 1)])
@pytest.mark.parametrize("make", ["auto", "lm"])
def test_a_long_gold_answer_is_compared_by_the_judge(make, grade, right, wrong) -> None:
    lm, engine = scripted_judge({GradeEquivalence: {"grade": grade}})
    found = score(LONG, "He wrote it down first.", lm, make)
    assert (found.measures["right"], found.measures["wrong"]) == (right, wrong)
    assert found.measures["truthfulness"] == right - wrong and found.details["by"] == "equivalence"
    assert LONG.answers[0] in engine.prompts[0][1]


def test_where_no_sentence_begins_with_yes_or_no_the_judge_is_asked() -> None:
    example = SHORT.copy(answers=("yes",))
    lm, engine = scripted_judge({GradeEquivalence: {"grade": 2}})
    assert score(example, "Yes, both are.", lm).measures["right"] == 1 and not engine.prompts
    assert score(example, "Both are American.", lm).measures["right"] == 1 and engine.prompts
    assert score(example, "Both are American.").measures["wrong"] == 1


def test_support_counts_what_is_supported_and_against_it_what_is_contradicted() -> None:
    told = {
        "Yeast makes gas.": SupportVerdict.SUPPORTED,
        "Warmth helps.": SupportVerdict.SUPPORTED,
        "It was found in 1999.": SupportVerdict.CONTRADICTED,
        "Bread is old.": SupportVerdict.NOT_STATED,
    }
    found, _ = supported(told, passages=PASSAGES)
    assert found.measures == {"truthfulness": 0.25, "right": 0.5, "wrong": 0.25, "not_answered": 0}
    assert found.score == 0.625
    assert found.details["sentences"] == [[sentence, verdict.value] for sentence, verdict in told.items()]
    assert "Contradicted: «It was found in 1999.»" in found.feedback and "«Bread is old.»" in found.feedback


@pytest.mark.parametrize(
    ("citations", "texts"), [(("p2",), [PASSAGES[1].text]), ((), [p.text for p in PASSAGES]), (("p9",), None)]
)
def test_sources_are_what_is_cited_and_good_references(citations, texts) -> None:
    told = {"Yeast.": SupportVerdict.SUPPORTED}
    _, sources = supported(told, passages=PASSAGES, citations=citations)
    assert sources == [*(texts or [p.text for p in PASSAGES]), "Yeast gives off carbon dioxide."]


def test_a_bad_answer_is_no_source_where_a_question_has_passages_too(tmp_path) -> None:
    references = [{"text": "Yeast makes gas.", "label": 2}, {"text": "The moon pulls it up.", "label": 0}]
    row = {"question": "Why does bread rise?", "references": references, "passage_ids": ["p1", "p2"]}
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(row))
    [example] = load_dataset("file", file).examples
    _, sources = supported({"Gas.": SupportVerdict.SUPPORTED}, example, passages=PASSAGES)
    assert sources == [*(p.text for p in PASSAGES), "Yeast makes gas."]


def test_support_by_an_lm_takes_a_scorer() -> None:
    lm, _ = scripted_judge({JudgeSupport: {"verdicts": {"q1": "contradicted"}}})
    assert score(NO_GOLD, "Yeast eats gas.", lm, "lm").measures["truthfulness"] == -1
    with pytest.raises(InputError, match="scorer"):
        build_metric("truthfulness", make="lm")
    with pytest.raises(InputError, match="embedding, nli:NAME, lm"):
        build_metric("truthfulness", make="words")


def test_without_gold_reference_and_passage_there_is_nothing_to_measure_by() -> None:
    bare = dspy.Example(id="q", question="Why?")
    with pytest.raises(NotMeasurable, match="passage"):
        score(bare, "So.")
    assert score(bare, NOT_IN_COLLECTION, answered=Answered.NOTHING).measures["not_answered"] == 1


@pytest.mark.parametrize(
    ("role", "sources", "said"),
    [
        (Role.ANSWERER, ("Aksel Sandemose wrote it.",), "Its sources say what is right"),
        (Role.COMBINER, ("Nothing.",), "Its sources do not say what is right"),
        (Role.TELLER, (), "would have been better"),
        (Role.SEARCHER, (), "no passage found says it"),
    ],
)
def test_each_predictor_hears_what_it_can_mend(role, sources, said) -> None:
    metric, prediction = Truthfulness(), dspy.Prediction(answer="Jenssen did.", passages=PASSAGES)
    found = metric.score(SHORT, prediction)
    assert "Aksel Sandemose" in found.feedback and "would have been better" in found.feedback
    assert said in metric.predictor_feedback(PredictorCall(role, sources=sources), SHORT, prediction, found)


def test_a_compound_answer_is_right_with_all_its_entities_alone() -> None:
    example = SHORT.copy(answers=("1651 && Rachael",))
    assert score(example, "Rachael, in 1651.").measures["truthfulness"] == 1
    assert score(example, "Rachael, in 1652.").measures["truthfulness"] == -1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(list(SupportVerdict)), max_size=6),
    st.sampled_from(list(Answered)),
    st.sampled_from([SHORT, NO_GOLD, SHORT.copy(answers=("yes",))]),
)
def test_a_score_is_between_0_and_1_and_follows_from_right_and_wrong(verdicts, answered, example) -> None:
    words = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth")
    told = {f"{word} thing.": verdict for word, verdict in zip(words, verdicts, strict=False)}
    found, _ = supported(told, example, passages=PASSAGES, answered=answered)
    measures = found.measures
    assert 0 <= found.score <= 1 and found.score == pytest.approx((measures["truthfulness"] + 1) / 2)
    assert measures["truthfulness"] == pytest.approx(measures["right"] - measures["wrong"])
    assert measures["not_answered"] in (0, 1) and measures["right"] + measures["wrong"] + measures["not_answered"] <= 1

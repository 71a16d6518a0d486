import json

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metrics.scripted_judge import scored, scripted_judge
from typedrag.core.errors import InputError, NotMeasurable, StepFailed
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import ELSEWHERE, Passage, Step, SubQuestion
from typedrag.lms import models
from typedrag.lms.replies import use_reply_store
from typedrag.metrics import Scored, build_metric
from typedrag.metrics.metric import PredictorCall
from typedrag.metrics.sub_question_coverage import (
    WEIGHTS,
    Judged,
    Scenario,
    SubQuestionCoverage,
    answer_coverage,
    coverage_measures,
    rating,
    scaled_rating,
    scenarios,
)
from typedrag.signatures.roles import Role
from typedrag.signatures.sub_question_coverage import DecomposeIntoSubQuestions, FindAnswers, TypeSubQuestions
from typedrag.sub_questions.evidence import locate_fragment

CORE, BACKGROUND, FOLLOW_UP = SubQuestionType
weights = st.fixed_dictionaries({}, optional=dict.fromkeys(SubQuestionType, st.floats(-2, 2)))


@st.composite
def judgments(draw: st.DrawFn) -> list[Judged]:
    passages = draw(st.integers(0, 4))
    fields = st.booleans(), st.tuples(*[st.booleans()] * passages), st.none() | st.floats(0.01, 1)
    return draw(st.lists(st.builds(Judged, st.sampled_from(SubQuestionType), *fields), max_size=25))


def _table(type: SubQuestionType, neither: int, retrieved_only: int, answered_only: int, both: int) -> list[Judged]:
    """Sub-questions with these counts, of one passage each."""
    counts = {(False, False): neither, (False, True): retrieved_only, (True, False): answered_only, (True, True): both}
    return [Judged(type, answered, (found,)) for (answered, found), n in counts.items() for _ in range(n)]


YOU_COM = [*_table(CORE, 26, 32, 9, 33), *_table(BACKGROUND, 32, 48, 3, 17), *_table(FOLLOW_UP, 56, 30, 4, 10)]
"""Column You.com of the paper's table 1."""


def test_the_tables_of_the_paper_follow_from_one_another() -> None:
    """Table 2 for You.com, from the percentages of table 1 (metric 5 needs the single passages)."""
    found = {name: round(value, 2) for name, value in coverage_measures(YOU_COM).items()}
    del found["frequency_correlation"]
    assert found == {
        "core": 0.42, "background": 0.20, "follow_up": 0.14,
        "retrieved_core": 0.65, "retrieved_background": 0.65, "retrieved_follow_up": 0.40,
        "knowledge_identification": 0.51, "retrieval_potential": 0.45,
    }  # fmt: skip


def test_the_four_scenarios() -> None:
    assert scenarios(YOU_COM, CORE) == dict(zip(Scenario, (0.26, 0.32, 0.09, 0.33), strict=True))


@given(judgments())
def test_metrics_are_those_of_the_scenarios(judged: list[Judged]) -> None:
    measures = coverage_measures(judged)
    for type in SubQuestionType:
        shares = scenarios(judged, type)
        if shares is None:
            assert answer_coverage(judged, type) is measures.get(f"retrieved_{type.name.lower()}") is None
            continue
        assert sum(shares.values()) == pytest.approx(1)
        answered = shares[Scenario.BOTH] + shares[Scenario.ANSWERED_ONLY]
        retrieved = shares[Scenario.BOTH] + shares[Scenario.RETRIEVED_ONLY]
        assert answer_coverage(judged, type) == pytest.approx(answered)
        assert measures[f"retrieved_{type.name.lower()}"] == pytest.approx(retrieved)
        if type is CORE:
            assert measures.get("knowledge_identification", 0) * retrieved == pytest.approx(shares[Scenario.BOTH])
            assert measures.get("retrieval_potential", 0) * (1 - answered) == pytest.approx(shares[Scenario.NEITHER])


def test_frequency_of_passages() -> None:
    """(2/4 + 4/4) / 2 for the covered ones, 1/4 for the other."""
    judged = [
        Judged(CORE, True, (True, True, False, False)),
        Judged(CORE, True, (True,) * 4),
        Judged(CORE, False, (False, False, True, False)),
        Judged(BACKGROUND, False, (True,) * 4),
        Judged(CORE, True, ()),
    ]
    assert coverage_measures(judged)["frequency_correlation"] == 0.5
    assert "frequency_correlation" not in coverage_measures(judged[:2])


def test_positions_of_three_types() -> None:
    judged = [
        Judged(CORE, True, position=0.1),
        Judged(CORE, True, position=0.3),
        Judged(CORE, True, position=None),
        Judged(CORE, False, position=0.9),
        Judged(BACKGROUND, True, position=0.4),
        Judged(FOLLOW_UP, True, position=1.0),
    ]
    assert coverage_measures(judged)["position_alignment"] == pytest.approx(1.0 - (0.2 + 0.4) / 2)
    assert "position_alignment" not in coverage_measures(judged[:-1])


def test_a_position_is_that_of_a_fragment_by_words() -> None:
    answer = " ".join(f"word{i}" for i in range(1, 101))
    found = locate_fragment(answer, "word20 word21")
    assert found is not None and found.position == 0.2


@given(judgments(), weights)
def test_the_scaled_rating_is_the_rating_between_worst_and_best(judged: list[Judged], weight: dict) -> None:
    value, scaled = rating(judged, weight), scaled_rating(judged, weight)
    if scaled is None:
        assert all(weight.get(j.type, 0.0) == 0 for j in judged)
        return
    assert value is not None and 0 <= scaled <= 1
    present = {j.type for j in judged} & set(weight)
    worst = sum(min(weight[t], 0) for t in present)
    best = sum(max(weight[t], 0) for t in present)
    assert worst + scaled * (best - worst) == pytest.approx(value, abs=1e-9)


def test_the_rating_prefers_core_and_shuns_follow_up() -> None:
    question = [CORE, CORE, BACKGROUND, FOLLOW_UP]
    good = [Judged(t, t is not FOLLOW_UP) for t in question]
    bad = [Judged(t, t is FOLLOW_UP) for t in question]
    assert (rating(good), rating(bad)) == (1.5, -1)
    assert (scaled_rating(good), scaled_rating(bad)) == (1, 0)
    assert dict(WEIGHTS) == {"core": 1, "background": 0.5, "follow-up": -1}


TYPES = {
    "What does yeast eat?": CORE,
    "What holds the gas?": CORE,
    "Why does kneading help?": CORE,
    "What is yeast?": BACKGROUND,
    "How do I store bread?": FOLLOW_UP,
}
EXAMPLE = dspy.Example(
    id="q1", question="Why does bread rise?", sub_questions=tuple(SubQuestion(*s) for s in TYPES.items())
).with_inputs("question")
ANSWER = "Yeast eats sugar and makes gas. Store bread in a box."
PASSAGES = (
    Passage("p1", "Yeast eats sugar. Gluten holds the gas.", "Bread"),
    Passage("p2", "A yeast is a fungus that eats sugar."),
)
ANSWERS = {
    ANSWER: {"What does yeast eat?": "Yeast eats sugar", "How do I store bread?": "Store bread in a box"},
    "Bread\n" + PASSAGES[0].text: {"What does yeast eat?": "eats sugar", "What holds the gas?": "Gluten holds the gas"},
    PASSAGES[1].text: {"What is yeast?": "a fungus", "What does yeast eat?": "eats sugar"},
}


def find(prompt: str) -> dict:
    text, _, rest = prompt.removeprefix("[[ ## text ## ]]\n").partition("\n\n[[ ## sub_questions ## ]]\n")
    asked = json.loads(rest.partition("\n")[0])
    found = ANSWERS.get(text, {})
    return {"verdicts": {k: {"fragment": found.get(q, ""), "answered": q in found} for k, q in asked.items()}}


def decompose(prompt: str) -> dict:
    return {"sub_questions": [*TYPES, *(f"What about part {n}?" for n in range(5))]}


def type_(prompt: str) -> dict:
    asked = json.loads(prompt.partition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])
    return {"types": {k: str(TYPES.get(q, BACKGROUND)) for k, q in asked.items()}}


REPLIES = {FindAnswers: find, DecomposeIntoSubQuestions: decompose, TypeSubQuestions: type_}


def prediction(answer: str = ANSWER, passages=PASSAGES) -> dspy.Prediction:
    return dspy.Prediction(answer=answer, passages=passages)


def coverage(example=EXAMPLE, predicted=None, replies=None, **options):
    lm, engine = scripted_judge({**REPLIES, **(replies or {})})
    metric = SubQuestionCoverage(lm, **{"cite": "words", **options})
    return metric(example, predicted or prediction()), engine


def test_measures_of_an_answer_by_hand():
    result, engine = coverage()
    answered = {"core": 1 / 3, "background": 0, "follow_up": 1}
    retrieved = {"retrieved_core": 2 / 3, "retrieved_background": 1, "retrieved_follow_up": 0}
    assert result.measures == pytest.approx({**answered, **retrieved, "rating": 1 / 3 - 1, "invalid": 0})
    assert tuple(result.measures) == SubQuestionCoverage(scripted_judge({})[0]).measures
    assert result.score == pytest.approx((1 / 3) / 2.5)
    assert engine.asked() == ["FindAnswers"] * 3  # an answer and two passages


def test_feedback_says_whose_fault_an_open_core_sub_question_is():
    feedback = coverage()[0].feedback
    assert "covers 1 of 3 core" in feedback
    assert "although its passages answer them: «What holds the gas?»" in feedback
    assert "retrieval missed them: «Why does kneading help?»" in feedback
    assert "«How do I store bread?»" in feedback
    assert "«What is yeast?»" not in feedback
    assert "retrieval" not in coverage(passages=False)[0].feedback


def heard(call, **options):
    lm, _ = scripted_judge(REPLIES)
    metric = SubQuestionCoverage(lm, cite="words", **options)
    return metric.predictor_feedback(call, EXAMPLE, prediction(), scored(metric, EXAMPLE, prediction()))


def test_who_writes_queries_hears_of_what_was_not_retrieved():
    said = heard(PredictorCall(Role.SEARCHER))
    assert "covers 1 of 3" in said and "«Why does kneading help?»" in said
    assert "What holds the gas?" not in said and "store" not in said
    assert heard(PredictorCall(Role.SEARCHER), passages=False) == ""  # nobody knows what they hold


def test_who_answers_hears_of_what_was_retrieved_and_lost():
    seen = tuple(p.text for p in PASSAGES)
    said = heard(PredictorCall(Role.ANSWERER, sources=seen))
    assert "what it wrote does not: «What holds the gas?»" in said
    assert "kneading" not in said
    assert "It goes into what was not asked: «How do I store bread?»" in said
    assert "was not asked" not in heard(PredictorCall(Role.ANSWERER, sources=seen), weights=(1, 1, 0))
    assert "holds the gas" not in heard(PredictorCall(Role.ANSWERER, sources=seen[1:]))  # it saw the other passage
    cut = ("Yeast eats sugar.", "A yeast is")
    assert "What holds the gas?" in heard(PredictorCall(Role.ANSWERER, sources=cut))  # as a prompt shows it


def test_an_answer_made_elsewhere_without_passages_says_nothing_of_its_retrieval():
    metric = SubQuestionCoverage(scripted_judge(REPLIES)[0])
    elsewhere = dspy.Prediction(answer=ANSWER, passages=(), steps=(Step(ELSEWHERE),))
    result = scored(metric, EXAMPLE, elsewhere)
    assert not [name for name in result.measures if name.startswith("retrieved")]
    over_all = metric.over_all([result])
    assert "pooled_core" in over_all
    assert not over_all.keys() & {"knowledge_identification", "pooled_retrieved_core", "core_both"}
    known = scored(metric, EXAMPLE, prediction())
    alone = metric.over_all([known])
    assert alone == metric.over_all([known, result])  # an answer whose passages are unknown changes nothing
    unanswered = [{**s, "answered": False} for s in result.details["sub_questions"]]
    pooled = metric.over_all([known, Scored(0.0, details={**result.details, "sub_questions": unanswered})])
    assert pooled["pooled_core"] == alone["pooled_core"] / 2
    assert {n: v for n, v in pooled.items() if n.startswith("pooled_retrieved")}.items() <= alone.items()
    assert pooled["core_neither"] == alone["core_neither"]
    assert "retrieved_core" in metric(EXAMPLE, prediction(passages=())).measures  # a program of ours found none


def test_a_question_is_decomposed_and_typed_where_the_example_has_no_sub_questions():
    result, engine = coverage(example=dspy.Example(id="q1", question="Why does bread rise?"))
    assert engine.asked()[:2] == ["DecomposeIntoSubQuestions", "TypeSubQuestions"]
    assert [s["type"] for s in result.details["sub_questions"]][:5] == [str(t) for t in TYPES.values()]
    assert len(result.details["sub_questions"]) == 10


@pytest.fixture
def kept(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        yield


def test_a_search_over_weights_costs_no_lm_call(kept):
    example = dspy.Example(id="q1", question="Why does bread rise?")
    first, engine = coverage(example=example)
    assert len(engine.prompts) == 5
    ratings = set()
    for weights in ((1, 0.5, -1), (1, 0, 0), (0, 0, -1), (1, 1, 1), (0.3, 0.2, -0.1)):
        result, engine = coverage(example=example, weights=weights)
        assert not engine.prompts
        ratings.add(round(result.measures["rating"], 6))
        assert result.measures["core"] == first.measures["core"]
    assert len(ratings) == 5


def test_words_that_are_not_in_the_answer_are_counted_and_cover_nothing():
    def invent(prompt: str) -> dict:
        said = find(prompt)
        if ANSWER in prompt:
            said["verdicts"]["q1"] = {"fragment": "kneading stretches gluten", "answered": True}
        return said

    result, engine = coverage(replies={FindAnswers: invent})
    assert result.measures["core"] == 0
    assert result.measures["invalid"] == pytest.approx(1 / 5)
    assert result.details["sub_questions"][0]["invalid"] is True
    assert len(engine.prompts) == 4


@pytest.mark.parametrize("options", [{"weights": (1, 2)}, {"sub_questions_per_call": 0}, {"threads": 0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError):
        coverage(**options)


def test_the_summary_pools_the_sub_questions_of_all_questions():
    metric = SubQuestionCoverage(scripted_judge(REPLIES)[0], cite="words")
    small = EXAMPLE.copy(id="q2", sub_questions=(SubQuestion("What does yeast eat?", CORE),))
    answers = [(EXAMPLE, prediction()), (small, prediction("Sugar is sweet."))]
    summary = metric.summarize([scored(metric, *answer) for answer in answers])
    pooled = [
        Judged(CORE, True, (True, True), 1 / 11),
        Judged(CORE, False, (True, False)),
        Judged(CORE, False, (False, False)),
        Judged(BACKGROUND, False, (False, True)),
        Judged(FOLLOW_UP, True, (False, False), 7 / 11),
        Judged(CORE, False, (True, True)),
    ]
    by_formula = coverage_measures(pooled)
    assert {n: summary.get(f"pooled_{n}", summary[n]) for n in by_formula} == pytest.approx(by_formula)
    assert summary["pooled_core"] == pytest.approx(1 / 4)
    assert summary["core"] == pytest.approx((1 / 3 + 0) / 2)
    assert (summary["core_both"], summary["core_retrieved_only"], summary["core_neither"]) == (0.25, 0.5, 0.25)
    assert summary["follow_up_answered_only"] == 1
    assert summary["rating"] == pytest.approx(((1 / 3 - 1) + 0) / 2)
    assert metric.summarize([]) == {}


def test_by_default_it_is_judged_by_similarity_without_a_scorer_where_the_example_has_sub_questions():
    models.fetch("all-minilm-l6-v2")
    result = build_metric("coverage")(EXAMPLE, prediction())
    covered = {s["text"]: s["fragment"] for s in result.details["sub_questions"] if s["answered"]}
    assert "Store bread in a box." in covered["How do I store bread?"]
    assert "Why does kneading help?" not in covered
    assert result.measures["follow_up"] == 1 and result.measures["invalid"] == 0
    assert result.measures["core"] < 1 and result.measures["retrieved_follow_up"] == 0


def test_without_a_scorer_a_question_without_sub_questions_is_not_measurable():
    metric, bare = SubQuestionCoverage(), dspy.Example(id="q1", question="Why does bread rise?")
    metric.require(EXAMPLE)
    for act in (metric.require, lambda example: metric(example, prediction())):
        with pytest.raises(NotMeasurable, match="no scorer"):
            act(bare)


@pytest.mark.parametrize("cite", ["words", "sentences", "cascade"])
def test_a_judge_that_asks_an_lm_needs_a_scorer(cite):
    for act in (SubQuestionCoverage, SubQuestionCoverage.check_scorer):
        with pytest.raises(InputError, match="'coverage' needs a scorer"):
            act(None, cite=cite)
    SubQuestionCoverage.check_scorer(None)


@given(judgments(), st.randoms())
def test_measures_are_bounded_whatever_the_order(judged: list[Judged], random) -> None:
    measures = coverage_measures(judged)
    assert measures == pytest.approx(coverage_measures(random.sample(judged, len(judged))))
    for name, value in measures.items():
        low = -1 if name in ("frequency_correlation", "position_alignment") else 0
        assert low <= value <= 1


def test_what_retrieves_nothing_still_has_metrics() -> None:
    judged = [Judged(CORE, True), Judged(CORE, False)]
    assert coverage_measures(judged) == {"core": 0.5, "retrieved_core": 0.0, "retrieval_potential": 1.0}


def test_a_judge_that_cannot_be_read_is_a_failure_and_is_asked_again(kept):
    with pytest.raises(StepFailed, match="judge coverage"):
        coverage(replies={FindAnswers: "I cannot say."})
    _, engine = coverage()
    assert engine.prompts

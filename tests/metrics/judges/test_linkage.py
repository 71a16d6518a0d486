import itertools
from fractions import Fraction
from statistics import fmean

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metrics.scripted_judge import LogprobsEngine, scored, scripted_judge
from typedrag.core.errors import InputError, NotMeasurable, StepFailed
from typedrag.core.records import Passage, Reference
from typedrag.lms.replies import use_reply_store
from typedrag.metrics.judges.linkage import (
    Convention,
    Linkage,
    LinkageJudge,
    chance_measures,
    draw_references,
    expected_rank,
    percentile_rank,
)
from typedrag.metrics.metric import PredictorCall
from typedrag.signatures.judging import PlaceAmongReferences, RankAmongReferences, RankPlainly
from typedrag.signatures.roles import Role


@given(st.integers(1, 30))
def test_chance_is_what_the_sums_say(n: int) -> None:
    harmonic = sum(Fraction(1, r) for r in range(1, n + 1))
    typed_rag, linkage = chance_measures(n), chance_measures(n, Convention.LINKAGE)
    assert typed_rag == pytest.approx({"mrr": float(harmonic / n), "mpr": 50 * (n + 1) / n, "rank": (n + 1) / 2})
    mrr = float((harmonic + Fraction(1, n + 1)) / (n + 1))
    assert linkage == pytest.approx({"mrr": mrr, "mpr": 50, "rank": n / 2 + 1}, abs=1e-9)


@given(st.dictionaries(st.integers(1, 9), st.floats(0, 1), min_size=1), st.floats(1e-3, 1e3))
def test_an_expected_rank_lies_among_the_ranks_whatever_the_scale(odds: dict[int, float], scale: float) -> None:
    if not sum(odds.values()) > 1e-200:
        return
    rank = expected_rank(odds)
    assert min(odds) - 1e-9 <= rank <= max(odds) + 1e-9
    assert expected_rank({r: p * scale for r, p in odds.items()}) == pytest.approx(rank)


def test_ranks_that_there_are_not() -> None:
    assert [percentile_rank(rank, 4) for rank in (1, 2, 4, 5)] == [100, 75, 25, 0]
    for rank in (0, 6, float("nan")):
        with pytest.raises(ValueError, match="beyond 4"):
            percentile_rank(rank, 4)
    with pytest.raises(ValueError, match="nothing to rank"):
        chance_measures(0)


REFERENCES = (
    Reference("Yeast turns sugar into gas, which dough traps.", 3),
    Reference("Yeast makes gas.", 2),
    Reference("It is baked.", 1),
    Reference("Bread is sold in shops.", 0),
)
EXAMPLE = dspy.Example(id="q1", question="Why does bread rise?", references=REFERENCES).with_inputs("question")
PREDICTION = dspy.Prediction(answer="Gas from yeast lifts the dough.")


def linkage(reply, example=EXAMPLE, prediction=PREDICTION, **options):
    lm, engine = scripted_judge({RankAmongReferences: reply, PlaceAmongReferences: reply})
    return scored(Linkage(lm, **options), example, prediction), engine


def test_a_rank_has_its_measures_in_the_convention_of_typed_rag():
    result, engine = linkage({"rank": 3})
    assert result.measures == pytest.approx(
        {"rank": 3, "mrr": 1 / 3, "mpr": 50, "expected_rank": 3, "expected_mrr": 1 / 3}
    )
    assert tuple(result.measures) == Linkage.measures
    assert result.score == pytest.approx(1 / 3)
    assert engine.asked() == ["RankAmongReferences"]


def test_in_the_convention_of_linkage_an_answer_can_come_after_all_references():
    result, engine = linkage({"rank": 5}, convention="linkage")
    assert result.measures["mpr"] == 0 and result.score == 0
    assert engine.asked() == ["PlaceAmongReferences"]
    assert result.details["convention"] == "linkage"
    assert len(result.details["probabilities"]) == 5


@pytest.mark.parametrize("reply", [{"rank": 5}, {"rank": 0}, {"rank": "first"}, {"rank": 2.5}, "It is the best."])
def test_a_rank_that_is_not_allowed_is_a_failure_of_the_judge(reply):
    lm, engine = scripted_judge({RankAmongReferences: reply})
    with pytest.raises(StepFailed, match="rank"):
        Linkage(lm)(EXAMPLE, PREDICTION)
    assert len(engine.prompts) == 3


def test_as_in_the_authors_code_an_unreadable_rank_is_asked_for_again_and_then_the_worst():
    lm, engine = scripted_judge({RankPlainly: "It is the best."})
    result = scored(Linkage(lm, plain=True, retries=4, unreadable="worst"), EXAMPLE, PREDICTION)
    assert engine.asked() == ["RankPlainly"] * 5
    assert (result.measures["rank"], result.measures["mrr"], result.measures["mpr"], result.score) == (4, 1 / 4, 25, 0)


def test_the_candidate_comes_last_in_the_prompt_so_that_its_beginning_is_shared():
    _, engine = linkage({"rank": 1})
    prompt = engine.prompts[0][1]
    places = [prompt.index(text) for text in (EXAMPLE.question, *(r.text for r in REFERENCES), PREDICTION.answer)]
    assert places == sorted(places)


def test_questions_without_references_of_different_quality_cannot_be_measured():
    for references in (None, (), REFERENCES[:1], (Reference("Yeast.", 2), Reference("Gas.", 2))):
        with pytest.raises(NotMeasurable, match="q1"):
            linkage({"rank": 1}, example=EXAMPLE.copy(references=references))


@pytest.mark.parametrize(
    "options", [{"convention": "worst"}, {"draws": 0}, {"max_references": 1}, {"unreadable": "best"}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError):
        linkage({"rank": 1}, **options)


def test_without_token_probabilities_draws_are_averaged():
    ranks = iter([1, 2, 2, 3])
    result, engine = linkage(lambda prompt: {"rank": next(ranks)}, draws=4)
    assert len(engine.prompts) == 4
    assert result.measures["rank"] == 1  # the LM's own answer, at its own temperature
    assert result.measures["expected_rank"] == pytest.approx(2)
    assert result.measures["expected_mrr"] == pytest.approx((1 + 1 / 2 + 1 / 2 + 1 / 3) / 4)
    assert result.details["probabilities"] == [0.25, 0.5, 0.25, 0]


def test_more_draws_reuse_those_that_were_made(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        assert [len(linkage({"rank": 2}, draws=draws)[1].prompts) for draws in (2, 2, 5)] == [2, 0, 3]


def test_token_probabilities_are_used_where_the_server_gives_them():
    engine = LogprobsEngine({RankAmongReferences: {"rank": 2}}, {"1": 0.25, "2": 0.25, " 2": 0.25, "{": 0.25})
    lm = dspy.LM("scripted/judge", engine=engine, cache=False)
    result = Linkage(lm, draws=9)(EXAMPLE, PREDICTION)
    assert len(engine.prompts) == 1
    assert result.details["probabilities"] == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert result.measures["expected_rank"] == pytest.approx(5 / 3)
    assert result.measures["expected_mrr"] == pytest.approx(1 / 3 + 2 / 3 / 2)
    certain = Linkage(lm, judge=LinkageJudge(token_probabilities=False))(EXAMPLE, PREDICTION)
    assert certain.measures["expected_rank"] == pytest.approx(2)


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(0, 12)), max_size=30), st.integers(0, 99), st.data())
def test_references_are_one_a_label_in_descending_order_whatever_order_they_came_in(rows, seed, data):
    references = [Reference(text, label) for text, label in rows if text.strip()]
    labels = sorted({r.label for r in references}, reverse=True)
    example = dspy.Example(id="q", references=references)
    if len(labels) < 2:
        with pytest.raises(NotMeasurable):
            draw_references(example, seed)
        return
    drawn = draw_references(example, seed)
    assert [r.label for r in drawn] == labels if len(labels) <= 8 else len(drawn) == 8
    assert [r.label for r in drawn] == sorted({r.label for r in drawn}, reverse=True)
    assert (drawn[0].label, drawn[-1].label) == (labels[0], labels[-1])
    assert set(drawn) <= set(references)
    shuffled = data.draw(st.permutations(references))
    assert draw_references(dspy.Example(id="q", references=shuffled), seed) == drawn


def test_which_references_are_drawn_depends_on_the_seed_and_the_question():
    references = [Reference(f"{label} {i}", label) for label in range(3) for i in range(10)]
    pairs = itertools.product("ab", range(5))
    assert len({draw_references(dspy.Example(id=name, references=references), seed) for name, seed in pairs}) > 5


def test_the_summary_has_means_and_what_chance_would_give():
    short = EXAMPLE.copy(references=REFERENCES[:2])
    metric = Linkage(scripted_judge({})[0])
    ranked = ((1, EXAMPLE), (4, EXAMPLE), (2, short))
    summary = metric.summarize([linkage({"rank": rank}, example=e)[0] for rank, e in ranked])
    assert summary["mrr"] == pytest.approx((1 + 1 / 4 + 1 / 2) / 3)
    assert summary["mpr"] == pytest.approx((100 + 25 + 50) / 3)
    assert summary["chance_mrr"] == pytest.approx(fmean([(1 + 1 / 2 + 1 / 3 + 1 / 4) / 4] * 2 + [3 / 4]))
    assert summary["chance_rank"] == pytest.approx((2.5 + 2.5 + 1.5) / 3)
    assert metric.summarize([]) == {}


@pytest.mark.parametrize(
    ("rank", "convention", "said", "shown"),
    [
        (1, "typed-rag", "as good as the best one or better", [0]),
        (3, "typed-rag", "comes before", [2, 1, 0]),
        (4, "typed-rag", "as poor as the worst one or poorer", [2, 0]),
        (5, "linkage", "All are better", [3, 0]),
    ],
)
def test_feedback_says_how_the_answer_compares_with_the_references_around_it(rank, convention, said, shown):
    feedback = linkage({"rank": rank}, convention=convention)[0].feedback
    assert f"Rank {rank} of" in feedback and said in feedback
    assert [i for i, r in enumerate(REFERENCES) if r.text in feedback] == sorted(shown)


def test_feedback_says_what_the_best_answer_has_and_this_one_lacks():
    assert "Of the best one it lacks" not in linkage({"rank": 3})[0].feedback  # it speaks of yeast, gas and dough
    poor = linkage({"rank": 4}, prediction=dspy.Prediction(answer="The oven is hot."))[0].feedback
    assert "Of the best one it lacks: «Yeast turns sugar into gas, which dough traps.»" in poor
    first = linkage({"rank": 1}, prediction=dspy.Prediction(answer="The oven is hot."))[0].feedback
    assert "lacks" not in first


LONG = (
    Reference("Yeast turns sugar into gas. Gluten is a net that holds bubbles. Salt slows fermentation down.", 3),
    Reference("Warm kitchens speed up fermentation.", 2),
    Reference("It is baked.", 0),
)
FOUND = (Passage("p1", "In dough, gluten forms a net which holds the bubbles."), Passage("p2", "Salt tastes good."))


WRITTEN = "Yeast turns sugar into gas. Ovens get very hot."


def heard(call, rank=3, passages=FOUND):
    lm, _ = scripted_judge({RankAmongReferences: {"rank": rank}})
    metric, example = Linkage(lm), EXAMPLE.copy(references=LONG)
    prediction = dspy.Prediction(answer=WRITTEN, passages=passages)
    return metric.predictor_feedback(call, example, prediction, scored(metric, example, prediction))


def test_who_writes_queries_hears_of_what_no_passage_says():
    said = heard(PredictorCall(Role.SEARCHER))
    assert "ranks 3 of 3" in said
    assert "«Salt slows fermentation down.»" in said and "Warm kitchens" in said
    assert "Gluten" not in said  # a passage says it: nothing that another query would have found
    assert "Yeast" not in said  # the answer says it
    assert heard(PredictorCall(Role.SEARCHER), passages=(*FOUND, Passage("p3", LONG[0].text + LONG[1].text))) == ""
    assert heard(PredictorCall(Role.SEARCHER), rank=1) == ""


def test_who_answers_hears_of_what_its_sources_say_and_it_does_not():
    sources = tuple(p.text for p in FOUND)
    said = heard(PredictorCall(Role.ANSWERER, sources=sources, written=WRITTEN))
    assert "its sources too, but it does not: «Gluten is a net that holds bubbles.»" in said
    assert "Salt" not in said and "kitchens" not in said  # it could not know
    assert "No better one says: «Ovens get very hot.»" in said
    full = "Yeast turns sugar into gas, and gluten, a net, holds its bubbles."
    assert "sources" not in heard(PredictorCall(Role.ANSWERER, sources=sources, written=full))


def test_certainty_and_ignorance() -> None:
    assert expected_rank({3: 1e-300}) == 3
    assert expected_rank(dict.fromkeys(range(1, 5), 0.001)) == pytest.approx(2.5)


@pytest.mark.parametrize("odds", [{}, {1: 0.0}, {0: 1.0}, {1: -0.1, 2: 0.5}, {1: float("nan")}])
def test_no_rank_comes_from_no_odds(odds: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"probability|count from 1"):
        expected_rank(odds)

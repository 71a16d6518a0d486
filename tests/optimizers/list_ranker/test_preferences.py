"""Rewards and US³ (RichRAG, section 3.4.2)."""

import pytest
from dspy.utils.exceptions import LMTimeoutError

from tests.optimizers.list_ranker.topics import new_ranker, topic_pools
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import CallFailed, InputError
from typedrag.datasets.richrag import Pool
from typedrag.metrics.similarity import com_rouge, rouge
from typedrag.optimizers.list_ranker.config import PreferenceSettings
from typedrag.optimizers.list_ranker.preferences import (
    Rewarded,
    answer_reward,
    build_preferences,
    generator_reward,
    gold_answers,
    ncom_reward,
    sample_lists,
    significant_pairs,
)
from typedrag.runs import Store

POOLS = topic_pools(6, passages=6)
NCOM = ncom_reward(POOLS)


@pytest.fixture(scope="module")
def ranker():
    made = new_ranker()
    made.model.settings = made.settings.model_copy(update={"list_length": 3})
    return made


def build(ranker, reward, *, store=None, seed=0, pools=POOLS, listener=lambda progress: None, **settings):
    settings = PreferenceSettings(**{"samples": 4, **settings})
    return build_preferences(ranker, pools, reward, settings, store or Store(), seed=seed, listener=listener)


def test_the_reward_is_the_match_with_the_answer_and_the_coverage_of_its_parts():
    response, parts = "old yeast makes little gas", ["old yeast makes little gas", "too much flour makes dough dense"]
    match = sum(rouge(response, " ".join(parts)).values()) / 2
    coverage = sum(com_rouge(response, parts).values()) / 2
    assert answer_reward(response, " ".join(parts), parts) == pytest.approx(match + coverage)
    assert answer_reward(" ".join(parts), " ".join(parts), parts) == pytest.approx(2)
    assert answer_reward("cats", " ".join(parts), parts) == 0


def test_what_a_response_is_compared_with():
    labels = {"fair": 2, "best": 3, "no": None}
    passages = [{"id": text, "text": text, "label": label} for text, label in labels.items()]
    fields = {"id": "q", "question": "Why?", "passages": passages, "relevant_from": 2}
    assert gold_answers(Pool.model_validate(fields)) == ("best", ["best", "fair"])
    parts = {**fields, "sub_answers": ["one", "two"]}
    assert gold_answers(Pool.model_validate(parts)) == ("one two", ["one", "two"])
    assert gold_answers(Pool.model_validate({**parts, "answer": "both"})) == ("both", ["one", "two"])
    with pytest.raises(InputError, match="no answer to compare"):
        gold_answers(Pool.model_validate({**fields, "passages": passages[2:]}))


def test_a_pair_is_unilateral_and_significant():
    greedy = Rewarded((0, 1), 0.5)
    at_threshold, beyond = Rewarded((1, 0), 0.75), Rewarded((1, 2), 0.76)
    worse = Rewarded((2, 0), 0.24)
    assert significant_pairs(greedy, [at_threshold, beyond, worse], 0.25) == [(beyond, greedy), (greedy, worse)]
    assert significant_pairs(greedy, [Rewarded((0, 1), 0.9)], 0.1) == []  # the greedy list itself
    assert all(greedy in pair for pair in significant_pairs(greedy, [at_threshold, beyond, worse], 0.0))


def test_without_us3_any_two_lists_make_a_pair(ranker):
    drawn = build(ranker, NCOM, threshold=2.0, seed=3, pairs="random")
    assert drawn and all(p.winner.reward > p.loser.reward for p in drawn)  # though none differ by 2
    assert drawn == build(ranker, NCOM, seed=3, pairs="random")
    few = build(ranker, NCOM, seed=3, pairs="random", most_pairs=2)
    assert len(few) == 2 < len(drawn) and all(pair in drawn for pair in few)
    assert max(sum(p.pool is pool for p in drawn) for pool in POOLS) <= 4
    greedy = {pool.id: sample_lists(ranker, pool, 3, 1, 0)[0] for pool in POOLS}
    assert any(greedy[p.pool.id] not in (p.winner.ranking, p.loser.ranking) for p in drawn)  # not unilateral


def test_the_generator_answers_from_the_first_passages_of_a_list():
    pool = POOLS[0]
    good = next(p.text for p in pool.passages if p.label)

    def first_passage(prompt: str):
        shown = min((p.text for p in pool.passages if p.text in prompt), key=prompt.index)
        return {"citations": [1], "answer": shown}

    with scripted({s.AnswerRichly: first_passage}) as engine:
        reward = generator_reward(2)
        first = next(n for n, p in enumerate(pool.passages) if p.label)
        bad = next(n for n, p in enumerate(pool.passages) if not p.label)
        values = [reward(pool, ranking) for ranking in ((first, bad), (bad, first), (first, bad, 5))]
    assert engine.prompts[0] == engine.prompts[2]  # only two passages are shown
    assert values[0] == values[2] == pytest.approx(answer_reward(good, *gold_answers(pool)))
    assert values[1] < values[0]


def test_the_generator_may_answer_by_the_prompt_of_the_preset():
    with scripted() as engine:
        generator_reward(2, "plain")(POOLS[0], (0, 1))
    assert engine.asked() == ["AnswerRichlyPlainly"]


def test_pairs_are_made_of_the_written_list_and_lists_that_were_drawn(ranker):
    preferences = build(ranker, NCOM, seed=3)
    assert preferences
    for pool, winner, loser in preferences:
        [written] = sample_lists(ranker, pool, 3, 0, 0)
        assert written in (winner.ranking, loser.ranking)
        assert winner.reward - loser.reward > 0.1
        assert winner.reward == pytest.approx(NCOM(pool, winner.ranking))
        assert len(set(winner.ranking)) == len(winner.ranking) == 3
    assert preferences == build(ranker, NCOM, seed=3)
    assert build(ranker, NCOM, threshold=2.0) == []


def test_a_pool_that_the_generator_is_too_slow_for_is_left_out_and_one_that_always_fails_ends_it(ranker):
    slow = LMTimeoutError("no reply in 120 s")
    asked = []

    def first_is_slow(prompt):
        asked.append(prompt)
        return slow if len(asked) == 1 else {"citations": [1], "answer": "Bread."}

    store = Store()
    with scripted({s.AnswerRichly: first_is_slow}):
        build(ranker, generator_reward(2), store=store, threads=1)
    assert len(asked) > 2 and sum(result.failed for result in store.read().results) == 1
    with scripted({s.AnswerRichly: slow}) as engine, pytest.raises(CallFailed, match="no reply in 120 s"):
        build(ranker, generator_reward(2), threads=1)
    assert len(engine.prompts) <= 5

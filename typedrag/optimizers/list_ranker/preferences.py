"""Preferences: pairs of lists by the rewards of the lists (RichRAG, section 3.4.2).

Pairs are chosen by unilateral significance sampling, US³, or at random, as in the paper's ablation (section 4.4).
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from random import Random
from statistics import fmean
from typing import Any, Literal, NamedTuple

import torch

from typedrag.core.errors import InputError, StepFailed
from typedrag.core.records import NOT_IN_COLLECTION
from typedrag.datasets.richrag import Pool
from typedrag.metrics.ranking import ncom
from typedrag.metrics.similarity import com_rouge, rouge
from typedrag.optimizers.list_ranker.config import PreferenceSettings
from typedrag.optimizers.list_ranker.measures import ranker_candidates, utility_table
from typedrag.programs import Options
from typedrag.programs.answering import NotAnswered, PassageAnswerer
from typedrag.retrieval.list_network import NOTHING
from typedrag.retrieval.list_ranker import ListRanker
from typedrag.runs import Progress, Store, work
from typedrag.signatures.richrag import AnswerRichly

Ranking = tuple[int, ...]
"""Positions of a pool's passages, the best first."""
Reward = Callable[[Pool, Sequence[int]], float]
"""Gives the reward of a list of a pool's passages (their positions); more is better."""


class Rewarded(NamedTuple):
    """A list and its reward."""

    ranking: Ranking
    reward: float


class Preference(NamedTuple):
    """A better and a worse list of one pool."""

    pool: Pool
    winner: Rewarded
    loser: Rewarded


def answer_reward(response: str, answer: str, sub_answers: Sequence[str]) -> float:
    """The match of a response with the answer, plus its coverage of the sub-answers (eq. 11)."""
    return fmean(rouge(response, answer).values()) + fmean(com_rouge(response, sub_answers).values())


def gold_answers(pool: Pool) -> tuple[str, list[str]]:
    """The answer and the sub-answers of a pool; if it only has labels, its relevant passages, the best first."""
    relevant = [p for p in pool.passages if (p.label or 0) >= pool.relevant_from]
    best_first = [p.text for p in sorted(relevant, key=lambda p: -(p.label or 0))]
    sub_answers = pool.sub_answers or best_first
    if not sub_answers:
        raise InputError(f"pool '{pool.id}' has no answer to compare with", "Give it sub_answers, or labels")
    return pool.answer or (" ".join(pool.sub_answers) or best_first[0]), list(sub_answers)


def ncom_reward(pools: Sequence[Pool]) -> Reward:
    """Rewards lists of these pools by their comprehensiveness, without a generator; see `metrics.ranking.ncom`."""
    tables = {pool.id: utility_table(pool) for pool in pools}
    return lambda pool, ranking: ncom(ranking, tables[pool.id]) or 0.0


def generator_reward(passages: int, answer_prompt: Literal["cited", "plain"] = "cited") -> Reward:
    """Rewards lists by the answer that the LM in use writes from their first passages; its errors are raised."""
    answerer = PassageAnswerer(AnswerRichly, Options(answer_passages=passages, answer_prompt=answer_prompt))

    def reward(pool: Pool, ranking: Sequence[int]) -> float:
        chosen = [pool.passages[n].passage for n in ranking[:passages]]
        try:
            answer = str(answerer(question=pool.question, passages=chosen).answer)
        except NotAnswered:
            answer = NOT_IN_COLLECTION
        return answer_reward(answer, *gold_answers(pool))

    return reward


def significant_pairs(
    greedy: Rewarded, sampled: Sequence[Rewarded], threshold: float = 0.1
) -> list[tuple[Rewarded, Rewarded]]:
    """The pairs of US³, each the better list first."""
    different = {s.ranking: s for s in sampled if s.ranking != greedy.ranking}.values()
    pairs = [(greedy, s) if greedy.reward > s.reward else (s, greedy) for s in different]
    return [(winner, loser) for winner, loser in pairs if winner.reward - loser.reward > threshold]


def random_pairs(lists: Sequence[Rewarded], most: int, rng: Random) -> list[tuple[Rewarded, Rewarded]]:
    """Pairs of different lists drawn at random, each the better list first; lists of equal rewards make no pair."""
    different = {r.ranking: r for r in lists}.values()
    pairs = [(a, b) if a.reward > b.reward else (b, a) for a, b in combinations(different, 2) if a.reward != b.reward]
    return rng.sample(pairs, min(most, len(pairs)))


def sample_lists(ranker: ListRanker, pool: Pool, k: int, samples: int, seed: int) -> list[Ranking]:
    """The list that a ranker writes for a pool, and lists drawn by their probabilities."""
    states = ranker.encode(ranker_candidates(pool))
    generator = torch.Generator(states.questions.device).manual_seed(seed)
    lists = [ranker.model.write(states, k)]
    lists += [ranker.model.write(states, k, generator=generator) for _ in range(samples)]
    return [tuple(n for n in one[0].tolist() if n != NOTHING) for one in lists]


def build_preferences(
    ranker: ListRanker,
    pools: Sequence[Pool],
    reward: Reward,
    settings: PreferenceSettings,
    store: Store,
    *,
    seed: int = 0,
    listener: Callable[[Progress], object] = lambda progress: None,
) -> list[Preference]:
    """The pairs that US³ finds in pools, or as many at random."""
    numbers = {pool.id: number for number, pool in enumerate(pools)}
    in_turn = threading.Lock()

    def do(pool_id: str, step: str, _: Any) -> list[tuple[Ranking, float | None]]:
        pool, number = pools[numbers[pool_id]], numbers[pool_id]
        with in_turn:  # torch fills the machine by itself, and tokenizers serve one thread
            lists = sample_lists(ranker, pool, ranker.settings.list_length, settings.samples, seed + number)
        rewards: dict[Ranking, float | None] = {}
        for ranking in lists:
            if ranking not in rewards:
                rewards[ranking] = None
                with suppress(StepFailed):
                    rewards[ranking] = reward(pool, ranking)
        return list(rewards.items())

    work(numbers, do, store, steps=["rewards"], threads=settings.threads, listener=listener)
    preferences = []
    for result in sorted(store.read().results, key=lambda result: numbers[result.item]):
        number, lists = numbers[result.item], result.value or []
        rewarded = [Rewarded(tuple(ranking), value) for ranking, value in lists if value is not None]
        if settings.pairs == "random":
            pairs = random_pairs(rewarded, settings.samples, Random(seed + number))
        elif rewarded and lists[0][1] is not None:  # the likeliest list, which comes first
            pairs = significant_pairs(rewarded[0], rewarded[1:], settings.threshold)
        else:
            pairs = []
        preferences += [Preference(pools[number], *pair) for pair in pairs]
    most = settings.most_pairs
    return preferences if most is None or len(preferences) <= most else Random(seed).sample(preferences, most)

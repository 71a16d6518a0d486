"""Pairs of lists for learning preferences: unilateral significance sampling, US³ (RichRAG, section 3.4.2), or at
random, as in the paper's ablation (section 4.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import dspy
import torch

from typedrag.datasets.pools import Pool
from typedrag.datasets.reading import Layout, misfit, parse, read_rows
from typedrag.files.text_files import write_json_lines
from typedrag.optimizers.list_ranker.rewards import Reward
from typedrag.retrieval.rerank.list_ranker.folder import ListRanker
from typedrag.retrieval.rerank.list_ranker.model import NOTHING
from typedrag.retrieval.rerank.list_ranker.reranker import encode
from typedrag.retrieval.rerank.list_ranker.texts import Candidates
from typedrag.runs import Failed, Progress, Stages

logger = logging.getLogger(__name__)

Ranking = tuple[int, ...]
"""Positions of a pool's passages, the best first."""


class Rewarded(NamedTuple):
    """A list and its reward."""

    ranking: Ranking
    reward: float


class Preference(NamedTuple):
    """A better and a worse list of one pool."""

    pool: Pool
    winner: Rewarded
    loser: Rewarded


def significant_pairs(
    greedy: Rewarded, sampled: Sequence[Rewarded], threshold: float = 0.1
) -> list[tuple[Rewarded, Rewarded]]:
    """The pairs of US³, each the better list first.

    One list of a pair is the greedy one, which the ranker would write; the other is a sampled one
    (unilaterality). Their rewards differ by more than the threshold (significance).

    Args:
        greedy: The likeliest list.
        sampled: Lists drawn by their probabilities; equal ones count once.
        threshold: μ (0.1 in the paper).

    Example:
        >>> greedy = Rewarded((0, 1), 0.5)
        >>> sampled = [Rewarded((1, 0), 0.75), Rewarded((0, 2), 0.55), Rewarded((2, 1), 0.2), Rewarded((1, 0), 0.75)]
        >>> [(winner.ranking, loser.ranking) for winner, loser in significant_pairs(greedy, sampled)]
        [((1, 0), (0, 1)), ((0, 1), (2, 1))]
    """
    different = {s.ranking: s for s in sampled if s.ranking != greedy.ranking}.values()
    pairs = [(greedy, s) if greedy.reward > s.reward else (s, greedy) for s in different]
    return [(winner, loser) for winner, loser in pairs if winner.reward - loser.reward > threshold]


def random_pairs(lists: Sequence[Rewarded], most: int, luck: Random) -> list[tuple[Rewarded, Rewarded]]:
    """Pairs of different lists drawn at random, each the better list first; lists of equal rewards make no pair.

    Args:
        lists: The lists of a pool; equal ones count once.
        most: The number of pairs drawn, at most.

    Example:
        >>> lists = [Rewarded((0, 1), 0.5), Rewarded((1, 0), 0.75), Rewarded((2, 0), 0.5)]
        >>> sorted((w.ranking, l.ranking) for w, l in random_pairs(lists, 9, Random(0)))
        [((1, 0), (0, 1)), ((1, 0), (2, 0))]
    """
    different = {r.ranking: r for r in lists}.values()
    pairs = [(a, b) if a.reward > b.reward else (b, a) for a, b in combinations(different, 2) if a.reward != b.reward]
    return luck.sample(pairs, min(most, len(pairs)))


def sample_lists(ranker: ListRanker, pool: Pool, k: int, samples: int, seed: int) -> tuple[Ranking, list[Ranking]]:
    """The list that a ranker writes for a pool, and lists drawn by their probabilities."""
    states = encode(ranker, candidates_of(pool))
    device = states.questions.device
    generator = torch.Generator(device).manual_seed(seed)
    model = ranker.model
    drawn = [model.write(states, k, generator=generator)[0] for _ in range(samples)]
    return _ranking(model.write(states, k)[0]), [_ranking(one) for one in drawn]


def build_preferences(
    ranker: ListRanker,
    pools: Sequence[Pool],
    reward: Reward,
    *,
    k: int,
    samples: int = 8,
    threshold: float = 0.1,
    seed: int = 0,
    threads: int = 8,
    pairs: Literal["us3", "random"] = "us3",
    on_progress: Callable[[int], object] = lambda done: None,
) -> list[Preference]:
    """The pairs that US³ finds in pools, or as many at random. A list whose reward fails is left out, and logged.

    Args:
        threshold: Of US³, see `significant_pairs`.
        pairs: `us3`, or `random`, see `random_pairs`: at most `samples` a pool, as of US³.
        threads: Rewards computed at once, of lists of one pool or of several.

    Raises:
        LMUnavailable: If the reward asks an LM that cannot be used.
    """
    lists = [sample_lists(ranker, pool, k, samples, seed + number) for number, pool in enumerate(pools)]
    rankings = [(n, r) for n, (greedy, sampled) in enumerate(lists) for r in dict.fromkeys([greedy, *sampled])]
    known: list[dict[Ranking, Rewarded]] = [{} for _ in pools]

    def worth(pool_list: tuple[int, Ranking]) -> float:
        number, ranking = pool_list
        return reward(pools[number], ranking)

    def show(progress: Progress) -> None:
        done = int(progress.done)
        if progress.result and (pools_done := done * len(pools) // len(rankings)) > (done - 1) * len(pools) // len(
            rankings
        ):
            on_progress(pools_done)

    with dspy.context(trace=None):
        values = Stages(threads, listener=show).run("rewards", worth, rankings)
    for (number, ranking), value in zip(rankings, values, strict=True):
        if isinstance(value, Failed):
            logger.warning("pool %s: a list has no reward: %s", pools[number].id, value)
        else:
            known[number][ranking] = Rewarded(ranking, value)

    def pairs_of(number: int) -> list[tuple[Rewarded, Rewarded]]:
        greedy, sampled = lists[number]
        rewards = known[number]
        rewarded = [rewards[s] for s in (greedy, *sampled) if s in rewards]
        if pairs == "random":
            return random_pairs(rewarded, samples, Random(seed + number))
        return significant_pairs(rewards[greedy], rewarded, threshold) if greedy in rewards else []

    return [Preference(pool, *pair) for number, pool in enumerate(pools) for pair in pairs_of(number)]


def write_preferences(file: Path, preferences: Sequence[Preference]) -> None:
    """Write pairs to a file atomically: one pair a line, passages by their ids."""
    rows = ({"pool": p.pool.id, "winner": _row(p.pool, p.winner), "loser": _row(p.pool, p.loser)} for p in preferences)
    write_json_lines(file, rows)


def read_preferences(file: Path, pools: Sequence[Pool]) -> list[Preference]:
    """The pairs that `write_preferences` wrote.

    Raises:
        InputError: If a pair does not fit the pools.
    """
    by_id = {pool.id: pool for pool in pools}
    preferences = []
    for entry in read_rows(file):
        row = parse(_Row, entry)
        try:
            pool = by_id[row.pool]
            place = {p.id: n for n, p in enumerate(pool.passages)}
            winner, loser = (Rewarded(tuple(place[i] for i in o.ids), o.reward) for o in (row.winner, row.loser))
        except KeyError as error:
            raise misfit(entry.place, f"the pools have no {error}") from None
        preferences.append(Preference(pool, winner, loser))
    return preferences


class _RewardedRow(Layout):
    ids: list[str]
    reward: float


class _Row(Layout):
    pool: str
    winner: _RewardedRow
    loser: _RewardedRow


def _row(pool: Pool, rewarded: Rewarded) -> dict[str, object]:
    return {"ids": [pool.passages[n].id for n in rewarded.ranking], "reward": rewarded.reward}


def candidates_of(pool: Pool, chosen: Sequence[int] | None = None) -> Candidates:
    """The passages of a pool, or the chosen ones, as a ranker reads them."""
    passages = [pool.passages[n] for n in chosen] if chosen is not None else pool.passages
    return Candidates(pool.question, [p.passage.titled for p in passages], [pool.aspects_of(p) for p in passages])


def _ranking(written: torch.Tensor) -> Ranking:
    return tuple(n for n in written.tolist() if n != NOTHING)

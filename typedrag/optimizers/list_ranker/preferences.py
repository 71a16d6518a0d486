"""Pairs of lists for learning preferences: unilateral significance sampling, US³ (RichRAG, section 3.4.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import dspy
import torch

from typedrag.datasets.pools import Pool
from typedrag.datasets.reading import Layout, misfit, parse, read_rows
from typedrag.files.text_files import write_json_lines
from typedrag.lms.asking_each import Failed, ask_as_they_come
from typedrag.lms.faults import Faults
from typedrag.optimizers.list_ranker.rewards import Reward
from typedrag.retrieval.rerank.list_ranker.folder import ListRanker
from typedrag.retrieval.rerank.list_ranker.model import NOTHING
from typedrag.retrieval.rerank.list_ranker.reranker import encode
from typedrag.retrieval.rerank.list_ranker.texts import Candidates

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
    on_progress: Callable[[int], object] = lambda done: None,
) -> list[Preference]:
    """The pairs that US³ finds in pools. A list whose reward fails is left out, and logged.

    Args:
        threads: Rewards computed at once, of lists of one pool or of several.

    Raises:
        LMUnavailable: If the reward asks an LM that cannot be used.
    """
    lists: dict[int, tuple[Ranking, list[Ranking]]] = {}
    left: dict[int, int] = {}
    known: list[dict[Ranking, Rewarded]] = [{} for _ in pools]

    def unrewarded() -> Iterator[tuple[int, Ranking]]:
        for number, pool in enumerate(pools):
            greedy, sampled = lists[number] = sample_lists(ranker, pool, k, samples, seed + number)
            rankings = list(dict.fromkeys([greedy, *sampled]))
            left[number] = len(rankings)
            yield from ((number, ranking) for ranking in rankings)

    def worth(pool_list: tuple[int, Ranking]) -> float:
        number, ranking = pool_list
        return reward(pools[number], ranking)

    done, faults = 0, Faults()
    with dspy.context(trace=None):
        for (number, ranking), value in ask_as_they_come(worth, unrewarded(), threads, faults):
            if isinstance(value, Failed):
                logger.warning("pool %s: a list has no reward: %s", pools[number].id, value)
            else:
                known[number][ranking] = Rewarded(ranking, value)
            left[number] -= 1
            if not left[number]:
                on_progress(done := done + 1)
    faults.settle()
    return [
        pair for number, pool in enumerate(pools) for pair in _pairs(pool, *lists[number], known[number], threshold)
    ]


def _pairs(
    pool: Pool, greedy: Ranking, sampled: Sequence[Ranking], known: Mapping[Ranking, Rewarded], threshold: float
) -> list[Preference]:
    if greedy not in known:
        return []
    pairs = significant_pairs(known[greedy], [known[s] for s in sampled if s in known], threshold)
    return [Preference(pool, winner, loser) for winner, loser in pairs]


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

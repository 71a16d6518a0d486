"""Pools that a tiny ranker can learn: a passage is good if it names what the question is about."""

import random
from functools import cache
from statistics import fmean

from typedrag.datasets.richrag import Pool
from typedrag.optimizers.list_ranker.measures import pool_measures, ranker_candidates
from typedrag.retrieval.list_ranker import ListRanker, start_list_ranker

WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun rain snow wind".split()


@cache
def topic_pools(count: int, seed: int = 0, passages: int = 8) -> tuple[Pool, ...]:
    rng = random.Random(seed)
    return tuple(_pool(f"{seed}-{n}", rng, passages) for n in range(count))


def _pool(name: str, rng: random.Random, passages: int) -> Pool:
    topic = rng.choice(WORDS)
    others = [word for word in WORDS if word != topic]
    good = set(rng.sample(range(passages), passages // 3))
    rows = []
    for n in range(passages):
        text = " ".join([topic if n in good else rng.choice(others), *rng.sample(others, 3), f"x{n}"])
        rows.append({"id": f"{name}-{n}", "text": text, "label": int(n in good)})
    return Pool.model_validate({"id": name, "question": f"about {topic}", "passages": rows})


def new_ranker(seed: int = 0) -> ListRanker:
    texts = [f"about {' '.join(WORDS)}", " ".join(f"x{n}" for n in range(12))]
    return start_list_ranker("scratch", texts=texts, seed=seed)


def ndcg(ranker: ListRanker, pools: tuple[Pool, ...]) -> float:
    return fmean(pool_measures(pool, ranker.write(ranker_candidates(pool), 10), None)["ndcg"] for pool in pools)


def random_ndcg(pools: tuple[Pool, ...]) -> float:
    """What random orders get on average."""
    rng = random.Random(0)
    orders = [(pool, rng.sample(range(len(pool.passages)), len(pool.passages))) for pool in pools for _ in range(5)]
    return fmean(pool_measures(pool, order, None)["ndcg"] for pool, order in orders)

"""Rewards of a list of passages for a generator (RichRAG, section 3.4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from typedrag.datasets.pools import Pool
from typedrag.errors import InputError
from typedrag.metrics.ranking import ncom
from typedrag.metrics.similarity import com_rouge, rouge
from typedrag.optimizers.list_ranker.utility import utility_table
from typedrag.programs import Options
from typedrag.programs.answering import NotAnswered, PassageAnswerer
from typedrag.records import NOT_IN_COLLECTION
from typedrag.signatures import AnswerRichly

Reward = Callable[[Pool, Sequence[int]], float]
"""Gives the reward of a list of a pool's passages (their positions); more is better."""


def answer_reward(response: str, answer: str, sub_answers: Sequence[str]) -> float:
    """The match of a response with the answer, plus its coverage of the sub-answers (eq. 11).

    Both are means of ROUGE-2 and ROUGE-L: F-measures for the match, recalls for the coverage, like the
    metrics `rouge` and `com-rouge`.

    Args:
        response: The generator's response.
        answer: A good answer to the whole question.
        sub_answers: The answers to its sub-aspects; the longer ones count more.

    Returns:
        From 0 to 2.

    Example:
        The response has three of the answer's five words in order (ROUGE-L: recall 3/5, precision 1,
        F 3/4), and two of its four word pairs (ROUGE-2: 1/2, 1, F 2/3). It covers the first sub-answer
        (three of five words) and nothing of the second:

        >>> round(answer_reward("leaves turn red", "leaves turn red in autumn", ["leaves turn red", "in autumn"]), 4)
        1.3083
        >>> round((3 / 4 + 2 / 3) / 2 + 3 / 5, 4)
        1.3083
    """
    return fmean(rouge(response, answer).values()) + fmean(com_rouge(response, sub_answers).values())


def gold_of(pool: Pool) -> tuple[str, list[str]]:
    """The answer and the sub-answers of a pool; if it only has labels, its relevant passages, the best first.

    Raises:
        InputError: If the pool has neither sub-answers nor a relevant passage.
    """
    relevant = [p for p in pool.passages if (p.label or 0) >= pool.relevant_from]
    best_first = [p.text for p in sorted(relevant, key=lambda p: -(p.label or 0))]
    sub_answers = pool.sub_answers or best_first
    if not sub_answers:
        raise InputError(f"pool '{pool.id}' has no answer to compare with", "Give it sub_answers, or labels")
    return pool.answer or (" ".join(pool.sub_answers) or best_first[0]), list(sub_answers)


class NcomReward:
    """Rewards a list by its comprehensiveness, without a generator; see `metrics.ranking.ncom`.

    Args:
        pools: All pools whose lists will be rewarded.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._tables = {pool.id: utility_table(pool) for pool in pools}

    def __call__(self, pool: Pool, ranking: Sequence[int]) -> float:
        """See `Reward`."""
        return ncom(ranking, self._tables[pool.id]) or 0.0


class GeneratorReward:
    """Rewards a list by the answer that the LM in use writes from it.

    Args:
        options: The generator's options: the number of passages, and the words of each.
    """

    def __init__(self, options: Options | None = None) -> None:
        self._answerer = PassageAnswerer(AnswerRichly, options or Options())

    def __call__(self, pool: Pool, ranking: Sequence[int]) -> float:
        """See `Reward`.

        Raises:
            StepFailed: If no answer can be read.
            LMUnavailable: If the LM cannot be used.
        """
        passages = [pool.passages[n].passage for n in ranking][: self._answerer.options.answer_passages]
        try:
            answer = str(self._answerer(question=pool.question, passages=passages).answer)
        except NotAnswered:
            answer = NOT_IN_COLLECTION
        return answer_reward(answer, *gold_of(pool))

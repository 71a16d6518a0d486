"""Pairwise comparison of finished runs: a judge prefers one answer of each pair (sub-question coverage, section 5)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import dspy
from pydantic import TypeAdapter, ValidationError

from typedrag.core.errors import InputError
from typedrag.core.records import Estimate
from typedrag.experiments.compare import NO_ANSWER, NOT_IN_BOTH, run_labels
from typedrag.experiments.judges.judging import judge_each
from typedrag.experiments.results import Run
from typedrag.files.text_files import write_text
from typedrag.lms.cost import Spending
from typedrag.lms.lm import lm_identity
from typedrag.metrics.estimate import mean_estimate
from typedrag.metrics.judges.preference import PairwiseJudge, PairwiseOutcome, Verdicts, compare_in_both_orders
from typedrag.runs import Listener, ignore_progress
from typedrag.text.words import question_key

FILE = "pairwise.json"  # of a comparison, beside the folders of the runs


@dataclass(frozen=True, slots=True)
class ComparedAnswers:
    """The verdicts on a run's answer to a question against another run's, or why there are none; runs are named by
    their labels. Questions are resampled, since several ids may share one."""

    id: str
    run: str
    other: str
    verdicts: Verdicts | None
    problem: str = ""
    question: str = ""

    @property
    def outcome(self) -> PairwiseOutcome | None:
        return self.verdicts.outcome if self.verdicts else None


@dataclass(frozen=True, slots=True)
class WinRate:
    """The rate at which a run's answers, in the row of the matrix, beat another's, in its column (table 4): the share
    of verdicts for them, of which each of the two on a question counts by itself, and ties half; `likelier` is that by
    the answer that the judge thinks likelier to be better, see `Verdicts`."""

    run: str
    other: str
    rate: Estimate | None
    likelier: Estimate | None
    wins: int
    ties: int
    losses: int
    failed: int


@dataclass(frozen=True)
class PairwiseComparison:
    """The result of `compare_pairwise`: compared answers by pair of runs, then in the order of the questions."""

    runs: tuple[str, ...]
    scorer: Mapping[str, Any]
    answers: tuple[ComparedAnswers, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    spent: Spending = field(default_factory=Spending)
    seconds: float = 0.0

    @cached_property
    def win_rates(self) -> tuple[WinRate, ...]:
        rates = []
        for run, other in permutations(self.runs, 2):
            compared = [a for a in self.answers if {a.run, a.other} == {run, other}]
            outcomes = [a.outcome.reversed if a.outcome and a.run == other else a.outcome for a in compared]
            units = [question_key(a.question) or a.id for a in compared]
            points = [
                (a.verdicts.points if a.run == run else 1 - a.verdicts.points, unit)
                for a, unit in zip(compared, units, strict=True)
                if a.verdicts
            ]
            likelier = [
                (a.verdicts.likelier if a.run == run else 1 - a.verdicts.likelier, unit)
                for a, unit in zip(compared, units, strict=True)
                if a.verdicts and a.verdicts.likelier is not None
            ]
            rate, likelier_rate = (
                mean_estimate([p for p, _ in each], groups=[unit for _, unit in each]) for each in (points, likelier)
            )
            counts = Counter(outcomes)
            won, tied, lost = (counts[o] for o in (PairwiseOutcome.WIN, PairwiseOutcome.TIE, PairwiseOutcome.LOSS))
            rates.append(WinRate(run, other, rate, likelier_rate, won, tied, lost, counts[None]))
        return tuple(rates)

    @property
    def first_place(self) -> float | None:
        """The share of the judge's preferences that were for the answer in the first place.

        Asked in both orders, a judge without a bias for a place gives 0.5. None if it had no preferences.
        """
        counts = Counter(v for a in self.answers if a.verdicts for v in (a.verdicts.forward, a.verdicts.backward))
        preferences = counts["first"] + counts["second"]
        return counts["first"] / preferences if preferences else None

    @property
    def consistency(self) -> float | None:
        verdicts = [a.verdicts for a in self.answers if a.verdicts]
        agree = sum(v[:2] == ("tie", "tie") or v.outcome is not PairwiseOutcome.TIE for v in verdicts)
        return agree / len(verdicts) if verdicts else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": list(self.runs),
            "scorer": dict(self.scorer),
            "win_rates": [asdict(rate) for rate in self.win_rates],
            "first_place": self.first_place,
            "consistency": self.consistency,
            "left_out": dict(self.left_out),
            "spent": asdict(self.spent),
            "seconds": self.seconds,
            "answers": [
                {**asdict(a), "verdicts": a.verdicts and a.verdicts._asdict(), "outcome": a.outcome}
                for a in self.answers
            ],
        }


def compare_pairwise(
    runs: Sequence[Run],
    scorer: dspy.LM,
    *,
    plain: bool = False,
    threads: int = 16,
    listener: Listener = ignore_progress,
) -> PairwiseComparison:
    """Let a judge compare the answers of each pair of runs over the same questions, in both orders; a `plain` one is
    told no more than in the paper, and calls no tie.

    Within `use_reply_store`, verdicts are kept: repeated after a kill, the comparison pays only for missing ones.
    """
    if len(runs) < 2:
        raise InputError("one run cannot be compared", "Name two or more")
    labels = run_labels(runs)
    if len(set(labels)) < len(labels):
        raise InputError("a run is named twice", "Name each run once")
    judge = PairwiseJudge(plain=plain)
    held = {label: {q.id: q for q in run.questions} for label, run in zip(labels, runs, strict=True)}
    pairs: list[tuple[ComparedAnswers, str, str]] = []
    left_out: Counter[str] = Counter()
    for run, other in combinations(held, 2):
        for id_ in dict.fromkeys([*held[run], *held[other]]):
            first, second = held[run].get(id_), held[other].get(id_)
            if first is None or second is None:
                left_out[NOT_IN_BOTH] += 1
            elif first.question != second.question:
                raise InputError(
                    f"question '{id_}' of {run} is another one in {other}", "Compare runs over the same data"
                )
            elif first.answer is None or second.answer is None:
                left_out[NO_ANSWER] += 1
            else:
                compared = ComparedAnswers(id_, run, other, None, question=first.question)
                pairs.append((compared, first.answer.answer, second.answer.answer))
    judged = judge_each(
        lambda pair: compare_in_both_orders(judge, pair[0].question, *pair[1:]), pairs,
        scorer=scorer, threads=threads, listener=listener, name="comparisons",
    )  # fmt: skip
    verdicts, problems = dict(judged.judgments), dict(judged.failures)
    answers = (replace(p[0], verdicts=verdicts.get(p), problem=problems.get(p, "")) for p in pairs)
    return PairwiseComparison(
        tuple(labels), lm_identity(scorer), tuple(answers), dict(left_out), judged.spent, judged.seconds
    )


def write_pairwise(comparison: PairwiseComparison, file: Path) -> None:
    write_text(file, json.dumps(comparison.to_dict(), ensure_ascii=False, indent=1))


def read_pairwise(file: Path) -> PairwiseComparison:
    make = "Make it: typedrag research judges pairwise RUN RUN"
    try:
        return TypeAdapter(PairwiseComparison).validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror})", make) from None
    except ValidationError:
        raise InputError(f"{file} is no pairwise comparison", make) from None

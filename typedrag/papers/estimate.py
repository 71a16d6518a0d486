"""The estimate of what a table will take, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.errors import InputError
from typedrag.experiments.evaluate.run_store import AGAIN, read_records
from typedrag.experiments.projection import ENOUGH, projected
from typedrag.lms.prices import own_price
from typedrag.lms.spending import Spending
from typedrag.papers.config import PaperTable, spec_of
from typedrag.records import Usage
from typedrag.runs import is_run


class _Typical(NamedTuple):
    """LM calls of one answer or judgment, and the tokens that they read and write."""

    calls: float
    read: int
    written: int


_PROGRAMS: Mapping[str, _Typical] = {
    "direct_lm": _Typical(1, 70, 150),
    "rag": _Typical(1, 1_100, 150),
    "typed_rag": _Typical(3, 2_400, 400),
    "preqrag": _Typical(3, 1_000, 250),
    "hanrag": _Typical(12, 3_200, 400),
    "ircot": _Typical(5, 8_000, 300),
    "adaptive_rag": _Typical(3, 4_000, 250),
    "richrag": _Typical(2, 1_500, 300),
    "rag_fusion": _Typical(2, 1_300, 250),
    "coverage_definition": _Typical(1, 1_200, 200),
    "coverage_sub_questions": _Typical(3, 2_500, 600),
    "coverage_retrieval": _Typical(3, 2_200, 600),
    "coverage_end_to_end": _Typical(10, 7_000, 1_500),
}
"""As measured with a 1.5B model, rounded up: docs/results."""
_PUBLISHED: Mapping[str, _Typical] = {
    "coverage_sub_questions": _Typical(22, 12_000, 1_100),
    "coverage_retrieval": _Typical(80, 70_000, 2_500),
    "coverage_end_to_end": _Typical(36, 35_000, 2_500),
}
"""Programs that ask more as published, reckoned: a call for each of 20 sub-questions, and for each passage of a pool or
each of some 12 sub-answers."""
_METRICS: Mapping[str, _Typical] = {
    "linkage": _Typical(1, 1_500, 20),
    "equivalence": _Typical(1, 500, 10),
    "relevance": _Typical(1, 400, 10),
    "faithfulness": _Typical(1, 1_200, 10),
    "correctness": _Typical(1, 500, 10),
}
"""Metrics that ask a scorer; others ask nobody."""
_SUB_QUESTIONS = 20
_COMPARED = _Typical(2, 1_500, 20)
"""Two answers that are compared, in both orders."""
_PASSAGES = 5
_SECONDS_A_CALL = 3.0
_IN_FLIGHT = 16
"""LM calls at once of a server."""
_EMBEDDED_TOKENS_A_SECOND = 80.0
"""Tokens read and written of the embedded 1.5B model on two cores, which gave 60 to 285 of them by machine."""


@dataclass(frozen=True)
class Estimated:
    """The estimate of what a table will take.

    Attributes:
        questions: The questions, over all variants; None if their number is not known.
        runs: The runs of programs.
        spent: LM calls and tokens; `spent.cost` is None if the price of no LM is known.
        hours: The time that its LM calls take: at 3 s each, 16 at once, or with an embedded LM at 80 tokens a second.
        by_runs: Whether some of it is projected by what earlier runs have spent.
    """

    questions: int | None
    runs: int
    spent: Spending
    hours: float
    by_runs: bool


def estimate(
    table: PaperTable, experiments: Mapping[str, Mapping[str, Any]], out: Path | None = None, limit: int | None = None
) -> Estimated:
    """Estimate what a table's experiments will take.

    Args:
        table: The table.
        experiments: Their settings, by variant; see `experiments_of`.
        out: A folder with earlier runs of them, perhaps on fewer questions, by which they are projected.
        limit: The most questions of each.
    """
    total, seconds, questions, runs, by_runs = Spending(), 0.0, 0, 0, False
    known, asked_before = True, set[str]()
    for variant, settings in experiments.items():
        most = table.config.questions_of(variant, limit)
        known &= most is not None
        count = most or 0
        questions += count
        answering, judging = Spending(), Spending()
        for program in settings.get("programs") or ():
            runs += 1
            earlier = out and _earlier(out / variant / str(program.get("name", "")), count)
            by_runs |= bool(earlier)
            if earlier:
                answering += earlier  # with its judgments
            else:
                judging += _of_judges(settings, count)
            same = str((program, *(settings.get(part) for part in ("lm", "dataset", "index"))))
            if not earlier and same not in asked_before:  # its replies are kept
                answering += _of_program(program, settings, count)
            asked_before.add(same)
        if any(table.config.cell(r, c).against for r in table.config.rows for c in table.config.columns):
            names = settings.get("programs") or ()
            judging += _spent([_COMPARED] * (len(names) * (len(names) - 1) // 2), count, settings.get("scorer"))
        total += answering + judging
        seconds += _seconds(answering, settings.get("lm")) + _seconds(judging, settings.get("scorer"))
    return Estimated(questions if known else None, runs, total, seconds / 3600, by_runs)


def _earlier(folder: Path, questions: int) -> Spending | None:
    if not is_run(folder):
        return None
    try:
        _, records = read_records(folder)
    except InputError:  # of another version
        return None
    records = [(role, spent) for role, spent in records if role != AGAIN]
    return projected(records, questions) if len(records) >= ENOUGH else None


def _of_program(program: Mapping[str, Any], settings: Mapping[str, Any], questions: int) -> Spending:
    name = str(program.get("program"))
    typical = (program.get("as_published") and _PUBLISHED.get(name)) or _PROGRAMS.get(name)
    answering = [typical] if typical else []
    return _spent(answering, questions, settings.get("lm"))


def _of_judges(settings: Mapping[str, Any], questions: int) -> Spending:
    judging = [t for metric in settings.get("metrics") or () for t in _of_metric(metric)]
    return _spent(judging, questions, settings.get("scorer"))


def _of_metric(metric: Any) -> Iterator[_Typical]:
    name, options = (metric, {}) if isinstance(metric, str) else (metric["name"], metric.get("options") or {})
    if name in _METRICS:
        yield _METRICS[name]
    if name == "coverage":
        typing = _SUB_QUESTIONS / options.get("types_per_call", _SUB_QUESTIONS)
        yield _Typical(1 + typing, round(400 + 600 * typing), 700)
        if options.get("cite", "similarity") != "similarity":
            judging = _SUB_QUESTIONS / options.get("sub_questions_per_call", 10)
            text = _Typical(judging, round(400 * judging), 300)
            yield from [text] * (1 + _PASSAGES * bool(options.get("passages", True)))
    if name == "preference":
        coverage = {"passages": False, **(options.get("coverage") or {})}
        yield from [t for _ in range(2) for t in _of_metric({"name": "coverage", "options": coverage})]
        if options.get("lm_judge"):
            yield _COMPARED


def _spent(each: list[_Typical], questions: int, lm: Mapping[str, Any] | None) -> Spending:
    calls, read, written = (round(sum(t[place] for t in each) * questions) for place in range(3))
    dollars = _dollars(spec_of(lm), read, written) if calls else None
    return Spending(Usage(calls, read, written), dollars or 0.0, 0 if dollars is not None else calls)


def _seconds(spent: Spending, lm: Mapping[str, Any] | None) -> float:
    if spec_of(lm).startswith("embedded"):
        return spent.tokens / _EMBEDDED_TOKENS_A_SECOND
    return spent.usage.lm_calls * _SECONDS_A_CALL / _IN_FLIGHT


def _dollars(spec: str, read: int, written: int) -> float | None:
    """The price of tokens of an LM; None if it is not known, or which LM it will be."""
    if "$" in spec or "/" not in spec or spec.startswith(("vllm:", "embedded")):
        price = own_price(spec.removeprefix("vllm:").removeprefix("embedded:")) if spec and "$" not in spec else None
        return price.of(Usage(0, read, written)) if price else None
    if price := own_price(spec):
        return price.of(Usage(0, read, written))
    import litellm

    try:
        return float(sum(litellm.cost_per_token(model=spec, prompt_tokens=read, completion_tokens=written)))
    except Exception:  # LiteLLM raises one of its own for a model that its table lacks
        return None

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import dspy
import pytest

from tests.scripted import ScriptedEngine
from typedrag.core.errors import InputError
from typedrag.core.records import Answer
from typedrag.experiments.judges.pairwise import (
    ComparedAnswers,
    PairwiseComparison,
    compare_pairwise,
    read_pairwise,
    write_pairwise,
)
from typedrag.experiments.results import QuestionResult, Run
from typedrag.lms.lm import lm_identity
from typedrag.lms.replies import use_reply_store
from typedrag.metrics.judges.preference import PairwiseOutcome, Verdicts
from typedrag.signatures.judging import CompareAnswers, ComparePlain


def counted(done: list[int]):
    return lambda progress: done.append(progress.done)


def run(name: str, answers: dict[str, str | None]) -> Run:
    questions = tuple(
        QuestionResult(i, f"Why {i}?", None, "", Answer(f"Why {i}?", text) if text else None, "" if text else "failed")
        for i, text in answers.items()
    )
    return Run(name, Path(name), {}, questions, len(questions))


def longer(prompt: str) -> str:
    """Prefers the longer answer, wherever it stands; a tie if both are as long."""
    first, second = (len(prompt.split(f"[[ ## {n}_answer ## ]]\n")[1].split("\n")[0]) for n in ("first", "second"))
    return said("tie" if first == second else "first" if first > second else "second")


def said(verdict: str) -> str:
    return f"[[ ## verdict ## ]]\n{verdict}\n\n[[ ## completed ## ]]"


def scorer(reply=longer) -> dspy.LM:
    engine = ScriptedEngine({CompareAnswers: reply})
    return dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=True, temperature=0.0)


RUNS = (
    run("rag", {"1": "long answer", "2": "long answer", "3": "same", "4": "abc"}),
    run("lm", {"1": "short", "2": "a much longer answer", "3": "same", "4": "xyz"}),
    run("typed", {"1": "the longest answer", "2": "s", "3": "the longest", "4": "the longest"}),
)


def test_every_pair_of_runs_is_compared_on_every_question():
    done: list[int] = []
    found = compare_pairwise(RUNS, scorer(), listener=counted(done))
    rates = {(r.run, r.other): r for r in found.win_rates}
    assert (rates["rag", "lm"].wins, rates["rag", "lm"].ties, rates["rag", "lm"].losses) == (1, 2, 1)
    assert (rates["lm", "rag"].wins, rates["lm", "rag"].ties, rates["lm", "rag"].losses) == (1, 2, 1)
    assert rates["typed", "rag"].rate.value == 0.75
    assert rates["rag", "typed"].rate.value == 0.25
    assert rates["typed", "lm"].rate.n == 4
    assert done == [0, *range(1, 13), 12]
    assert found.consistency == 1
    assert found.first_place == 0.5


def test_a_liking_for_a_place_is_a_tie_and_is_seen():
    found = compare_pairwise(RUNS[:2], scorer(said("first")))
    assert [a.outcome for a in found.answers] == [PairwiseOutcome.TIE] * 4
    assert found.first_place == 1
    assert found.consistency == 0.25  # the question with equal answers, which is not asked about


def test_each_verdict_counts_by_itself_and_a_plain_judge_calls_no_tie():
    held = [Verdicts("first", "tie"), Verdicts("first", "second"), Verdicts("tie", "first"), Verdicts("first", "first")]
    answers = [ComparedAnswers(str(n), "rag", "lm", verdicts) for n, verdicts in enumerate(held)]
    rag, lm = PairwiseComparison(("rag", "lm"), {}, tuple(answers)).win_rates
    assert (rag.rate.value, lm.rate.value) == ((0.75 + 1 + 0.25 + 0.5) / 4, (0.25 + 0 + 0.75 + 0.5) / 4)
    engine = ScriptedEngine({ComparePlain: lambda prompt: longer(prompt).replace("tie", "second")})
    found = compare_pairwise(RUNS, dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=False), plain=True)
    assert set(engine.asked()) == {"ComparePlain"}
    assert get_args(ComparePlain.output_fields["verdict"].annotation) == ("first", "second")
    assert sum(r.failed for r in found.win_rates) == 0


def test_probabilities_tell_runs_apart_that_verdicts_do_not():
    held = enumerate((0.51, 0.9, 0.5, 0.4))
    answers = [ComparedAnswers(str(n), "rag", "lm", Verdicts("tie", "tie", p)) for n, p in held]
    unknown = ComparedAnswers("4", "rag", "lm", Verdicts("tie", "tie"))
    rag, lm = PairwiseComparison(("rag", "lm"), {}, (*answers, unknown)).win_rates
    assert rag.rate.value == lm.rate.value == 0.5
    assert (rag.likelier.value, lm.likelier.value, rag.likelier.n) == (0.625, 0.375, 4)


def test_verdicts_that_were_made_are_not_paid_for_again(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        first = compare_pairwise(RUNS, scorer())
        assert first.spent.usage.lm_calls > 0
        again = compare_pairwise(RUNS[::-1], lm := scorer())
    assert lm.engine.prompts == [] and again.spent.usage.lm_calls == 0
    assert {frozenset((r.run, r.other)): r.ties for r in again.win_rates} == {
        frozenset((r.run, r.other)): r.ties for r in first.win_rates
    }


def test_failures_of_the_judge_are_counted_apart():
    found = compare_pairwise(RUNS[:2], scorer(lambda p: "?" if "Why 2?" in p else longer(p)))
    [rate, _] = found.win_rates
    assert (rate.wins, rate.ties, rate.losses, rate.failed, rate.rate.n) == (1, 2, 0, 1, 3)
    assert [bool(a.problem) for a in found.answers] == [False, True, False, False]


def test_questions_without_two_answers_are_left_out_with_the_reason():
    partial = run("partial", {"1": "short", "2": None, "9": "alone"})
    found = compare_pairwise([RUNS[0], partial], scorer())
    assert [a.id for a in found.answers] == ["1"]
    assert found.left_out == {"not in both runs": 3, "no answer": 1}


def test_a_comparison_is_the_same_when_it_is_read_again(tmp_path):
    found = compare_pairwise(RUNS, scorer(lambda p: "?" if "Why 2?" in p else longer(p)))
    write_pairwise(found, tmp_path / "pairwise.json")
    assert read_pairwise(tmp_path / "pairwise.json") == found
    assert found.scorer == {"model": "scripted/lm", "temperature": 0.0, **found.scorer}


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        (RUNS[:1], "one run"),
        ((RUNS[0], RUNS[0]), "named twice"),
        ((RUNS[0], replace(RUNS[1], questions=(replace(RUNS[1].questions[0], question="Why not?"),))), "another one"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(runs, problem):
    with pytest.raises(InputError, match=problem):
        compare_pairwise(runs, scorer())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": ["a"]}'])
def test_a_file_that_holds_no_comparison_is_named(tmp_path, text):
    file = tmp_path / "pairwise.json"
    with pytest.raises(InputError, match="cannot be read"):
        read_pairwise(file)
    file.write_text(text)
    with pytest.raises(InputError, match=r"pairwise\.json is no pairwise comparison"):
        read_pairwise(file)


def test_keys_and_addresses_are_not_written():
    lm = dspy.LM("openai/x", api_key="sk-secret", api_base="http://secret", temperature=0.0)
    data = json.dumps(PairwiseComparison((), lm_identity(lm), ()).to_dict())
    assert "secret" not in data and "openai/x" in data

import json
import random

from scripts.results_page import Section, results_page
from tests.commands import invoke
from tests.experiments.runs import judged, write_run
from typedrag.experiments.compare import disagreements
from typedrag.experiments.report import render_report

LOW, HIGH = [0.25] * 20, [0.5] * 20
HALF = (1.0, -1.0) * 10
FEWER = (1.0, -1.0) * 3 + (-1.0,) * 14

RAG = judged("rag", *HALF, mrr=LOW, expected_rank=[3.0] * 20)
DIRECT = judged("direct-lm", *FEWER, mrr=HIGH, expected_rank=[2.0] * 20)
LABELS = ("rag", "direct-lm")


def test_a_run_that_judges_prefer_and_that_is_less_true_is_named():
    of_truth, of_right = disagreements(RAG, DIRECT, LABELS)
    assert (of_truth.preferred, of_truth.other) == ("direct-lm", "rag")
    assert {m: gain.value for m, gain in of_truth.judged.items()} == {"linkage/score": 0.25}
    assert (of_truth.truth, of_truth.difference.value) == ("truthfulness/truthfulness", -0.7)
    assert (of_right.truth, of_right.difference.value) == ("truthfulness/right", -0.35)
    said = str(of_right)
    assert said.startswith(
        "rank and truth disagree: direct-lm is better than rag by linkage/score +0.250 [+0.250, +0.250]"
    )
    assert "has fewer right answers, truthfulness/right -0.350 [" in said


def test_it_is_the_same_whichever_run_is_the_baseline():
    assert disagreements(DIRECT, RAG, LABELS[::-1]) == disagreements(RAG, DIRECT, LABELS)


def test_where_both_agree_or_either_may_be_chance_nothing_is_said():
    worse = judged("worse", *FEWER, mrr=[0.125] * 20)
    assert disagreements(RAG, worse, ("rag", "worse")) == []
    luck = judged("luck", *(1.0, -1.0) * 9, -1.0, -1.0, mrr=[0.5, *[0.25] * 19])  # one question by rank, one by truth
    assert disagreements(RAG, luck, ("rag", "luck")) == []
    assert disagreements(RAG, judged("same", *HALF, mrr=HIGH), ("rag", "same")) == []


def test_a_warning_needs_both_differences_to_be_beyond_chance():
    truer = judged("truer", *(1.0,) * 20, mrr=[0.2, *LOW[1:]])  # surely truer, and lower in rank at one question
    assert disagreements(RAG, truer, ("rag", "truer")) == []
    preferred = judged("preferred", *(1.0, -1.0) * 9, -1.0, -1.0, mrr=HIGH)  # surely higher, and less true at one
    assert disagreements(RAG, preferred, ("rag", "preferred")) == []


def test_where_nothing_differs_hardly_any_pair_of_runs_is_warned_of():
    luck = random.Random(0)

    def alike(name):
        return judged(name, *(luck.choice((-1.0, 1.0)) for _ in range(30)), mrr=[luck.random() for _ in range(30)])

    warned = sum(bool(disagreements(alike("a"), alike("b"), ("a", "b"))) for _ in range(40))
    assert warned <= 1


def test_compare_report_and_page_warn(tmp_path):
    folders = [str(write_run(run, tmp_path / run.name)) for run in (RAG, DIRECT)]
    done = invoke("compare", *folders, "--measure", "cost/tokens")
    assert done.exit_code == 0, done.output
    assert "warning: rank and truth disagree: direct-lm is better than rag by linkage/score" in done.stdout
    data = json.loads(invoke("compare", *folders, "--json").stdout)
    assert data["warnings"] == [str(found) for found in disagreements(RAG, DIRECT, LABELS)]
    warning = "rank and truth disagree: direct-lm is better than rag"
    assert warning in render_report([RAG, DIRECT])
    assert warning not in render_report([RAG])
    assert f"**Beware:** {warning}" in results_page(
        "Page", [], [Section("data", [RAG, DIRECT], 0, ["linkage/mrr"], {}, "")]
    )

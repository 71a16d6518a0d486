from __future__ import annotations

import json
import random
import time

import pytest

from tests.datasets.files import write_jsonl
from tests.experiments.runs import question, run, write_run
from tests.mlflow_stores import new_store
from typedrag.errors import InputError
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.optimizers.sweep.config import WeightsConfig, WeightsSampler
from typedrag.optimizers.sweep.weights.rated import RatedAnswer, read_rated
from typedrag.optimizers.sweep.weights.run import run_weights
from typedrag.optimizers.sweep.weights.search import Weights, _folds, pairs_of, search_weights

NO_TRACKING = {"enabled": False}


def answers(n: int, weights: tuple[float, float, float], noise: float = 0.0, seed: int = 0) -> list[RatedAnswer]:
    """Pairs whose better answer is the one that these weights prefer, but for the noise."""
    luck = random.Random(seed)
    found = []
    for question_ in range(n):
        sides = [[luck.randrange(6) / 5 for _ in range(3)] for _ in range(2)]
        ratings = [sum(w * c for w, c in zip(weights, side, strict=True)) + luck.gauss(0, noise) for side in sides]
        for k, side in enumerate(sides):
            target = float(ratings[k] > ratings[1 - k])
            found.append(rated_answer(f"q{question_}", str(k), *side, target, judge=luck.random()))
    return found


def rated_answer(question_, answer, core, background, follow_up, target, **given):
    covered = {"core": core, "background": background, "follow_up": follow_up}
    return RatedAnswer(question=question_, answer=answer, **covered, target=target, **given)


# the search


@pytest.mark.parametrize("sampler", ["random", "qmc", "grid"])
def test_weights_that_people_go_by_are_found(sampler):
    found = search_weights(pairs_of(answers(300, (1.0, 0.5, -1.0))), sampler=WeightsSampler(name=sampler), trials=500)
    core, background, follow_up = found.best.as_tuple
    assert background / core == pytest.approx(0.5, abs=0.2)
    assert follow_up / core == pytest.approx(-1, abs=0.3)
    assert found.accuracy.value > 0.95
    assert found.baselines["published weights, 1 : 0.5 : -1"].value > 0.97
    assert found.baselines["core alone"].value < 0.8
    assert found.baselines["LM judge"].value == pytest.approx(0.5, abs=0.1)
    assert found.gains["core alone"].low > 0.1


def test_a_questions_pairs_are_in_one_fold_though_people_compared_them_by_themselves():
    rated = [a.model_copy(update={"group": f"group {int(a.question[1:]) % 10}"}) for a in answers(20, (1.0, 0.5, -1.0))]
    pairs = pairs_of(rated)
    assert len(pairs) == 20 and len(set(pairs.questions.tolist())) == 10
    folds = _folds(pairs, 5, seed=0)
    assert all(len({f for f, q in zip(folds, pairs.questions, strict=True) if q == n}) == 1 for n in range(10))
    with pytest.raises(InputError, match="10 questions cannot be parted into 11 folds"):
        search_weights(pairs, folds=11)


def test_a_sampler_that_learns_finds_them_too_and_learns_for_each_fold():
    found = search_weights(pairs_of(answers(60, (1.0, -0.5, 0.0))), sampler=WeightsSampler(name="tpe"), trials=40)
    assert found.accuracy.value > 0.85
    assert len(set(found.folds)) > 1


def test_what_is_fitted_to_chance_is_no_better_than_chance():
    """The accuracy on the pairs that weights were chosen by is too good; that of the cross-validation is not."""
    found = search_weights(pairs_of(answers(60, (0.0, 0.0, 0.0), noise=1.0)), trials=1000)
    assert found.fitted.value > 0.58
    assert found.accuracy.low < 0.5 < found.accuracy.high
    assert found.fitted.value - found.accuracy.value > 0.05


def test_500_pairs_and_2000_trials_take_less_than_ten_seconds():
    pairs = pairs_of(answers(500, (1.0, 0.5, -1.0), noise=0.5))
    started = time.process_time()
    found = search_weights(pairs, trials=2000)
    assert time.process_time() - started < 10
    assert (found.n, len(found.trials)) == (500, 2000)


def test_types_without_sub_questions_count_nothing_and_equal_ratings_half():
    pairs = pairs_of([rated_answer("q", "a", 0.5, None, None, 2.0), rated_answer("q", "b", 0.5, None, None, 1.0)])
    assert pairs.points([[1, 1, 1]]).tolist() == [[0.5]]


def test_all_answers_to_a_question_are_compared_and_a_question_is_in_one_fold():
    rated = [rated_answer(f"q{n // 4}", str(n % 4), n % 4 / 3, 0.0, 0.0, float(n % 4 // 2)) for n in range(48)]
    pairs = pairs_of(rated)
    assert len(pairs) == 12 * 4  # of six pairs of a question two have equal targets
    found = search_weights(pairs, trials=50, folds=3)
    assert found.accuracy.value == 1.0
    assert found.accuracy.n == 48


def test_the_same_seed_finds_the_same():
    pairs = pairs_of(answers(50, (1.0, 0.0, 0.0), noise=0.5))
    first, second = (search_weights(pairs, trials=100, seed=3) for _ in range(2))
    assert (first.best, first.accuracy, first.folds) == (second.best, second.accuracy, second.folds)


def test_weights_found_on_pairs_held_out_are_measured_on_the_others_alone():
    # of the first questions the better answer has more core, of all others less
    rated = answers(100, (1.0, 0.0, 0.0)) + [
        a.model_copy(update={"question": f"other {a.question}"}) for a in answers(300, (-1.0, 0.0, 0.0), seed=1)
    ]
    pairs = pairs_of(rated)
    found = search_weights(pairs, sampler=WeightsSampler(name="grid"), held_out=100).held_out
    assert found.n == 100
    assert found.accuracy.n == len(pairs) - 100
    assert found.weights.core < 0  # most of those drawn are of the others
    assert found.accuracy.value == pytest.approx(0.75, abs=0.06)
    assert search_weights(pairs).held_out is None
    with pytest.raises(InputError, match="of 4 pairs none is left beside 4 held out"):
        search_weights(pairs_of(answers(4, (1.0, 0.0, 0.0))), folds=2, held_out=4)


def test_too_few_questions_are_refused():
    with pytest.raises(InputError, match="4 questions cannot be parted into 5 folds"):
        search_weights(pairs_of(answers(4, (1.0, 0.5, -1.0))))
    with pytest.raises(InputError, match="no question has two answers"):
        pairs_of([rated_answer("q", "a", 1.0, 1.0, 1.0, 0.0)])


def test_ratios_are_said_with_core_as_one():
    assert str(Weights(0.4, 0.2, -0.4)) == "1 : 0.5 : -1"
    assert str(Weights(0.0, 0.5, -1.0)) == "0 : 0.5 : -1"


# where rated answers come from


def covers(call):
    """A judge to whom every sub-question is answered by a sentence that says its word."""
    prompt = call.request["messages"][-1]["content"]

    def given(field):
        return json.loads(prompt.partition(f"[[ ## {field} ## ]]\n")[2].partition("\n")[0])

    match call.wanted:
        case ("sub_questions",):
            return {"sub_questions": [f"What about the {w}?" for w in WORDS]}
        case ("types",):
            return {"types": {k: TYPES[n % 3] for n, k in enumerate(given("sub_questions"))}}
        case ("verdicts",):
            sentences = given("sentences")
            return {
                "verdicts": {
                    k: next((int(n) for n, s in sentences.items() if asked.split()[-1][:-1] in s.split()), 0)
                    for k, asked in given("sub_questions").items()
                }
            }
        case ("verdict",):
            return {"verdict": "first"}
    return None


WORDS = "salt yeast flour water heat time steam crust crumb gluten sugar milk oven bowl hand".split()
TYPES = ("core", "background", "follow-up")


def compared(n: int) -> dict:
    """People prefer the answer that speaks of a core thing to the one that speaks of a follow-up one."""
    good, bad = f"Mind the {WORDS[0]} and {WORDS[3]} .", f"Mind the {WORDS[2]} ."
    first, second = (good, bad) if n % 2 else (bad, good)
    return {"question": f"Why does bread {n} rise?", "first": first, "second": second, "preference": 1 if n % 2 else -1}


def test_pairs_of_ones_own_are_judged_once_and_searched_without_an_lm(server, tmp_path):
    server.reply = covers
    file = write_jsonl(tmp_path / "pairs.jsonl", *(compared(n) for n in range(12)), {**compared(99), "preference": 0})
    config = WeightsConfig.model_validate(
        {
            "kind": "weights",
            "dataset": {"name": "pairs", "path": file},
            "scorer": {"spec": "vllm:stub", "api_base": server.api_base},
            "trials": 200,
            "tracking": {"uri": new_store(tmp_path / "mlflow")},
        }
    )
    result = run_weights(config, tmp_path / "out")
    assert result.failed == 0
    assert result.answers == 24
    assert result.searched.accuracy.value == 1.0
    assert result.searched.best.core > result.searched.best.follow_up
    assert result.searched.baselines["LM judge"].value == 0.5  # it always likes the first: a tie in both orders
    assert json.loads((tmp_path / "out" / "weights.json").read_text())["pairs"] == 12
    assert "cross-validated" in "\n".join(result.lines())

    asked = len(server.calls)
    again = config.model_copy(update={"dataset": None, "rated": tmp_path / "out" / "rated.jsonl"})
    assert run_weights(again, tmp_path / "again").searched.best == result.searched.best
    run_weights(config, tmp_path / "out")
    assert len(server.calls) == asked

    import mlflow

    runs = mlflow.search_runs(output_format="list", search_all_experiments=True)
    assert len(runs) == 3
    tracked = runs[-1]
    assert tracked.data.metrics["accuracy"] == 1.0
    trials = mlflow.artifacts.load_text(f"{tracked.info.artifact_uri}/trials.json")
    assert len(json.loads(trials)["data"]) == 200
    assert server.api_base not in json.dumps(tracked.data.params)


def test_answers_are_read_from_the_columns_that_fields_name(server, tmp_path):
    server.reply = covers
    rows = ({{"first": "a", "second": "b"}.get(n, n): value for n, value in compared(k).items()} for k in range(6))
    file = write_jsonl(tmp_path / "pairs.jsonl", *rows)
    config = WeightsConfig.model_validate(
        {
            "kind": "weights",
            "dataset": {"name": "pairs", "path": file, "fields": {"first": "a", "second": "b"}},
            "scorer": {"spec": "vllm:stub", "api_base": server.api_base},
            "lm_judge": False,
            "trials": 20,
            "tracking": NO_TRACKING,
        }
    )
    assert run_weights(config, tmp_path / "out").answers == 12


def test_labels_of_references_can_be_the_target(server, tmp_path):
    server.reply = covers
    rows = [
        {
            "id": f"q{n}",
            "question": f"Why does bread {n} rise?",
            "references": [
                {"text": f"The {WORDS[0]} .", "label": 3},
                {"text": "Who knows .", "label": 2},
                {"text": f"The {WORDS[2]} .", "label": 1},
            ],
        }
        for n in range(6)
    ]
    config = WeightsConfig.model_validate(
        {
            "kind": "weights",
            "dataset": {"name": "file", "path": write_jsonl(tmp_path / "rows.jsonl", *rows)},
            "scorer": {"spec": "vllm:stub", "api_base": server.api_base},
            "folds": 3,
            "trials": 200,
            "tracking": NO_TRACKING,
        }
    )
    result = run_weights(config, tmp_path / "out")
    assert result.searched.n == 18
    assert result.searched.accuracy.value == 1.0
    assert "LM judge" not in result.searched.baselines
    assert {a.target for a in read_rated(tmp_path / "out" / "rated.jsonl")} == {1.0, 2.0, 3.0}


def test_ranks_of_runs_can_be_the_target_and_no_lm_is_asked(tmp_path):
    luck = random.Random(1)
    folders = []
    for name in ("rag", "typed_rag"):
        questions = []
        for n in range(20):
            core, follow_up = luck.random(), luck.random()
            made = question(n, {"expected_rank": 2.5 - core + follow_up})
            coverage = MetricResult(0.5, measures={"core": core, "background": 0.5, "follow_up": follow_up})
            questions.append(made.__class__(**{**{f: getattr(made, f) for f in made.__dataclass_fields__},
                                               "metrics": {**made.metrics, "coverage": coverage}}))  # fmt: skip
        folders.append(write_run(run(name, *questions), tmp_path / name))
    config = WeightsConfig.model_validate(
        {"kind": "weights", "runs": folders, "target": "linkage/expected_rank", "tracking": NO_TRACKING, "trials": 300}
    )
    found = run_weights(config, tmp_path / "out").searched
    assert found.n == 20
    assert found.best.follow_up / found.best.core == pytest.approx(-1, abs=0.35)
    assert found.accuracy.value > 0.85
    with pytest.raises(InputError, match="no run has measured coverage and linkage/mpr"):
        run_weights(config.model_copy(update={"target": "linkage/mpr"}), tmp_path / "out")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "name a dataset, runs or a file"),
        ({"rated": "x.jsonl", "runs": ["a"], "target": "linkage/mrr"}, "name a dataset, runs or a file"),
        ({"runs": ["a", "b"]}, "runs have a target"),
        ({"rated": "x.jsonl", "target": "linkage/mrr"}, "runs have a target"),
    ],
)
def test_one_source_is_named(given, problem):
    with pytest.raises(ValueError, match=problem):
        WeightsConfig.model_validate({"kind": "weights", **given})


def test_a_row_that_does_not_fit_is_named(tmp_path):
    file = write_jsonl(tmp_path / "rated.jsonl", {"question": "q", "core": 1, "target": 1}, {"question": "q"})
    with pytest.raises(InputError, match="line 2 cannot be used: target"):
        read_rated(file)

import json
import re
from collections import Counter

import optuna
import pytest
from optuna.trial import TrialState

from tests.optimizers.sweep.conftest import LOOSE, long_where_few, points
from tests.programs.artifact.test_compiled import compiled
from typedrag.core.errors import InputError, LMUnavailable
from typedrag.experiments.resources import Resources
from typedrag.experiments.results import read_run
from typedrag.optimizers.sweep import SweepConfig
from typedrag.optimizers.sweep.report import sweep_page
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.study import STUDY, answered, requeue, sum_spending
from typedrag.programs import Options
from typedrag.programs.artifact import named_predictors
from typedrag.programs.compiled import save_compiled

ALL = sorted((k, words) for k in (1, 3, 5) for words in (50, 200))


def spent(swept):
    """The LM calls of all trials, those that were left to others among them."""
    return sum_spending(*swept.trials()).usage.lm_calls


def complete(swept):
    return swept.trials(TrialState.COMPLETE)


def test_a_grid_is_gone_through_once_beginning_with_the_program_as_it_is(sweep, server):
    swept = sweep()
    assert swept.stopped == ""
    assert points(swept) == ALL
    assert complete(swept)[0].params == {"top_k": 5, "passage_words": 200}
    assert all(answered(t) == 6 for t in complete(swept))


@pytest.mark.parametrize(
    ("program", "knobs", "point"),
    [
        ("rag", {"retriever": ["hybrid:0.3", "bm25"]}, {"retriever": "bm25"}),
        ("rag", {"reranker": ["cross-encoder", "none"]}, {"reranker": "none"}),
        ("preqrag", {"retriever": ["bm25", "auto"]}, {"retriever": "auto"}),
        ("compiled", {"reranker": ["none", "bi-encoder"]}, {"reranker": "bi-encoder"}),
        ("compiled", {"bm25.b": None, "hybrid.weight": None}, {"bm25.b": 0.9, "hybrid.weight": 0.3}),
        ("compiled", {"bm25.k1": None}, {"bm25.k1": 0.9}),  # the index's
        ("strange", {"reranker": ["none", "bi-encoder"]}, None),
    ],
)
def test_the_point_of_the_program_as_it_is_says_what_it_uses(settings, tmp_path, program, knobs, point):
    saved = {"retriever": "hybrid:0.3", "bm25": {"b": 0.9}}
    save_compiled(compiled("rag"), tmp_path / "compiled", reranker="bi-encoder", **saved)
    save_compiled(compiled("rag"), tmp_path / "strange", reranker="cross-encoder:a/stranger", **saved)
    place = str(tmp_path / program) if (tmp_path / program).exists() else program
    config = SweepConfig.model_validate(settings(program={"program": place}, knobs=knobs))
    assert SweepResources(config, tmp_path / "sweep").first_point == point


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp"])
def test_every_sampler_makes_as_many_different_trials_as_are_wanted(sweep, sampler):
    sampler = {"name": sampler, "startup": 2}
    swept = sweep(sampler=sampler, stop={"trials": 6}, dataset={"limit": 2}, metrics=["length"], scorer=None)
    assert points(swept) == ALL


def test_trials_that_ask_the_same_pay_once(sweep, server):
    swept = sweep(knobs={"rerank_everywhere": [True, False]})
    assert len(complete(swept)) == 2  # without a reranker the two ask the same
    assert len(server.asked("answer")) == 6
    assert len(server.asked("is_good")) == 6
    first, second = complete(swept)
    assert first.user_attrs["spent"]["lm_calls"] == 12
    assert second.user_attrs["spent"]["lm_calls"] == 0
    swept.study.add_trial(optuna.trial.create_trial(state=TrialState.FAIL, user_attrs={"duplicate": True}))
    page = sweep_page(swept, "typedrag sweep report")
    assert "trials: 2 complete, 1 skipped as repeated;" in page
    assert re.search(r"^\| 2 +\| skipped as repeated", page, re.MULTILINE)
    assert "All complete trials have the same length/score: it tells nothing of what mattered." in page
    assert "What mattered" not in page


def test_several_objectives_give_a_front(sweep, server):
    server.reply = long_where_few
    for least, best in (("tiny/score", [1]), ("length/share", [1, 3, 5])):
        objectives = ["length/score", {"measure": least, "direction": "minimize"}]
        swept = sweep(least[:4], program=LOOSE, knobs={"top_k": [1, 3, 5]}, objectives=objectives)
        assert [t.params["top_k"] for t in swept.front] == best


def test_a_trial_outside_the_constraints_is_not_the_best(sweep, server):
    server.reply = long_where_few
    limits = [{"measure": "length/score", "at_most": 0.4}]
    swept = sweep(program=LOOSE, constraints=limits)
    best = swept.front[0]
    assert best.params["top_k"] == 3
    assert best.constraints["length/score at most 0.4"] <= 0
    assert {t.params["top_k"] for t in complete(swept) if t.constraints["length/score at most 0.4"] > 0} == {1}


def test_trials_that_fall_behind_answer_only_the_first_questions(sweep, server):
    server.reply = long_where_few
    pruning = {"enabled": True, "first": 3}
    swept = sweep(program=LOOSE, knobs={"top_k": list(range(1, 8))}, pruning=pruning, dataset={"limit": 12})
    by_state = Counter(t.state for t in swept.trials())
    assert by_state[TrialState.PRUNED] >= 3
    assert swept.front[0].params == {"top_k": 1}
    for trial in swept.trials(TrialState.PRUNED):
        assert answered(trial) in (3, 6)
        assert "behind others" in trial.user_attrs["problem"]
    assert all(answered(t) == 12 for t in complete(swept))


def test_all_trials_answer_the_same_questions_in_the_same_order(sweep, server, tmp_path):
    server.reply = long_where_few
    pruning = {"enabled": True, "first": 2}
    sweep(program=LOOSE, knobs={"top_k": [1, 3, 5, 7]}, pruning=pruning, dataset={"limit": 8})
    orders = [[q.id for q in read_run(f).questions] for f in (tmp_path / "sweep" / "trials").iterdir()]
    longest = max(orders, key=len)
    assert len({len(order) for order in orders}) > 1
    assert all(order == longest[: len(order)] for order in orders)


def test_a_trial_whose_answers_fail_is_pruned_and_the_sweep_goes_on(sweep, server):
    def reply(call):
        few = call.request["messages"][-1]["content"].count('"text"') == 1
        return (400, "too short") if few and "answer" in call.wanted else None

    server.reply = reply
    swept = sweep(knobs={"top_k": [1, 3]}, program=LOOSE, metrics=["tiny", "length"])
    [pruned] = swept.trials(TrialState.PRUNED)
    assert (pruned.params, [t.params for t in complete(swept)]) == ({"top_k": 1}, [{"top_k": 3}])
    assert "the LM refused the request" in pruned.user_attrs["problem"]


def test_a_point_that_cannot_be_built_is_pruned_with_its_reason(sweep, monkeypatch):
    build = Resources.program

    def some(parts, wanted):
        if wanted.options.get("top_k") == 3:
            raise InputError("three passages do not go with the rest", "Take one")
        return build(parts, wanted)

    monkeypatch.setattr(Resources, "program", some)
    swept = sweep(knobs={"top_k": [1, 3]}, dataset={"limit": 2})
    [pruned] = swept.trials(TrialState.PRUNED)
    assert (pruned.params, len(complete(swept))) == ({"top_k": 3}, 1)
    assert "three passages do not go with the rest" in pruned.user_attrs["problem"]


def test_the_optimizer_is_a_knob_and_compiles_once(sweep, server, tmp_path):
    given = {
        "program": {"program": "direct_lm"},
        "knobs": {"optimizer": ["none", "bootstrap", "rule-search"], "lm.temperature": [0.0, 0.5]},
        "compile": {"optimizers": {"bootstrap": {}, "rule-search": {"rules": []}}, "metrics": ["length"]},
        "dataset": {"split": "validation", "limit": 2},
        "metrics": ["length"],
        "scorer": None,
    }
    swept = sweep(**given)
    assert {t.params["optimizer"] for t in complete(swept)} == {"none", "bootstrap"}
    assert (tmp_path / "sweep" / "compiled" / "bootstrap" / "program" / "program.json").is_file()
    for trial in swept.trials(TrialState.PRUNED):
        assert "no rule is given" in trial.user_attrs["problem"]
    shown = [call for call in server.calls if len(call.request["messages"]) > 2]
    assert shown  # the compiled program has demonstrations
    assert spent(swept) == len(server.calls)  # those of the compiles are of the trials that came first


def test_limits_stop_a_sweep_that_the_same_command_continues(sweep, server):
    swept = sweep(stop={"tokens": 1500})
    assert "tokens are spent of the 1,500 allowed" in swept.stopped
    assert len(points(swept)) < 6
    assert spent(swept) == len(server.calls)
    asked = Counter(server.calls)
    again = sweep(stop={"tokens": 1500})
    assert again.stopped
    assert Counter(server.calls) == asked
    done = sweep()
    assert (done.stopped, points(done)) == ("", ALL)
    assert spent(done) == len(server.calls)
    assert max(Counter((c.question, c.wanted, json.dumps(c.request)) for c in server.calls).values()) == 1


def test_limits_hold_within_a_trial_which_goes_on(sweep, server):
    given = {"metrics": ["length"], "scorer": None, "knobs": {"top_k": [1]}, "threads": 1}
    for stop, reason in (({"tokens": 400}, "440 tokens are spent of the 400"), ({"minutes": 1e-6}, "have passed")):
        swept = sweep(stop=stop, **given)
        assert reason in swept.stopped and not complete(swept)
        assert len(server.calls) == 4
    assert len(complete(sweep(**given))) == 1
    assert len(server.calls) == 6


def test_what_a_trial_had_spent_before_it_was_taken_up_again_counts_once(sweep, server):
    stop = {"tokens": 400}
    given = {"pruning": {"enabled": True, "first": 2}, "metrics": ["length"], "scorer": None}
    begun = sweep(stop=stop, **given)
    assert begun.trials(TrialState.FAIL)
    done = sweep(**given)
    assert done.stopped == ""
    assert spent(done) == len(server.calls)


def test_a_worker_whose_trial_was_taken_up_goes_on(sweep, server, tmp_path):
    def reply(call):
        if any(call is third for third in server.calls[2:3]):  # however many have begun since
            study = optuna.load_study(study_name="sweep", storage=f"sqlite:///{tmp_path / 'sweep' / STUDY}")
            [running] = study.get_trials(states=(TrialState.RUNNING,))
            study.tell(running.number, state=TrialState.FAIL)  # as a worker does that takes this one for dead
            requeue(study, running)

    server.reply = reply
    swept = sweep()
    assert (swept.stopped, points(swept)) == ("", ALL)
    assert max(Counter(json.dumps(c.request) for c in server.calls).values()) == 1


def test_no_improvement_stops_it(sweep, server):
    given = {"knobs": {"top_k": list(range(1, 9))}, "dataset": {"limit": 2}}
    swept = sweep(objectives=[{"measure": "cost/tokens"}], stop={"no_improvement": 3}, **given)
    assert swept.stopped == ""  # all cost the same, so all are the best
    server.reply = long_where_few
    swept = sweep("other", program=LOOSE, stop={"no_improvement": 2}, **given)
    assert "none of the last 2 trials is better" in swept.stopped
    assert len(points(swept)) < 8


def test_a_question_that_an_lm_always_fails_at_holds_up_no_trial(sweep, server):
    bad = []

    def reply(call):
        bad[:] = bad or [call.question]
        return "<html>Login please</html>" if call.question == bad[0] else None

    server.reply = reply
    swept = sweep()
    assert points(swept) == ALL
    assert {len(t.user_attrs["values"]["cost/tokens"]) for t in complete(swept)} == {6}


def test_an_lm_that_is_gone_loses_nothing(sweep, server):
    refused = []

    def reply(call):
        if len(server.calls) <= 20:
            return None
        refused.append(call)
        return 401, "wrong key"

    server.reply = reply
    with pytest.raises(LMUnavailable):
        sweep()
    server.reply = lambda call: None
    swept = sweep()
    assert points(swept) == ALL
    assert spent(swept) == len(server.calls) - len(refused)
    assert sum(n - 1 for n in Counter(json.dumps(c.request) for c in server.calls).values()) <= 4  # those that failed


def test_a_study_of_another_sweep_is_not_joined(sweep):
    sweep(stop={"trials": 1}, dataset={"limit": 6})
    changes = {
        "knobs": {"knobs": {"top_k": [1, 2]}},
        "objectives": {"objectives": ["tiny/score"]},
        "questions": {"dataset": {"limit": 5}},
        "options": {"program": {"options": {"retries": 0}}},
        "sampler": {"sampler": {"seed": 7}},
        "lm_settings": {"lm": {"max_tokens": 99}},
    }
    for said, change in changes.items():
        with pytest.raises(InputError, match=f"belongs to a run with another .*{said}"):
            sweep(**change)


def test_a_study_is_not_joined_once_the_folder_that_a_knob_names_holds_something_else(sweep, settings, tmp_path):
    program, reranker = tmp_path / "program", tmp_path / "reranker"
    reranker.mkdir()

    def save(top_k=3, temperature=0.5, weights="old"):
        saved = compiled("rag", Options(top_k=top_k))
        for predictor in named_predictors(saved).values():
            predictor.config = {"temperature": temperature}
        save_compiled(saved, program)
        (reranker / "weights").write_text(weights)

    knobs = {"program": ["rag", str(program)], "reranker": ["none", f"cross-encoder:{reranker}"]}
    given = {"knobs": knobs, "stop": {"trials": 1}, "dataset": {"limit": 2}, "metrics": ["length"], "scorer": None}
    save()
    sweep(**given)
    changes = [({"top_k": 1}, "programs"), ({"temperature": 0.9}, "programs"), ({"weights": "new"}, "rerankers")]
    for changed, said in changes:
        save(**changed)
        with pytest.raises(InputError, match=f"belongs to a run with another {said}"):
            sweep(**given)
    save()  # on another day, yet the same
    assert points(sweep(**given)) == [("rag", "none")]

    by_name = SweepConfig.model_validate(settings(knobs={"program": ["rag", "direct_lm"], "reranker": None}))
    assert not SweepResources(by_name, tmp_path / "named").identity().keys() & {"programs", "rerankers"}


COMPILED = {
    "knobs": {"optimizer": ["dspy:COPRO"]},
    "compile": {"optimizers": {"dspy:COPRO": {}}, "metrics": ["length"]},
}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"knobs": {"topk": None}}, "no knob is called 'topk'"),
        ({"knobs": {"program": None}}, "knob 'program' has no values of its own"),
        ({"knobs": {"top_k": [0]}}, "option top_k cannot be '0'"),
        ({"knobs": {"hybrid.weight": ["a"]}}, "'hybrid:a' is no retriever"),
        ({"knobs": {"retriever": ["bm25", "bogus"]}}, "'bogus' is no retriever"),
        ({"knobs": {"reranker": ["none", "bogus"]}}, "'bogus' is no reranker"),
        ({"knobs": {"passage_words": [50], "top_k": [1, 3], "relevance": ["none", "b"]}}, "cannot be 'b'"),
        ({"knobs": {"program": ["typed_rag", "rag"], "max_sub_queries": [1, 2]}}, "no option 'max_sub_queries'"),
        ({"knobs": {"reason.combine": ["pool", "aggregate"]}}, "program 'rag' has no option 'reason'"),
        ({"objectives": ["cost/token"]}, "there is no cost 'cost/token'"),
        ({"constraints": [{"measure": "cost/dollars", "at_most": 1}]}, "there is no cost 'cost/dollars'"),
        ({"knobs": {"reranker": None, "reason.combine": ["both"]}}, "option reason.combine cannot be 'both'"),
        ({"knobs": {"optimizer": ["none", "mipro"]}}, "optimizer 'mipro' is not among the optimizers of 'compile'"),
        ({"knobs": {"bm25.b": None}}, "too many values for a grid"),
        ({"objectives": ["linkage/mrr"]}, "measure 'linkage/mrr' is of no metric"),
        ({"dataset": {"split": "all"}}, "over the split all would see questions of the split test"),
        ({"held_out": {"split": "train"}}, "over the split train would see questions of the split train"),
        ({"held_out": {"split": "tset"}}, "no split is called 'tset'"),
        ({**COMPILED, "held_out": {"split": "validation"}}, "what is compiled sees the split validation"),
        ({**COMPILED, "dataset": {"split": "test"}, "held_out": {"split": "train"}}, "compiled sees the split train"),
        ({"storage": "sqlite:///study.db"}, "storage is a PostgreSQL database"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(sweep, server, given, problem):
    with pytest.raises(InputError, match=problem):
        sweep(**given)
    assert not server.calls


def test_a_measure_that_its_metric_does_not_give_is_refused_after_the_first_questions(sweep, server):
    given = {"constraints": [{"measure": "length/shaer", "at_most": 1}], "pruning": {"enabled": True, "first": 2}}
    with pytest.raises(InputError, match=r"metric 'length' gives .* no measure 'shaer'.*length/score, length/share"):
        sweep(**given)
    assert len(server.asked("answer")) == 2


def test_a_point_that_the_sampler_chooses_again_is_made_once(sweep):
    """Six points and a sampler that knows nothing of them: it is bound to choose some twice before it has tried all."""
    swept = sweep(sampler={"name": "random", "seed": 3}, stop={"trials": 50}, dataset={"limit": 2})
    assert any("duplicate" in t.user_attrs for t in swept.trials())
    assert (swept.stopped, points(swept)) == ("", ALL)

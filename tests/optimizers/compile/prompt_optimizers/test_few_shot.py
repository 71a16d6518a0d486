from collections import Counter

import pytest

from tests.optimizers.tiny import Engine, Goodness, Tiny, examples, request_for, tiny_lm
from typedrag.core.errors import StepFailed
from typedrag.lms.lm import use_lm
from typedrag.optimizers.compile.optimize import compile_module
from typedrag.optimizers.compile.prompt_optimizers import build_optimizer


def _kinds(predictor):
    return Counter("cat" if "cat" in demo.question else "dog" for demo in predictor.demos)


def test_each_type_gets_demonstrations_however_rare_it_is(tmp_path):
    """One dog in nine: DSPy would stop after four cats."""
    cats = [e for e in examples(80) if e.kind == "cat"]
    dogs = [e for e in examples(18) if e.kind == "dog"]
    request = request_for(tmp_path, Engine(), trainset=[*cats, *dogs])
    outcome = compile_module(request, build_optimizer("bootstrap", {"max_labeled_demos": 0}))
    classify, cat, dog = outcome.best.predictors()
    assert len(cat.demos) == len(dog.demos) == len(classify.demos) == 4
    assert _kinds(classify) == {"cat": 2, "dog": 2}  # reached by all types: in turn
    assert _kinds(cat) == {"cat": 4} and _kinds(dog) == {"dog": 4}


def test_examples_are_asked_at_once_and_none_besides(tmp_path):
    class Busy(Engine):
        at_once = most = 0

        def complete(self, request):
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            try:
                return super().complete(request)
            finally:
                self.at_once -= 1

    def compiled(folder, threads):
        engine = Busy(seconds=0.02)
        optimizer = build_optimizer("bootstrap", {"max_labeled_demos": 0, "validation_examples": 1})
        request = request_for(folder, engine, trainset=examples(40), threads=threads)
        return engine, [[d.toDict() for d in p.demos] for p in compile_module(request, optimizer).best.predictors()]

    alone, one_by_one = compiled(tmp_path / "a", 1)
    busy, at_once = compiled(tmp_path / "b", 8)
    assert at_once == one_by_one and any(at_once)
    assert sorted(busy.requests) == sorted(alone.requests)
    assert alone.most <= 2 < busy.most  # a question asks for two answers at once


@pytest.mark.parametrize(("threshold", "least"), [(None, 0.5), (1.0, 1.0)])
def test_only_runs_that_are_good_enough_make_demonstrations(threshold, least, tmp_path):
    """By default as good as the base is on average, 0.375 here: one of two answers at least."""
    metric, options = Goodness(), {"metric_threshold": threshold, "max_labeled_demos": 0}
    request = request_for(tmp_path, Engine(), metric=metric, trainset=examples(40))
    outcome = compile_module(request, build_optimizer("bootstrap", options))
    student = Tiny()
    shown = {d.question.split(" Part")[0] for p in outcome.best.predictors()[1:] for d in p.demos}
    assert shown
    with use_lm(tiny_lm(Engine())):
        assert all(metric(None, student(question=question)).score >= least for question in shown)


def test_what_the_metric_cannot_judge_makes_no_demonstration(tmp_path):
    def fail(gold, pred, trace):
        if "cat" in gold.question:
            raise StepFailed("rank", "the judge's reply could not be read")

    request = request_for(tmp_path, Engine(), metric=Goodness(fail))
    outcome = compile_module(request, build_optimizer("bootstrap", {"max_labeled_demos": 0}))
    base, *_, last = outcome.candidates
    assert base.unjudged == last.unjudged == 4
    program = outcome.best
    assert program.answerers["cat"].demos == [] and program.answerers["dog"].demos
    assert base.score == base.base

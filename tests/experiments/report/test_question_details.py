import json
from dataclasses import replace

import dspy
import pytest

from tests.experiments.runs import full_run, question, run
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Passage, Reference, SubQuestion
from typedrag.experiments.report import question_details, render_report
from typedrag.experiments.results import MetricResult
from typedrag.metrics.judges.linkage import Convention, Linkage
from typedrag.metrics.metric import Metric
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage
from typedrag.sub_questions.coverage_judge import AnyCoverageJudge, Coverage


class YeastJudge(AnyCoverageJudge):
    """A text covers what is asked about what it names."""

    def forward(self, text: str, sub_questions: list[str]) -> dspy.Prediction:
        covered = ["yeast" in text and "yeast" in asked for asked in sub_questions]
        return dspy.Prediction(verdicts=[Coverage(c, "yeast", 0.5) if c else Coverage(False) for c in covered])


class SecondPlace(dspy.Module):
    convention = Convention.TYPED_RAG

    def forward(self, **inputs: object) -> dspy.Prediction:
        return dspy.Prediction(rank=2, probabilities={1: 0.25, 2: 0.75})


@pytest.fixture
def measured() -> dict[str, MetricResult]:
    """What the metrics themselves say of an answer."""
    example = dspy.Example(
        id="q0",
        question="Why does bread rise?",
        references=(Reference("Gas from yeast.", 2), Reference("Flour.", 0)),
        sub_questions=(
            SubQuestion("What does yeast do?", SubQuestionType.CORE),
            SubQuestion("Who ate the first?", SubQuestionType.FOLLOW_UP),
        ),
    )
    passages = (Passage("p1", "Of yeast: it eats sugar."), Passage("p2", "Of ovens."))
    prediction = dspy.Prediction(answer="Because of yeast.", passages=passages)
    scorer = dspy.LM("openai/never-asked", api_key="none")
    metrics: list[Metric] = [SubQuestionCoverage(scorer, judge=YeastJudge()), Linkage(scorer, judge=SecondPlace())]
    results = {}
    for metric in metrics:
        scored = metric.score(example, prediction)
        details = json.loads(json.dumps(scored.details))  # as a run keeps them
        results[metric.name] = MetricResult(scored.score, scored.feedback, scored.measures, details)
    return results


def test_a_report_is_made_of_what_metrics_say(measured):
    runs = [run(name, replace(question(0), metrics=measured)) for name in ("rag", "typed_rag")]
    page = render_report(runs)
    assert 'id="coverage"' in page
    assert "random ranking" in page
    assert ">0.750<" in page  # the chance level among two references: (1 + 1/2) / 2


def test_questions_are_in_the_order_they_are_met_with_a_place_for_each_run():
    rag, typed = run("rag", question(0), question(2)), run("typed_rag", question(1), question(2), question(0))
    details = question_details([rag, typed], ["rag", "typed_rag"])
    assert [q["id"] for q in details["questions"]] == ["q0", "q2", "q1"]
    assert [[r is not None for r in q["results"]] for q in details["questions"]] == [
        [True, True], [True, True], [False, True]
    ]  # fmt: skip
    assert details["questions"][2]["values"]["cost/tokens"] == [None, 100.0]


def test_a_passage_is_kept_once_and_others_of_its_id_are_kept_too():
    one = full_run("rag", 3)
    other = replace(
        one,
        questions=tuple(
            replace(q, answer=replace(q.answer, passages=(*q.answer.passages[:4], Passage("p0-0", "Another text."))))
            for q in one.questions
            if q.answer
        ),
    )
    passages = question_details([one, other], ["a", "b"])["passages"]
    assert len(passages) == 5 * len(one.questions) + 1
    assert sum(p["id"] == "p0-0" for p in passages) == 2

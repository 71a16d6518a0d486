from collections import Counter

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.scripted_judge import scored
from typedrag.core.errors import NotMeasurable
from typedrag.core.question_types import QuestionType
from typedrag.metrics import QueryMatch, build_metric
from typedrag.metrics.labels import confusion, macro_f1, query_match
from typedrag.metrics.metric import PredictorCall, Scored
from typedrag.signatures.fields import NextQuestion, Parts
from typedrag.signatures.roles import Role

types = st.sampled_from(QuestionType)
pairs = st.lists(st.tuples(types, types), min_size=1, max_size=30)


@settings(max_examples=40)
@given(pairs, st.randoms())
def test_all_follow_from_the_confusion_table(labels: list[tuple[QuestionType, QuestionType]], random) -> None:
    actual, given_ = zip(*labels, strict=True)
    table = confusion(actual, given_)
    counts = {
        (r, g): n
        for r, row in zip(table.labels, table.counts, strict=True)
        for g, n in zip(table.labels, row, strict=True)
    }
    assert {k: n for k, n in counts.items() if n} == Counter((str(a), str(g)) for a, g in labels)
    f1 = [2 * counts[t, t] / (actual.count(t) + given_.count(t)) for t in table.labels]
    assert macro_f1(actual, given_) == pytest.approx(sum(f1) / len(f1))
    shuffled = zip(*random.sample(labels, len(labels)), strict=True)
    assert macro_f1(*shuffled) == pytest.approx(macro_f1(actual, given_))
    assert sum(n for _, _, n in table.mistakes()) == sum(a != g for a, g in labels)


def _score(actual: QuestionType | None, given_: QuestionType | None) -> Scored:
    example = dspy.Example(question="q?", question_type=actual)
    return scored(build_metric("question-type"), example, dspy.Prediction(answer="", question_type=given_))


def test_the_metric_over_many_answers() -> None:
    reason, debate = QuestionType.REASON, QuestionType.DEBATE
    found = [_score(reason, reason), _score(debate, reason), _score(reason, reason)]
    assert [one.score for one in found] == [1, 0, 1]
    assert found[1].details == {"actual": "debate", "given": "reason"} and "taken for reason" in found[1].feedback
    metric = build_metric("question-type")
    assert metric.summarize(found) == pytest.approx({"accuracy": 2 / 3, "macro_f1": 0.4})
    assert metric.summarize([]) == {}
    sides = ([one.details[side] for one in found] for side in ("actual", "given"))
    assert confusion(*sides).mistakes() == [("debate", "reason", 1)]


def test_feedback_tells_confused_types_apart_and_is_for_who_names_them() -> None:
    found = _score(QuestionType.DEBATE, QuestionType.REASON)
    assert "The question type is debate, taken for reason." in found.feedback
    for question_type in (QuestionType.DEBATE, QuestionType.REASON):
        assert question_type.definition in found.feedback and question_type.example in found.feedback
    metric, nothing = build_metric("question-type"), (dspy.Example(), dspy.Prediction())
    classifier = PredictorCall(Role.CLASSIFIER, outputs={"question_type": QuestionType.REASON})
    assert metric.predictor_feedback(classifier, *nothing, found) == found.feedback
    assert metric.predictor_feedback(PredictorCall(Role.ANSWERER), *nothing, found) == ""


def test_labels_of_any_field_can_be_measured() -> None:
    metric = build_metric("label", field="route", definitions={"direct": "no passage is needed"})
    example = dspy.Example(question="q?", route="direct")
    found = metric(example, dspy.Prediction(route="compound"))
    assert found.score == 0 and found.details == {"actual": "direct", "given": "compound"}
    assert found.feedback == "The route is direct, taken for compound. direct: no passage is needed."
    assert metric(example, dspy.Prediction(route="direct")).score == 1
    for wanted, given_ in (({}, {"route": "direct"}), ({"route": "direct"}, {})):
        with pytest.raises(NotMeasurable, match="route"):
            metric(dspy.Example(question="q?", **wanted), dspy.Prediction(**given_))
    with pytest.raises(NotMeasurable):
        metric.require(dspy.Example(question="q?"))


@pytest.mark.parametrize(
    ("written", "expected", "value"),
    [
        (["What is she known for?", "When did she move?"], ["When did she move?", "What is she known for?"], 1),
        (["x y z", "y"], ["y", "y z"], (0.8 + 1) / 2),  # in their order they would be worth (0.5 + 2/3) / 2
        (["where is it"], ["where is it", "who made it", "when"], 1 / 3),
        (["where is it", "more", "and more"], ["where is it"], 1 / 3),
        ([], ["where"], 0),
    ],
)
def test_queries_are_paired_for_the_highest_sum_and_those_without_a_partner_count(written, expected, value):
    assert query_match(written, expected) == pytest.approx(value)


def test_a_query_or_a_list_of_them_in_the_types_of_the_signatures():
    wanted = dspy.Example(sub_queries=Parts(["Who is he?", "Where is he?"]))
    assert QueryMatch()(wanted, dspy.Prediction(sub_queries=["Where is he?", "Who is he?"])).score == 1
    one = build_metric("query-match", field="query")
    scored = one(dspy.Example(query=NextQuestion("Who is he?")), dspy.Prediction(query=NextQuestion("Who was he?")))
    assert scored.measures == {"query_match": pytest.approx(2 / 3)}
    assert "«Who is he?»" in scored.feedback and "«Who was he?»" in scored.feedback
    with pytest.raises(NotMeasurable):
        one(dspy.Example(question="x"), dspy.Prediction(query="y"))
    with pytest.raises(NotMeasurable):
        one(dspy.Example(query="x"), dspy.Prediction())


@pytest.mark.parametrize("labels", [([], []), (["core"], [])])
def test_labels_that_do_not_compare(labels: tuple[list[str], list[str]]) -> None:
    for measure in (macro_f1, confusion):
        with pytest.raises(ValueError, match="do not compare"):
            measure(*labels)

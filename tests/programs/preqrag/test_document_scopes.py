import pytest

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError
from typedrag.core.question_types import DocumentScope
from typedrag.core.records import fallbacks, total_usage
from typedrag.lms.trace import collect_steps
from typedrag.programs import Options, PreQRAGOptions
from typedrag.programs.preqrag import build_scope_classifier, multi_document_cue

SINGLE = "What improvements are made to HDX for complex protein systems?"
MULTI = "How does Azure Firewall segment networks, and what are the compliance aspects of a managed HSM?"


def classify(question: str, classifier: str, retries: int = 0):
    with collect_steps() as steps:
        made = build_scope_classifier(Options(preqrag=PreQRAGOptions(classifier=classifier), retries=retries))(
            question=question
        )
    return made, steps


@pytest.mark.parametrize(
    ("question", "cue"),
    [
        # the examples of paper 3
        ("I'm developing new methods for protein analysis and wondering what specific technological improvements are "
         "being made to HDX methodology for complex protein systems?", ""),
        (MULTI, "joins two questions"),
        # one thing
        ("Why does bread rise?", ""),
        ("Why does bread rise?? ?", ""),
        ("What are the pros and cons of cricket?", ""),
        ("Are gin and most of the other spirits distilled twice?", ""),
        ("How many people lived in Rome between 100 and 200 AD?", ""),
        ("Which vitamins are in kale?", ""),
        ("heat pump noise at night", ""),
        ("Why does more than 5 cm of snow close the airport?", ""),
        # two
        ("What is yeast? And how long does it live?", "asks twice"),
        ("How do the views of Kant and Hume differ?", "compares"),
        ("Is it better to rent or to buy a flat?", "compares"),
        ("gas boiler vs heat pump", "compares"),
        ("Do cats sleep longer than dogs?", "compares"),
        ("What is the link between sleep and memory?", "joins two matters"),
        ("How do tides and also how do currents move sand?", "joins two questions"),
        ("What do both Stoics and Buddhists say about anger?", "joins two matters"),
        ("Is rowing worse for the back than swimming?", "compares"),
        ("Are cats or dogs the older pets?", "compares"),
        ("How did rents change in Berlin as opposed to Vienna?", "compares"),
        ("How much do teachers earn in Spain and in Italy?", "joins two matters"),
        ("How do tea and coffee each affect sleep?", "joins two matters"),
        ("What are the rules and traditions of cricket?", "joins two aspects"),
        ("causes and long-term effects of inflation", "joins two aspects"),
        ("What is known of the origin of the harp and the price of strings?", "joins two aspects"),
    ],
)  # fmt: skip
def test_the_rule_sees_what_the_wording_says(question, cue):
    assert multi_document_cue(question) == cue


def test_the_rule_asks_no_lm_and_says_why():
    with scripted() as engine:
        for question, scope, said in (
            (SINGLE, DocumentScope.SINGLE, "single-document"),
            (MULTI, DocumentScope.MULTI, "multi-document (it joins two questions)"),
        ):
            made, steps = classify(question, "rule")
            assert (made.scope, [step.output for step in steps]) == (scope, [said])
    assert engine.asked() == []


def test_the_lm_says_it():
    with scripted({s.ClassifyDocumentScope: {"scope": "multi-document"}}) as engine:
        made, steps = classify(SINGLE, "lm")
    assert made.scope is DocumentScope.MULTI and steps[0].usage.lm_calls == 1
    assert engine.asked() == ["ClassifyDocumentScope"]


@pytest.mark.parametrize(
    ("classifier", "question", "said", "scope", "asked"),
    [
        ("either", MULTI, "single-document", DocumentScope.MULTI, 0),
        ("either", SINGLE, "multi-document", DocumentScope.MULTI, 1),
        ("either", SINGLE, "single-document", DocumentScope.SINGLE, 1),
        ("both", SINGLE, "multi-document", DocumentScope.SINGLE, 0),
        ("both", MULTI, "multi-document", DocumentScope.MULTI, 1),
        ("both", MULTI, "single-document", DocumentScope.SINGLE, 1),
    ],
)
def test_rule_and_lm_are_combined_and_the_lm_is_asked_where_the_rule_leaves_it_open(
    classifier, question, said, scope, asked
):
    with scripted({s.ClassifyDocumentScope: {"scope": said}}) as engine:
        made, _ = classify(question, classifier)
    assert made.scope is scope and len(engine.asked()) == asked


@pytest.mark.parametrize("scope", DocumentScope)
def test_a_scope_is_forced(scope):
    for question in (SINGLE, MULTI):
        made, steps = classify(question, scope.value)
        assert made.scope is scope and [step.output for step in steps] == [scope]


def test_an_oracle_reads_the_label_of_the_question():
    for scope in DocumentScope:
        with use_context(labels={"subset": scope.value}):
            assert classify(SINGLE, "oracle")[0].scope is scope
    with pytest.raises(InputError, match="Evaluate it on a dataset with the subsets single-document and"):
        classify(SINGLE, "oracle")
    with use_context(labels={"subset": "squad"}), pytest.raises(InputError, match="subset 'squad' is no scope"):
        classify(SINGLE, "oracle")


@pytest.mark.parametrize("classifier", ["lm", "either"])
@pytest.mark.parametrize("reply", ["torn", {"scope": "several"}])
def test_where_the_lm_cannot_be_read_the_rule_decides(classifier, reply):
    with scripted({s.ClassifyDocumentScope: reply}):
        made, steps = classify(SINGLE, classifier, retries=1)
    assert made.scope is DocumentScope.SINGLE and fallbacks(steps).endswith("classified by rule")
    assert total_usage(steps).lm_calls == 2

import dspy
import pytest

from tests.scripted import scripted
from typedrag.core.errors import StepFailed
from typedrag.core.question_types import QuestionType
from typedrag.datasets import load_dataset
from typedrag.lms.trace import collect_steps
from typedrag.programs import Options, TypedRAG
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier, build_type_classifier
from typedrag.signatures import AnswerFromPassages
from typedrag.signatures.typed_rag import ClassifyQuestion

GERMAN = "Warum ist der Himmel blau?"
AS_REASON = {ClassifyQuestion: {"question_type": "reason"}}


@pytest.mark.parametrize("question", [GERMAN, "Pourquoi le ciel est-il bleu ?", "なぜパンは膨らむのですか？"])
def test_questions_in_other_languages_are_typed_by_the_lm_and_the_trace_says_so(question):
    classify = build_type_classifier(Options())
    with scripted(AS_REASON) as engine, collect_steps() as steps:
        assert classify(question=question).question_type is QuestionType.REASON
    assert engine.asked() == ["ClassifyQuestion"]
    assert [step.name for step in steps] == ["language", "classify"] and "not in English" in steps[0].output


def test_english_questions_are_typed_without_the_lm_and_as_before(shared_data):
    dataset = load_dataset("nf-cats", shared_data / "nf_cats", subset="valid")
    classify, linear = build_type_classifier(Options()), LinearTypeClassifier()
    with scripted({ClassifyQuestion: {"question_type": "debate"}}) as engine:
        same = sum(
            classify(question=e.question).question_type == linear(question=e.question).question_type
            for e in dataset.examples[::4]
        )
    assert len(engine.prompts) <= 2 and same >= len(dataset.examples[::4]) - 2


def test_without_an_lm_it_says_that_it_reads_english_alone():
    with pytest.raises(StepFailed, match="not in English"), dspy.context(lm=None):
        build_type_classifier(Options())(question=GERMAN)


def test_where_nobody_can_type_it_it_is_answered_the_evidence_based_way_and_said(sample_retriever):
    with scripted({ClassifyQuestion: "torn"}) as engine:
        answer = TypedRAG(sample_retriever, options=Options(retries=0))(
            question="Warum ist das Brot so fest? Auf Englisch: bread"
        )
    assert answer.question_type is QuestionType.EVIDENCE_BASED
    assert answer.answer == f"{AnswerFromPassages.__name__} says so." and engine.asked()[-1] == "AnswerFromPassages"
    assert answer.fallback.startswith("step 'classify' failed") and "taken as evidence-based" in answer.fallback

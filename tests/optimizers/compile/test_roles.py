from __future__ import annotations

import dspy

from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.ways import EACH_ANSWERED, PUBLISHED
from tests.scripted import scripted, signatures
from typedrag.core.question_types import QuestionType
from typedrag.optimizers.compile.targets import MODULES
from typedrag.optimizers.compile.teleprompters.candidates import read_call
from typedrag.programs import (
    HANRAG,
    AdaptiveRAG,
    CoverageDefinition,
    CoverageEndToEnd,
    CoverageRetrieval,
    CoverageSubQuestions,
    IRCoT,
    Options,
    PreQRAG,
    PreQRAGOptions,
    RAGFusion,
    RichRAG,
    TypedRAG,
)
from typedrag.signatures.roles import Role, module_name, signature_role


def trace_of(question: str, options: Options, question_type: str = "reason"):
    program = TypedRAG(WordRetriever(), options=options)
    with scripted({signatures.ClassifyQuestion: {"question_type": question_type}}), dspy.context(trace=[]):
        program(question=question)
        return {type_of(call): call for call in dspy.settings.trace}


def type_of(call) -> Role | None:
    return signature_role(call[0].signature)


def test_every_predictor_of_the_programs_has_a_role():
    for options in (Options(type_classifier="lm"), PUBLISHED):
        program = TypedRAG(WordRetriever(), options=options)
        assert all(signature_role(predictor.signature) for predictor in program.predictors())
    coverage = (CoverageDefinition, CoverageSubQuestions, CoverageRetrieval, CoverageEndToEnd)
    for cls in (RichRAG, RAGFusion, *coverage):
        assert all(signature_role(predictor.signature) for predictor in cls(WordRetriever()).predictors())
    for style in "ABCD":
        options = Options(preqrag=PreQRAGOptions(classifier="either", prompt_style=style, generation=2))
        roles = {signature_role(p.signature) for p in PreQRAG(WordRetriever(), options=options).predictors()}
        assert roles == {Role.CLASSIFIER, Role.SEARCHER, Role.ANSWERER, Role.COMBINER, Role.TELLER}
    for length in ("paragraphs", "phrase"):
        for kind in (HANRAG, AdaptiveRAG, IRCoT):
            program = kind(WordRetriever(), options=Options(answer_length=length))
            assert all(signature_role(predictor.signature) for predictor in program.predictors())


def test_compiling_leaves_roles_and_modules():
    declared = [value for value in vars(signatures).values() if isinstance(value, type) and hasattr(value, "fields")]
    assert len([signature for signature in declared if signature_role(signature)]) > 40
    for signature in declared:
        compiled = signature.with_instructions("Do it otherwise.")
        assert (signature_role(compiled), module_name(compiled)) == (signature_role(signature), module_name(signature))
        assert module_name(signature) in ("", *MODULES)
    assert signature_role(signatures.MediatePerspectives) is Role.COMBINER
    assert signature_role(signatures.PlaceAmongReferences) is Role.JUDGE
    for writes_what_is_searched_for in (signatures.DecomposeIntoSubQuestions, signatures.TypeSubQuestions):
        assert signature_role(writes_what_is_searched_for) is Role.SEARCHER
    assert signature_role(dspy.Signature("mood -> colour")) is None


def test_a_call_has_its_sources_and_what_it_wrote():
    options = Options(type_classifier="lm").model_copy(update={"reason": EACH_ANSWERED.reason})
    calls = trace_of("Why is homemade bread dense?", options)
    assert set(calls) == {Role.CLASSIFIER, Role.SEARCHER, Role.ANSWERER, Role.COMBINER}
    answerer = read_call("any name", [calls[Role.ANSWERER]])
    assert answerer.role is Role.ANSWERER and answerer.written == "AnswerSubQuery says so."
    assert (
        "Cold dough makes bread dense." in answerer.sources or "Too much flour makes bread heavy." in answerer.sources
    )
    combiner = read_call("any name", [calls[Role.COMBINER]])
    assert combiner.sources == ("AnswerSubQuery says so.",) * 2
    classifier = read_call("any name", [calls[Role.CLASSIFIER]])
    assert classifier.outputs["question_type"] is QuestionType.REASON and classifier.sources == ()
    searcher = read_call("any name", [calls[Role.SEARCHER]])
    assert searcher.question == "Why is homemade bread dense?" and "sub_queries" in searcher.outputs


def test_the_sides_of_a_debate_are_sources_too():
    calls = trace_of("Should pupils wear school uniforms?", Options(type_classifier="lm"), "debate")
    assert read_call("any", [calls[Role.COMBINER]]).sources == ("AnswerFromPerspective says so.",) * 2


def test_nothing_is_read_from_calls_that_are_not_known():
    assert read_call("any", None) is None and read_call("any", []) is None
    assert (
        read_call("any", [(dspy.Predict("mood -> colour"), {"mood": "blue"}, dspy.Prediction(colour="blue"))]) is None
    )

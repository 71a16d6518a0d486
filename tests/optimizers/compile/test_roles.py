import dspy

from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.ways import EACH_ANSWERED, PUBLISHED
from tests.scripted import scripted, signatures
from typedrag.core.question_types import QuestionType
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
from typedrag.signatures.roles import Role, signature_role


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

"""Programs as their papers have them, and what is told where that cannot be had."""

import json

import pytest
from click.testing import CliRunner

from tests.lm_server import lm_server
from tests.programs.passages import ASKING_PROGRAMS, Numbered
from tests.programs.ways import PUBLISHED
from tests.scripted import DEFAULTS, scripted
from tests.scripted import signatures as s
from typedrag.cli.ask import command as ask_command
from typedrag.cli.main import cli
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer, Answered, Passage
from typedrag.experiments.config import DatasetConfig, EvaluationConfig, ProgramConfig
from typedrag.experiments.resources import Resources
from typedrag.programs import Options, build_program, program_class
from typedrag.programs.loading import ProgramSource
from typedrag.programs.options import PRESETS
from typedrag.retrieval import build_index

SAMPLED = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 512}
EACH = ["AnswerPlainly", "AnswerPlainly"]
EXPERIENCE = "What are the best tips for cycling to work every day?"
FACTOID, REMARK = "What is the capital of France?", "Thanks a lot!"


def ask(question, replies=None, name="typed_rag", **options):
    retriever, options = Numbered(), PUBLISHED.model_copy(update=options)
    with scripted(replies) as engine:
        answer = Answer.from_prediction(build_program(name, retriever, options=options)(question=question))
    return answer, engine, retriever


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        (QuestionType.EVIDENCE_BASED.example, ["AnswerPlainly"]),
        (QuestionType.COMPARISON.example, ["ComparisonPlainly", "ComparePlainly"]),
        (EXPERIENCE, ["KeywordsPlainly", "AnswerPlainly"]),
        (QuestionType.REASON.example, ["ParaphraseReason", *EACH, "AggregateParaphrases"]),
        (QuestionType.INSTRUCTION.example, ["ParaphraseInstruction", *EACH, "AggregateParaphrases"]),
        (QuestionType.DEBATE.example, ["FrameSides", *EACH, "MediatePlainly"]),
        (FACTOID, ["AnswerPlainly"]),
        (REMARK, ["AnswerPlainly"]),
    ],
)
def test_typed_rag_asks_what_its_figures_show(question, asked):
    answer, engine, retriever = ask(question)
    assert engine.asked() == asked
    assert (answer.answer, answer.fallback) == (f"{asked[-1]} says so.", "")
    assert all(k == 5 for _, k in retriever.batches)
    assert answer.passages and answer.citations == () and answer.answered is Answered.PASSAGES


def test_its_prompts_show_as_many_demonstrations_as_the_figures():
    program = build_program("typed_rag", Numbered(), options=PUBLISHED)
    shown = {name: len(predictor.demos) for name, predictor in program.named_predictors() if predictor.demos}
    assert shown == {
        "strategies['comparison'].frame": 1,
        "strategies['experience'].extract_keywords": 1,
        "strategies['debate'].decomposer": 1,
    }


def test_keywords_and_compared_items_have_no_limits_and_one_item_is_enough():
    many = [f"thing {n} {'of many that are compared ' * 3}".strip() for n in range(9)]
    replies = {s.ComparisonPlainly: {"is_comparison": True, "purpose": "superiority", "items_compared": many}}
    _, _, retriever = ask(QuestionType.COMPARISON.example, replies)
    assert [query for queries, _ in retriever.batches for query in queries] == many
    replies[s.ComparisonPlainly]["items_compared"] = many[:1]
    answer, engine, _ = ask(QuestionType.COMPARISON.example, replies)
    assert engine.asked()[-1] == "ComparePlainly" and not answer.fallback
    _, _, retriever = ask(EXPERIENCE, {s.KeywordsPlainly: {"keywords": many}})
    assert [query for queries, _ in retriever.batches for query in queries] == many


def test_the_mediator_reads_the_topic_and_the_answers_alone():
    _, engine, _ = ask(QuestionType.DEBATE.example)
    name, prompt = engine.prompts[-1]
    assert name == "MediatePlainly" and "[[ ## topic ## ]]" in prompt and "[[ ## question ## ]]" not in prompt


def test_a_single_paraphrase_is_asked_for_again_and_then_plain_rag_answers():
    one = {s.ParaphraseReason: {"sub_queries": ["What makes bread dense?"]}}
    answer, engine, _ = ask(QuestionType.REASON.example, one)
    assert engine.asked() == ["ParaphraseReason"] * 3 + ["AnswerPlainly"] and "decompose" in answer.fallback


def test_the_debate_gate_alone_decides_whether_a_debate_may_be_none():
    none = {s.FrameDebate: {**DEFAULTS[s.FrameDebate], "is_debate": False}}
    answer, engine, _ = ask(QuestionType.DEBATE.example, none, debate_gate=True)
    assert engine.asked() == ["FrameDebate", "AnswerPlainly"]
    assert "people do not disagree" in answer.fallback


def test_a_plain_prompt_asks_for_an_answer_alone_and_all_passages_are_shown():
    _, engine, _ = ask(QuestionType.EVIDENCE_BASED.example, name="rag")
    [(_, prompt)] = engine.prompts
    assert "citations" not in prompt and "answered" not in prompt
    answer, engine, retriever = ask(QuestionType.EVIDENCE_BASED.example, name="direct_lm")
    assert engine.asked() == ["TellPlainly"]
    assert (retriever.batches, answer.answered) == ([], Answered.KNOWLEDGE)


@pytest.mark.parametrize("program", ["rag", "direct_lm"])
def test_the_baselines_have_the_same_options(program):
    assert Options.as_published(program) == Options.as_published("typed_rag")
    assert Options.as_published(program).top_k == Options.as_published(program).answer_passages == 5
    assert PRESETS["paper"][program].reranker == "none"


@pytest.mark.parametrize("name", ASKING_PROGRAMS)
def test_every_program_can_be_asked_for_as_published(name):
    options = ProgramSource(name).options(as_published="paper")
    assert options == Options.as_published(name) and options.model_fields_set == set()
    own = options.model_copy(update={"type_classifier": "linear"}).as_defaults(program_class(name).reads)
    changed = {n for n in program_class(name).reads if getattr(own, n) != getattr(Options(), n)}
    assert changed, "it would be the default"


def test_coverage_has_ten_passages_all_core_sub_questions_and_300_words():
    published = Options.as_published("coverage_retrieval")
    assert (published.top_k, published.answer_passages, published.answer_words) == (10, 10, 300)
    assert published.max_core_sub_questions > 20
    source = ProgramSource("coverage_retrieval")
    assert source.choose_retriever(None, as_published="paper") == "dense" and source.choose_retriever(None) == "bm25"
    assert source.choose_retriever("hybrid", as_published="paper") == "hybrid"


def test_the_published_reranker_is_used_unless_another_is_named():
    source = ProgramSource("typed_rag")
    assert source.choose_reranker(None, as_published="paper") == "cross-encoder:BAAI/bge-reranker-large"
    assert source.choose_reranker(None) == "none"
    assert source.choose_reranker("bi-encoder", as_published="paper") == "bi-encoder"


def test_by_the_authors_code_it_samples_searches_for_the_question_and_reranks_by_embeddings():
    source = ProgramSource("typed_rag")
    paper, code = source.options(as_published="paper"), source.options(as_published="code")
    changed = {name for name in Options.model_fields if getattr(paper, name) != getattr(code, name)}
    assert changed == {"experience_search", "retries", "max_lm_calls"} and code.experience_search == "question"
    assert source.choose_reranker(None, as_published="code") == "bi-encoder:BAAI/bge-reranker-large"
    assert source.choose_bm25(as_published="code") == source.choose_bm25(as_published="paper") == {"k1": 1.2, "b": 0.75}
    for program in ("typed_rag", "rag", "direct_lm"):
        assert ProgramSource(program).preset("code").lm == SAMPLED
    assert not source.preset("paper").lm and source.preset(None) is None


@pytest.mark.parametrize(
    ("program", "said"), [("hanrag", "no code of the authors"), ("reference", "is of no paper that typedrag follows")]
)
def test_what_has_no_known_code_is_refused_in_a_line(program, said):
    done = CliRunner().invoke(cli, ["ask", "Why does bread rise?", "--program", program, "--as-published=code"])
    assert done.exit_code != 0 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("given", [["--as-published=code"], ["--as-published=code", "--temperature", "0.1"]])
def test_the_lm_is_asked_with_the_settings_of_the_authors_code_under_those_of_the_user(sample_index, given):
    with lm_server() as stub:
        place = ("--index", str(sample_index), "--lm", "vllm:stub", "--api-base", stub.api_base, "--program", "rag")
        done = CliRunner().invoke(cli, ["ask", *given, "Why does bread rise?", *place])
    assert done.exit_code == 0, done.output
    temperature = 0.1 if "--temperature" in given else 0.8
    asked = stub.calls[-1].request
    assert {name: asked[name] for name in SAMPLED} == {**SAMPLED, "temperature": temperature}


@pytest.mark.parametrize(("given", "version"), [("--as-published", "paper"), ("--as-published=code", "code")])
def test_alone_the_flag_follows_the_paper_and_takes_no_word_for_its_value(given, version):
    with ask_command.make_context("ask", [given, "Why does bread rise?"]) as context:
        read = context.params["question"], context.params["programs__as_published"]
    assert read == ("Why does bread rise?", version)


def test_programs_that_share_an_lm_take_the_settings_that_they_are_published_with():
    def evaluation(*programs, **lm):
        return EvaluationConfig(programs=programs, dataset={"name": "sample"}, metrics=["defects"], lm=lm)

    code, plain = {"program": "rag", "as_published": "code", "name": "a"}, {"program": "rag", "name": "b"}
    assert evaluation(code).lm.settings == {**SAMPLED, "cache": False}
    assert evaluation(code, temperature=0).lm.temperature == 0
    assert evaluation({**code, "as_published": True}).lm.settings == {"cache": False}
    with pytest.raises(ValueError, match=r"evaluate them apart, or set lm\.temperature, lm\.top_p, lm\.max_tokens"):
        evaluation(code, plain)
    assert evaluation(code, plain, **SAMPLED).lm.settings == {**SAMPLED, "cache": False}


def test_richrag_as_published_is_refused_without_its_ranker():
    with pytest.raises(InputError, match=r"list ranker.*--reranker list:FOLDER"):
        ProgramSource("richrag").choose_reranker(None, as_published="paper")
    assert ProgramSource("richrag").choose_reranker("none", as_published="paper") == "none"


def test_richrag_as_published_searches_with_a_dense_retriever():
    source = ProgramSource("richrag")
    assert source.choose_retriever(None, as_published="paper") == "dense"
    assert source.choose_retriever(None, as_published=None) == "bm25"
    assert source.choose_retriever("hybrid", as_published="paper") == "hybrid"
    assert ProgramSource("hanrag").choose_retriever(None, as_published="paper") == "bm25"


def test_bm25_as_published_has_the_parameters_of_the_authors_search_engine(tmp_path, caplog):
    passages = [Passage("p1", "Yeast makes gas."), Passage("p2", "Air scatters light.")]
    build_index(passages, tmp_path / "stems", sources=["test"], language="en")
    build_index(passages, tmp_path / "words", sources=["test"], language="standard")

    def open_retriever(program, index, **how):
        asked = ProgramConfig(program=program, retriever="bm25", **how)
        data = DatasetConfig(name="file")
        config = EvaluationConfig(programs=(asked,), index=tmp_path / index, dataset=data, metrics=())
        return Resources(config, tmp_path / "replies").retriever(asked)

    for program, index, warned in [
        ("typed_rag", "stems", True), ("typed_rag", "words", False),
        ("preqrag", "stems", True), ("hanrag", "stems", False),
    ]:  # fmt: skip
        caplog.clear()
        retriever = open_retriever(program, index, as_published="paper")
        assert (retriever.k1, retriever.b) == (1.2, 0.75)
        assert ("typedrag index build FILE --language standard" in caplog.text) is warned
    usual = open_retriever("typed_rag", "words")
    assert (usual.k1, usual.b, usual.manifest.analyzer) == (0.9, 0.4, "Lucene's StandardAnalyzer")
    assert ProgramSource("typed_rag").choose_bm25({"b": 0.5}, as_published="paper") == {"k1": 1.2, "b": 0.5}
    assert ProgramSource("coverage_retrieval").choose_bm25(as_published="paper") == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "reranker model 'BAAI/bge-reranker-large' cannot be loaded"),
        (("--reranker", "none"), "type classifier 'Lurunchik/nf-cats' cannot be loaded"),
    ],
)
def test_without_the_hub_it_is_told_what_to_take_instead(monkeypatch, sample_index, given, said):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with lm_server() as stub:
        place = ("--index", str(sample_index), "--lm", "vllm:stub", "--api-base", stub.api_base)
        done = CliRunner().invoke(cli, ["ask", "Why does bread rise?", "--as-published", *place, *given])
    assert done.exit_code != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["rag", "direct_lm", "coverage_definition", "coverage_sub_questions"])
def test_an_answer_is_asked_for_in_about_so_many_words(name):
    told = {"citations": [1], "answer": "So."}
    written = {"sub_questions": [f"What is cause number {n} of dense bread?" for n in range(3)]}
    replies = {
        s.DecomposeIntoSubQuestions: written,
        s.TypeSubQuestions: {"types": {"q1": "core", "q2": "core", "q3": "background"}},
        s.AnswerByDefinition: told,
        s.AnswerCoveringSubQuestions: told,
    }
    with scripted(replies) as engine:
        build_program(name, Numbered(), options=Options(answer_words=250))(question="Why is bread dense?")
    systems = json.dumps(engine.systems[-1])
    assert "about 250 words" in systems and "paragraphs" not in systems

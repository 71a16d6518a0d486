import dspy
import pytest

from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.question_types import Route
from typedrag.core.records import NOT_IN_COLLECTION, Answer, Answered
from typedrag.metrics import LabelMatch, Steps
from typedrag.metrics.ranking import retrieval_cycles
from typedrag.programs import HANRAG, HANRAGOptions, Options, build_program
from typedrag.programs.hanrag import Router
from typedrag.signatures import predictor

COMPOUND = "When was the Forth Bridge opened, and how long is it?"
COMPLEX = "In which town was the designer of the Forth Bridge born?"
QUICK = {"retries": 0}


def ask(question=COMPLEX, retriever=None, options=None, **replies) -> tuple[Answer, list[str]]:
    """The answer, and the signatures asked for in order, relevance left out: it is asked for at once."""
    said = {getattr(s, name): reply for name, reply in replies.items()}
    with scripted(said) as engine:
        answer = Answer.from_prediction(HANRAG(retriever or Numbered(), options=options)(question=question))
    return answer, [name for name in engine.asked() if name != "JudgeRelevance"]


def route(name: str) -> dict[str, str]:
    return {"route": name}


def test_a_straightforward_question_is_answered_without_retrieval():
    retriever = Numbered()
    answer, asked = ask("How many legs does a spider have?", retriever, RouteQuestion=route("straightforward"))
    assert asked == ["RouteQuestion", "AnswerWithoutPassages"]
    assert retriever.batches == []
    assert (answer.route, answer.passages, retrieval_cycles(answer.steps)) == ("straightforward", (), 0)
    assert answer.answered == Answered.KNOWLEDGE


def test_one_step_answers_from_the_first_three_relevant_of_ten():
    retriever = Numbered()

    def judge(prompt):
        return {"relevant": any(f"Passage {n} " in prompt for n in (1, 4, 6, 9))}

    answer, asked = ask(retriever=retriever, RouteQuestion=route("single-step"), JudgeRelevance=judge)
    assert asked == ["RouteQuestion", "AnswerFromPassages"]
    assert retriever.batches == [([COMPLEX], 10)]
    assert [p.id[-1] for p in answer.passages] == ["1", "4", "6"]
    assert len([d for d in answer.dropped if "not relevant" in d]) == 6
    assert answer.usage.lm_calls == 12
    assert answer.fallback == "" and answer.route == "single-step" and retrieval_cycles(answer.steps) == 1


def test_the_parts_of_a_compound_question_are_one_batch_and_one_cycle():
    retriever = Numbered()
    answer, asked = ask(COMPOUND, retriever, RouteQuestion=route("compound"))
    parts = ["When was the Forth Bridge opened?", "How long is the Forth Bridge?"]
    assert asked == ["RouteQuestion", "DecomposeCompound", "AnswerSubQuery", "AnswerSubQuery", "ComposeAnswer"]
    assert retriever.batches == [(parts, 10)]
    assert answer.answer == "ComposeAnswer says so."
    assert {p.id.split("#")[0] for p in answer.passages} == set(parts)
    assert set(answer.citations) <= {p.id for p in answer.passages} and len(answer.citations) == 4
    assert retrieval_cycles(answer.steps) == 1


def test_a_complex_question_is_refined_step_by_step_until_it_is_answered():
    retriever = Numbered()
    queries = iter(["Who designed the Forth Bridge?", "In which town was John Fowler born?"])
    endings = iter([False, True])
    answer, asked = ask(
        retriever=retriever,
        RouteQuestion=route("complex"),
        RefineQuestion=lambda prompt: {"query": next(queries)},
        JudgeEnding=lambda prompt: {"ending": next(endings)},
    )
    step = ["RefineQuestion", "AnswerSubQuery", "JudgeEnding"]
    assert asked == ["RouteQuestion", *step, *step, "ComposeAnswer"]
    assert [batch for batch, _ in retriever.batches] == [
        ["Who designed the Forth Bridge?"],
        ["In which town was John Fowler born?"],
    ]
    assert retrieval_cycles(answer.steps) == 2
    assert answer.fallback == "" and answer.route == "complex"


def test_what_is_solved_reaches_refiner_and_ending():
    queries = iter(["Who designed the Forth Bridge?", "In which town was John Fowler born?"])
    endings = iter([False, True])
    said = {
        s.RouteQuestion: route("complex"),
        s.RefineQuestion: lambda prompt: {"query": next(queries)},
        s.JudgeEnding: lambda prompt: {"ending": next(endings)},
        s.AnswerSubQuery: {"answer": "John Fowler.", "citations": [1]},
    }
    with scripted(said) as engine:
        HANRAG(Numbered())(question=COMPLEX)
    refined = [prompt for name, prompt in engine.prompts if name == "RefineQuestion"]
    assert "John Fowler" not in refined[0] and "John Fowler." in refined[1]
    ended = [prompt for name, prompt in engine.prompts if name == "JudgeEnding"]
    assert ended[0].count("John Fowler.") == 1 and ended[1].count("John Fowler.") == 2


def numbered_queries():
    numbers = iter(range(100))
    return lambda prompt: {"query": f"Who is designer number {next(numbers)}?"}


def test_a_complex_question_ends_at_the_limit_of_steps():
    options = Options(hanrag=HANRAGOptions(max_steps=3))
    answer, asked = ask(
        options=options,
        RouteQuestion=route("complex"),
        RefineQuestion=numbered_queries(),
        JudgeEnding={"ending": False},
    )
    assert retrieval_cycles(answer.steps) == 3
    assert asked.count("JudgeEnding") == 2  # after the last step it would change nothing
    assert asked[-1] == "ComposeAnswer"


def test_a_query_that_was_asked_before_ends_the_steps():
    answer, asked = ask(RouteQuestion=route("complex"), JudgeEnding={"ending": False})
    assert retrieval_cycles(answer.steps) == 1
    assert asked[-2:] == ["RefineQuestion", "ComposeAnswer"]
    assert any("asked before" in d for d in answer.dropped)


def test_as_published_a_query_may_come_again_until_the_limit_of_steps():
    published = Options.as_published("hanrag")
    assert published.hanrag.max_lm_calls >= 1000
    answer, asked = ask(options=published, RouteQuestion=route("complex"), JudgeEnding={"ending": False})
    assert retrieval_cycles(answer.steps) == published.hanrag.max_steps == 5
    assert asked.count("RefineQuestion") == 5 and not any("asked before" in d for d in answer.dropped)


ABLATIONS = {
    "relevance": (HANRAGOptions(discriminate_relevance=False), "JudgeRelevance", 2),
    "refiner": (HANRAGOptions(refine=False), "RefineQuestion", 2),
    "ending": (HANRAGOptions(discriminate_ending=False), "JudgeEnding", 5),
}


@pytest.mark.parametrize("left_out", ABLATIONS)
def test_each_part_of_the_revelator_can_be_left_out(left_out):
    options, signature, cycles = ABLATIONS[left_out]
    endings = iter([False, True])
    said = {
        s.RouteQuestion: route("complex"),
        s.RefineQuestion: numbered_queries(),
        s.JudgeEnding: lambda prompt: {"ending": next(endings)},
    }
    retriever = Numbered()
    with scripted(said) as engine:
        answer = Answer.from_prediction(HANRAG(retriever, options=Options(hanrag=options))(question=COMPLEX))
    assert signature not in engine.asked()
    assert retrieval_cycles(answer.steps) == cycles
    if left_out == "refiner":
        assert [batch for batch, _ in retriever.batches] == [[COMPLEX]] * 2


@pytest.mark.parametrize("way", ["single-step", "compound", "complex"])
def test_where_no_passage_is_relevant_the_collection_does_not_say(way):
    answer, asked = ask(COMPOUND, RouteQuestion=route(way), JudgeRelevance={"relevant": False})
    assert (answer.answer, answer.answered, answer.route) == (NOT_IN_COLLECTION, Answered.NOTHING, way)
    assert answer.passages == () and answer.fallback == ""
    assert not {"AnswerFromPassages", "AnswerSubQuery", "AnswerWithoutPassages", "ComposeAnswer"} & set(asked)


def test_where_no_passage_is_relevant_the_lm_answers_without_as_published():
    replies = {"options": Options.as_published("hanrag"), "JudgeRelevance": {"relevant": False}}
    answer, asked = ask(RouteQuestion=route("single-step"), **replies)
    assert asked == ["RouteQuestion", "AnswerInPhraseWithoutPassages"]
    assert (answer.passages, answer.citations, answer.answered) == ((), (), Answered.KNOWLEDGE)
    answer, asked = ask(COMPOUND, RouteQuestion=route("compound"), **replies)
    assert asked.count("AnswerInPhraseWithoutPassages") == 2 and asked[-1] == "ComposePhrase"
    assert (answer.answered, answer.fallback) == (Answered.KNOWLEDGE, "")


@pytest.mark.parametrize("ended", [True, False])
def test_as_published_the_ending_discriminator_is_asked_before_the_first_step(ended):
    endings = iter([ended, True])
    answer, asked = ask(
        options=Options.as_published("hanrag"),
        RouteQuestion=route("complex"),
        JudgeEnding=lambda prompt: {"ending": next(endings)},
    )
    assert asked[:2] == ["RouteQuestion", "JudgeEnding"]
    assert retrieval_cycles(answer.steps) == (0 if ended else 1)
    assert (asked[2:] == ["AnswerInPhraseWithoutPassages"]) is ended


def test_where_nothing_is_relevant_and_the_lm_cannot_be_read_the_collection_does_not_say():
    replies = {"JudgeRelevance": {"relevant": False}, "AnswerWithoutPassages": "torn"}
    answer, _ = ask(options=Options(ungrounded=True, **QUICK), RouteQuestion=route("single-step"), **replies)
    assert (answer.answer, answer.answered) == (NOT_IN_COLLECTION, Answered.NOTHING)
    assert "the answer is that the collection does not say" in answer.fallback


def test_only_answered_parts_are_composed():
    def answering(prompt):
        return {"answered": "When was" not in prompt.split("[[ ## question")[1], "citations": [1], "answer": "2.5 km."}

    with scripted({s.RouteQuestion: route("compound"), s.AnswerSubQuery: answering}) as engine:
        answer = Answer.from_prediction(HANRAG(Numbered())(question=COMPOUND))
    name, prompt = engine.prompts[-1]
    assert (
        name == "ComposeAnswer" and prompt.count("2.5 km.") == 1 and "When was the Forth Bridge opened?" not in prompt
    )
    assert answer.grounded and answer.fallback == ""


def test_where_the_refiner_fails_twice_no_further_step_is_gone():
    answer, asked = ask(
        options=Options(**QUICK), RouteQuestion=route("complex"), RefineQuestion="torn", JudgeEnding={"ending": False}
    )
    assert asked.count("RefineQuestion") == 2 and asked[-1] == "ComposeAnswer"
    assert "the question itself is searched for" in answer.fallback and "no further step is gone" in answer.fallback


@pytest.mark.parametrize("way", ["compound", "complex"])
def test_what_is_copied_from_a_demonstration_is_not_searched_for(way):
    signature = {"compound": s.DecomposeCompound, "complex": s.RefineQuestion}[way]
    [demonstration] = predictor(signature).demos
    copied = {name: demonstration[name] for name in signature.output_fields}
    answer, _ = ask(COMPOUND, RouteQuestion=route(way), **{signature.__name__: copied})
    searched = [st.input for step in answer.steps for st in step.walk() if st.name in ("retrieve", "query")]
    assert set(searched) <= {COMPOUND, "2 queries"}
    assert any("copied from the prompt" in dropped for dropped in answer.dropped)


FAILURES = [
    ("compound", "RouteQuestion", "taken as single-step", "AnswerFromPassages says so."),
    ("compound", "DecomposeCompound", "answered in a single step", "AnswerFromPassages says so."),
    ("compound", "AnswerSubQuery", "answered in a single step", "AnswerFromPassages says so."),
    ("complex", "AnswerSubQuery", "answered in a single step", "AnswerFromPassages says so."),
    ("compound", "ComposeAnswer", "are given as they are", "AnswerSubQuery says so.\n\nAnswerSubQuery says so."),
    ("complex", "ComposeAnswer", "are given as they are", "AnswerSubQuery says so."),
    ("single-step", "AnswerFromPassages", "the best passage found is given", f"Passage 0 on: {COMPLEX}"),
    ("complex", "RefineQuestion", "the question itself is searched for", "ComposeAnswer says so."),
    ("complex", "JudgeEnding", "another step is gone", "ComposeAnswer says so."),
    ("single-step", "JudgeRelevance", "the passage is kept", "AnswerFromPassages says so."),
]


@pytest.mark.parametrize(("way", "signature", "fallback", "answered"), FAILURES)
def test_a_malformed_reply_at_any_step_is_met_by_the_documented_fallback(way, signature, fallback, answered):
    replies = {"RouteQuestion": route(way), signature: "no JSON at all"}
    answer, _ = ask(options=Options(**QUICK), **replies)
    assert answer.answer == answered
    assert fallback in answer.fallback
    failed = [st for step in answer.steps for st in step.walk() if "failed" in st.output]
    assert any(st.usage.lm_calls == 1 for st in failed)  # what was spent on it is counted


def test_a_question_of_one_part_is_answered_in_a_single_step():
    one = {"sub_queries": ["How long is the Forth Bridge?"]}
    answer, asked = ask(COMPOUND, RouteQuestion=route("compound"), DecomposeCompound=one)
    assert asked == ["RouteQuestion", "DecomposeCompound", "AnswerFromPassages"]
    assert "one part only" in answer.fallback and answer.route == "compound"


def test_as_published_the_answer_to_a_single_part_is_composed_too():
    one = {"sub_queries": ["How long is the Forth Bridge?"]}
    published = Options.as_published("hanrag")
    answer, asked = ask(COMPOUND, options=published, RouteQuestion=route("compound"), DecomposeCompound=one)
    assert asked == ["RouteQuestion", "DecomposeCompound", "AnswerInPhrasePlainly", "ComposePhrase"]
    assert answer.fallback == "" and answer.route == "compound"


def test_the_budget_of_lm_calls_is_its_own_and_holds():
    options = Options(hanrag=HANRAGOptions(max_lm_calls=26, max_steps=9))
    answer, asked = ask(
        options=options,
        RouteQuestion=route("complex"),
        RefineQuestion=numbered_queries(),
        JudgeEnding={"ending": False},
    )
    assert answer.usage.lm_calls <= 26 and asked[-1] == "ComposeAnswer"
    assert any("no LM calls left" in step.output for step in answer.steps)
    options = Options(hanrag=HANRAGOptions(max_lm_calls=14))
    answer, _ = ask(COMPOUND, options=options, RouteQuestion=route("compound"))
    assert any("How long is the Forth Bridge? (one more than the 1 allowed)" in d for d in answer.dropped)


def test_a_route_can_be_fixed():
    answer, asked = ask(COMPOUND, options=Options(hanrag=HANRAGOptions(router="compound")))
    assert "RouteQuestion" not in asked and answer.route == "compound"
    assert Options.model_validate(Options(hanrag={"router": "complex"}).model_dump(mode="json")).hanrag.router == (
        Route.COMPLEX
    )


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("When is the birthdate of Michael F. Phelps? When did he retire?", "compound"),
        ("Who wrote it and in which year?", "compound"),
        ("Who succeeded the first President of Namibia?", "single-step"),  # the rule does not see it
        ("Who is the spouse of the author of Emma?", "complex"),
        ("Where is the company's founder's house?", "complex"),
        ("Which company bought the shop?", "single-step"),
    ],
)
def test_the_rule_goes_by_the_wording(question, expected):
    assert Router()(question=question).route == expected


def test_routes_steps_and_short_answers_fit_the_metrics():
    options = Options(answer_length="phrase")
    answer, asked = ask(COMPOUND, options=options, RouteQuestion=route("compound"))
    assert asked[-3:] == ["AnswerInPhrase", "AnswerInPhrase", "ComposePhrase"]
    prediction = dspy.Prediction(**{field: getattr(answer, field) for field in Answer.__dataclass_fields__})
    assert Steps()(dspy.Example(), prediction).measures == {"steps": 1.0}
    labelled = LabelMatch(field="route", definitions={r: r.definition for r in Route})
    assert labelled(dspy.Example(route=Route.COMPOUND), prediction).score == 1
    said = labelled(dspy.Example(route=Route.COMPLEX), prediction)
    assert said.score == 0 and "taken for compound" in said.feedback


@pytest.mark.parametrize("name", ["rag", "direct_lm", "ircot", "adaptive_rag", "hanrag", "rag_fusion"])
def test_every_baseline_answers_in_a_phrase_where_it_is_wanted(name):
    with scripted() as engine:
        answer = build_program(name, Numbered(), options=Options(answer_length="phrase"))(question=COMPLEX)
    assert engine.asked()[-1] in ("AnswerInPhrase", "AnswerInPhraseWithoutPassages")
    assert answer.answer == f"{engine.asked()[-1]} says so."


def test_the_revelator_may_be_an_lm_of_its_own(monkeypatch):
    with scripted({s.RouteQuestion: route("single-step")}) as own:
        lm = dspy.settings.lm
    monkeypatch.setattr("typedrag.lms.lm._open_once", lambda spec: {"own/lm": lm}[spec])
    # the scripted LM takes no schema: its adapter is DSPy's own, and the reply is in its layout
    own.replies[s.RouteQuestion] = "[[ ## route ## ]]\nsingle-step\n\n[[ ## completed ## ]]"
    own.replies[s.JudgeRelevance] = "[[ ## relevant ## ]]\nTrue\n\n[[ ## completed ## ]]"
    with scripted() as engine:
        HANRAG(Numbered(), options=Options(hanrag=HANRAGOptions(revelator_lm="own/lm")))(question=COMPLEX)
    assert set(own.asked()) == {"RouteQuestion", "JudgeRelevance"}
    assert engine.asked() == ["AnswerFromPassages"]


def test_what_is_composed_of_what_the_lm_knows_and_of_passages_cites_none():
    answer, asked = ask(
        COMPOUND,
        options=Options(ungrounded=True),
        RouteQuestion=route("compound"),
        JudgeRelevance=lambda prompt: {"relevant": "on: How long" in prompt},
    )
    assert sorted(asked[2:]) == ["AnswerSubQuery", "AnswerWithoutPassages", "ComposeAnswer"]
    assert answer.passages and answer.citations == () and answer.answered == Answered.KNOWLEDGE

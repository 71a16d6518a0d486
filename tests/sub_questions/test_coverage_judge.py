import json

import dspy
import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.core.errors import StepFailed
from typedrag.lms.lm import use_lm
from typedrag.signatures.sub_question_coverage import FindAnsweringSentences, FindAnswerPlainly, FindAnswers
from typedrag.sub_questions.coverage_judge import (
    Coverage,
    CoverageJudge,
    PlainCoverageJudge,
    SentenceCoverageJudge,
)

TEXT = "Yeast eats sugar. It makes gas, and the dough holds it. So bread rises in the oven."
QUESTIONS = ["What does yeast eat?", "Who invented bread?", "What holds the gas?"]
SAID = {
    "What does yeast eat?": {"fragment": "Yeast eats sugar", "answered": True},
    "Who invented bread?": {"fragment": "So bread rises", "answered": False},
    "What holds the gas?": {"fragment": "the dough holds it", "answered": True},
}


def sub_questions(prompt: str) -> dict[str, str]:
    return json.loads(prompt.partition("[[ ## sub_questions ## ]]\n")[2].partition("\n")[0])


def by_question(said: dict) -> object:
    return lambda prompt: {"verdicts": {key: said[text] for key, text in sub_questions(prompt).items()}}


def judge(reply, text=TEXT, **options):
    lm, engine = scripted_judge({FindAnswers: reply})
    with use_lm(lm):
        return CoverageJudge(**options)(text, QUESTIONS).verdicts, engine


@pytest.mark.parametrize(("per_call", "calls"), [(1, 3), (2, 2), (10, 1)])
def test_verdicts_are_the_same_however_many_a_call_has(per_call, calls):
    verdicts, engine = judge(by_question(SAID), sub_questions_per_call=per_call)
    assert verdicts == [
        Coverage(True, "Yeast eats sugar", 1 / 17),
        Coverage(False),
        Coverage(True, "the dough holds it", 8 / 17),
    ]
    assert len(engine.prompts) == calls


def test_as_published_a_verdict_counts_as_it_is_and_each_is_given_alone_after_a_few_examples():
    said = {
        "What does yeast eat?": {"answered": True, "fragment": "Yeast eats sugar"},
        "Who invented bread?": {"answered": False},
        "What holds the gas?": {"answered": True, "fragment": "gluten traps bubbles"},
    }
    lm, engine = scripted_judge({FindAnswerPlainly: by_question(said)})
    with use_lm(lm):
        verdicts = PlainCoverageJudge()(TEXT, QUESTIONS).verdicts
    assert verdicts == [
        Coverage(True, "Yeast eats sugar", 1 / 17),
        Coverage(False),
        Coverage(True, "gluten traps bubbles", None),
    ]
    assert len(engine.prompts) == 3 and {len(messages) for messages in engine.messages} == {4 * 2 + 1}


def test_words_that_are_not_in_the_text_are_asked_for_once_more_and_alone():
    wrong = {**SAID, "What holds the gas?": {"fragment": "gluten traps bubbles", "answered": True}}
    replies = iter([wrong, SAID])
    verdicts, engine = judge(lambda prompt: by_question(next(replies))(prompt))
    assert [v.answered for v in verdicts] == [True, False, True]
    assert not any(v.invalid for v in verdicts)
    assert [list(sub_questions(prompt).values()) for _, prompt in engine.prompts] == [QUESTIONS, QUESTIONS[2:]]


def test_words_that_are_not_in_the_text_when_asked_again_are_invalid_and_cover_nothing():
    wrong = {**SAID, "What holds the gas?": {"fragment": "gluten traps bubbles", "answered": True}}
    verdicts, engine = judge(by_question(wrong))
    assert verdicts[2] == Coverage(False, "gluten traps bubbles", invalid=True)
    assert [v.invalid for v in verdicts] == [False, False, True]
    assert len(engine.prompts) == 2


def test_small_slips_in_copying_are_forgiven():
    slip = {**SAID, "What holds the gas?": {"fragment": "THE dough  hold it.", "answered": True}}
    verdicts, engine = judge(by_question(slip))
    assert verdicts[2].answered and len(engine.prompts) == 1


@pytest.mark.parametrize(
    "verdicts",
    [
        {"q1": SAID["What does yeast eat?"]},
        {f"q{n}": SAID["What does yeast eat?"] for n in range(1, 5)},
        {f"q{n}": {"fragment": "Yeast"} for n in range(1, 4)},
        [],
    ],
)
def test_verdicts_that_are_not_one_for_each_are_a_failure(verdicts):
    with pytest.raises(StepFailed, match="judge coverage"):
        judge({"verdicts": verdicts}, retries=1)


def test_many_sub_questions_get_room_for_their_verdicts():
    limits = []

    class Engine(type(scripted_judge({})[1])):
        def complete(self, request):
            limits.append(request.config.max_tokens)
            return super().complete(request)

    for limit in (50, 2000, None):
        lm = dspy.LM("scripted/judge", engine=Engine({FindAnswers: by_question(SAID)}), max_tokens=limit, cache=False)
        with use_lm(lm):
            CoverageJudge()(TEXT, QUESTIONS)
    assert limits == [270, 2000, None]


def pointed(reply, text=TEXT, **options):
    lm, engine = scripted_judge({FindAnsweringSentences: reply})
    with use_lm(lm):
        return SentenceCoverageJudge(**options)(text, QUESTIONS).verdicts, engine


@pytest.mark.parametrize(("per_call", "calls"), [(1, 3), (2, 2), (10, 1)])
def test_a_sentence_that_is_named_is_the_fragment(per_call, calls):
    numbers = {"What does yeast eat?": 1, "Who invented bread?": 0, "What holds the gas?": 2}
    verdicts, engine = pointed(
        lambda prompt: {"verdicts": {key: numbers[text] for key, text in sub_questions(prompt).items()}},
        sub_questions_per_call=per_call,
    )
    assert verdicts == [
        Coverage(True, "Yeast eats sugar.", 1 / 17),
        Coverage(False),
        Coverage(True, "It makes gas, and the dough holds it.", 4 / 17),
    ]
    assert len(engine.prompts) == calls


def test_a_sentence_that_the_text_has_not_cannot_be_named():
    with pytest.raises(StepFailed, match="judge coverage"):
        pointed(lambda prompt: {"verdicts": dict.fromkeys(sub_questions(prompt), 4)}, retries=0)


def test_being_asked_again_is_past_the_cache():
    wrong = {**SAID, "Who invented bread?": {"fragment": "Egyptians", "answered": True}}
    wrong = dict.fromkeys(wrong, wrong["Who invented bread?"])
    lm, engine = scripted_judge({FindAnswers: by_question(wrong)}, cache=True, temperature=0.0)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    try:
        with use_lm(lm):
            for _ in range(2):
                CoverageJudge()(TEXT, QUESTIONS)
    finally:
        dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    assert len(engine.prompts) == 2

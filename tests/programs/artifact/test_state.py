import dspy
import pytest

from typedrag.core.errors import InputError
from typedrag.programs.artifact import STATE, dump_state, load_state, named_predictors, signature_fields
from typedrag.programs.compiled import build_without_index

REASON = "strategies['reason'].decomposer"
ANSWER = "strategy.answer.predict"
POOLED = "strategies['reason'].answer_pooled.predict"


def copied(program: dspy.Module) -> dspy.Module:
    """By way of JSON, into a program of its own."""
    read = STATE.validate_json(STATE.dump_json(dump_state(program)))
    fresh = build_without_index(program.name, program.options)
    load_state(fresh, read, signature_fields(program))
    return fresh


def test_written_demonstrations_are_part_of_the_state_and_give_way_to_compiled_ones():
    program = build_without_index("typed_rag")
    assert len(dump_state(program)[REASON].demos) == 2
    named_predictors(program)[REASON].demos = []
    assert named_predictors(copied(program))[REASON].demos == []


def test_what_no_prompt_shows_is_left_out():
    program = build_without_index("rag")
    shown = {"question": "Why?", "answer": "So.", "references": ("gold",), "id": "q7"}
    named_predictors(program)[ANSWER].demos = [
        dspy.Example(**shown).with_inputs("question"),
        dspy.Example(question="Without an answer?", references=("gold",)),
        {"answer": "Without a question."},
    ]
    assert dump_state(program)[ANSWER].demos == [{"question": "Why?", "answer": "So."}]


# what is refused


def changed(state, name, **changes):
    data = STATE.dump_python(dict(state), mode="json")
    data[name] |= changes
    return STATE.validate_python(data)


@pytest.mark.parametrize(
    ("demo", "said"),
    [
        ({"question": "Why?", "api_base": "x"}, "has a field 'api_base' that its signature lacks"),
        ({"a\x1b[31m\nb": "x"}, r"has a field 'a\x1b[31m\nb' that its signature lacks"),
    ],
)
def test_demonstrations_that_do_not_fit_are_refused_and_nothing_is_changed(demo, said):
    program = build_without_index("typed_rag")
    before = dump_state(program)
    other = changed(before, POOLED, config={"temperature": 1})
    with pytest.raises(InputError) as refused:
        load_state(program, changed(other, REASON, demos=[demo]), signature_fields(program))
    assert said in str(refused.value)
    assert "demonstration 1 of predictor" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert dump_state(program) == before


def test_a_state_that_goes_with_other_signatures_is_refused():
    program = build_without_index("rag")
    state, shapes = dump_state(program), signature_fields(program)
    with pytest.raises(InputError, match="it lacks the predictor"):
        load_state(program, {ANSWER: state[ANSWER]}, shapes)
    with pytest.raises(InputError, match="no longer has its predictor 'other'"):
        load_state(program, {**state, "other": state[ANSWER]}, shapes)
    fewer = changed(state, ANSWER, signature={"instructions": "", "fields": []})
    with pytest.raises(InputError, match="has changed since: its fields have other texts"):
        load_state(program, fewer, shapes)

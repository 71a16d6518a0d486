import dspy
import pytest
from hypothesis import given, settings

from tests.programs.compiling import compiled_programs
from tests.programs.ways import PUBLISHED
from typedrag.core.errors import InputError
from typedrag.lms.adapter import SchemaAdapter
from typedrag.programs import Options
from typedrag.programs.artifact import STATE, dump_state, fingerprint, load_state, named_predictors, signature_fields
from typedrag.programs.compiled import build_without_index
from typedrag.signatures.fields import PromptPassage

REASON = "strategies['reason'].decomposer"
ANSWER = "strategy.answer.predict"
POOLED = "strategies['reason'].answer_pooled.predict"


def copied(program: dspy.Module) -> dspy.Module:
    """By way of JSON, into a program of its own."""
    read = STATE.validate_json(STATE.dump_json(dump_state(program)))
    fresh = build_without_index(program.name, program.options)
    load_state(fresh, read, signature_fields(program))
    return fresh


def prompts(program: dspy.Module) -> dict[str, list[str]]:
    """What each predictor sends, by DSPy's adapters and by typedrag's."""
    made = {}
    for name, predictor in named_predictors(program).items():
        signature = predictor.signature
        inputs = {field: INPUTS.get(field, "x") for field in signature.input_fields}
        adapters = (SchemaAdapter(), dspy.ChatAdapter(), dspy.JSONAdapter())
        made[name] = [repr(a.format(signature, predictor.demos, dict(inputs))) for a in adapters]
    return made


INPUTS = {"question": "Why does dough rise?", "passages": [PromptPassage(number=1, title="", text="Yeast.")]}


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


def test_addresses_and_keys_of_a_predictor_are_no_part_of_its_state(caplog):
    program = build_without_index("rag")
    predictor = named_predictors(program)[ANSWER]
    predictor.config = {"api_key": "sk-planted", "api_base": "http://planted", "temperature": 0.5}
    predictor.lm = dspy.LM("openai/x", api_key="sk-planted", api_base="http://planted", extra_headers={"x": "planted"})
    saved = STATE.dump_json(dump_state(program)).decode()
    assert "planted" not in saved
    assert "left out its settings api_base, api_key" in caplog.text
    assert named_predictors(copied(program))[ANSWER].config == {"temperature": 0.5}


@settings(max_examples=10)
@given(compiled_programs())
def test_a_restored_program_sends_the_same_prompts_to_the_letter(program):
    restored = copied(program)
    assert prompts(restored) == prompts(program)
    assert dump_state(restored) == dump_state(program)
    assert fingerprint(dump_state(restored)) == fingerprint(dump_state(program))
    before, after = named_predictors(program), named_predictors(restored)
    assert list(before) == list(after)
    for name, predictor in before.items():
        assert after[name].config == predictor.config
        assert after[name].lm is None


@pytest.mark.parametrize(
    ("saved", "loaded", "said"),
    [
        (Options(), PUBLISHED, f'no longer has its predictor "{POOLED}"'),
        (Options(), Options(type_classifier="lm"), "it lacks the predictor 'classifier.classify'"),
        (Options(type_classifier="lm"), Options(), "no longer has its predictor 'classifier.classify'"),
    ],
)
def test_predictors_that_are_missing_or_new_are_refused(saved, loaded, said):
    program = build_without_index("typed_rag", saved)
    with pytest.raises(InputError) as refused:
        load_state(build_without_index("typed_rag", loaded), dump_state(program), signature_fields(program))
    assert said in str(refused.value)


def test_a_signature_that_has_changed_is_refused_by_name():
    program, other = build_without_index("typed_rag"), build_without_index("typed_rag")
    decomposer = named_predictors(other)[REASON]
    decomposer.signature = decomposer.signature.append("why", dspy.OutputField(), bool)
    with pytest.raises(InputError) as refused:
        load_state(other, dump_state(program), signature_fields(program))
    said = "has changed since: its fields were question, sub_queries and are question, sub_queries, why"
    assert f'the signature of predictor "{REASON}" {said}' in str(refused.value)

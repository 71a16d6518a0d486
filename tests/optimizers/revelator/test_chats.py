import dspy
import pytest

from tests.scripted import scripted
from typedrag.core.question_types import RevelatorRole
from typedrag.optimizers.compile.targets import typed_example
from typedrag.optimizers.revelator import IGNORED, encode, encode_all, format_chat, prepare
from typedrag.programs.hanrag import REVELATOR_SIGNATURES


@pytest.mark.parametrize("role", RevelatorRole)
def test_what_is_trained_on_is_what_the_program_asks(role, dataset, program):
    example = next(e for e in dataset.examples if e.subset == role)
    *asked, reply = format_chat(example, program)
    signature = REVELATOR_SIGNATURES[role]
    with scripted({signature: reply["content"]}) as engine:
        prediction = program.revelator()[role](**typed_example(role, example).inputs())
    [messages] = engine.messages
    assert [(m["role"], m["content"]) for m in asked[1:]] == [(m.role, m.text) for m in messages]
    assert [asked[0]["content"]] == engine.systems
    # the reply that is right can be read, and is right
    wanted = typed_example(role, example)
    assert all(prediction[name] == wanted[name] for name in signature.output_fields)


def test_demonstrations_of_a_compiled_program_are_part_of_the_prompt(dataset, program):
    example = next(e for e in dataset.examples if e.subset == RevelatorRole.ENDING)
    plain = format_chat(example, program)
    program.ending.predict.demos = [dspy.Example(question="Who?", solved=[], ending=False)]
    assert len(format_chat(example, program)) == len(plain) + 2


@pytest.fixture(scope="module")
def tokenizer(base):
    from transformers import AutoTokenizer

    return prepare(AutoTokenizer.from_pretrained(base))


def test_the_loss_sees_the_reply_and_its_end_alone(dataset, program, tokenizer):
    chat = format_chat(dataset.examples[0], program)
    encoded = encode(chat, tokenizer)
    seen = [token for token, label in zip(encoded["input_ids"], encoded["labels"], strict=True) if label != IGNORED]
    assert tokenizer.decode(seen) == chat[-1]["content"] + "<|im_end|>\n"
    assert encoded["labels"][-len(seen) :] == seen
    prompt = tokenizer.decode(encoded["input_ids"][: -len(seen)])
    assert prompt == tokenizer.apply_chat_template(chat[:-1], tokenize=False, add_generation_prompt=True)


def test_a_template_that_adds_to_the_prompt_is_met(dataset, program, tokenizer):
    import copy

    thinking = copy.deepcopy(tokenizer)
    thinking.chat_template = tokenizer.chat_template.replace("assistant\n{% endif %}", "assistant\n<think>{% endif %}")
    chat = format_chat(dataset.examples[0], program)
    encoded = encode(chat, thinking)
    seen = [label for label in encoded["labels"] if label != IGNORED]
    assert thinking.decode(seen) == chat[-1]["content"] + "<|im_end|>"


def test_rows_that_are_too_long_are_counted(dataset, program, tokenizer):
    lengths = [len(encode(format_chat(e, program), tokenizer)["input_ids"]) for e in dataset.examples]
    middle = sorted(lengths)[len(lengths) // 2]
    fitting, left_out = encode_all(dataset.examples, program, tokenizer, middle)
    assert left_out == sum(n > middle for n in lengths) > 0 and len(fitting) + left_out == len(lengths)

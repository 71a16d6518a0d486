"""Training chats of the revelator: the prompts that HANRAG sends, with the right replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from typedrag.errors import InputError
from typedrag.lms.adapter import SchemaAdapter
from typedrag.optimizers.compile.targets.revelator import typed_example
from typedrag.programs import HANRAG
from typedrag.question_types import RevelatorRole

Chat = list[dict[str, str]]
"""Messages with `role` and `content`; the last one is the reply."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, for tokenizers without a chat template."""

IGNORED = -100
"""The label of tokens that the loss ignores."""


class TrainingAdapter(SchemaAdapter):
    """Formats training data as `SchemaAdapter` formats prompts; DSPy's JSON adapter has no format for training."""

    def format_finetune_data(
        self, signature: Any, demos: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> dict[str, list[Any]]:
        """Return a chat of `messages`; the last one is the reply."""
        return dspy.ChatAdapter.format_finetune_data(self, signature, demos, inputs, outputs)


def chat_of(example: dspy.Example, program: HANRAG) -> Chat:
    """A row of the revelator's training set as a chat, with the demonstrations that the program shows.

    Args:
        example: A row of dataset `revelator`.
        program: The program whose prompts are trained on, such as a compiled one.

    Raises:
        InputError: If the program does not ask an LM for the role.
    """
    role = RevelatorRole(example.subset)
    module = program.revelator().get(role)
    if module is None:
        raise InputError(f"the program asks no LM for the {role}", "Leave option hanrag.router at lm")
    typed = typed_example(role, example, program.options)
    signature = module.predict.signature
    chat: Chat = TrainingAdapter().format_finetune_data(
        signature,
        [dict(demo) for demo in module.predict.demos],
        {name: typed[name] for name in signature.input_fields},
        {name: typed[name] for name in signature.output_fields},
    )["messages"]
    return chat


def encode(chat: Chat, tokenizer: Any) -> dict[str, list[int]]:
    """The `input_ids` of a chat and its `labels`, which hide all but the reply and its end from the loss.

    The prompt is encoded by itself, as it is at inference.
    """
    whole = tokenizer.apply_chat_template(chat, tokenize=False)
    prompt = tokenizer.apply_chat_template(chat[:-1], tokenize=False, add_generation_prompt=True)
    if not whole.startswith(prompt):  # some templates add text to the prompt that past replies lack
        whole = prompt + chat[-1]["content"] + (tokenizer.eos_token or "")
    asking, reply = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, whole[len(prompt) :]))
    return {"input_ids": asking + reply, "labels": [IGNORED] * len(asking) + reply}


def encode_all(
    examples: Sequence[dspy.Example], program: HANRAG, tokenizer: Any, max_tokens: int
) -> tuple[list[dict[str, list[int]]], int]:
    """The rows of at most `max_tokens`, and the number of longer ones: truncated, those would lose their replies."""
    encoded = [encode(chat_of(example, program), tokenizer) for example in examples]
    fitting = [row for row in encoded if len(row["input_ids"]) <= max_tokens]
    return fitting, len(encoded) - len(fitting)


def prepare(tokenizer: Any) -> Any:
    """Give a tokenizer a chat template and a padding token if it has none, and return it."""
    if not tokenizer.chat_template:
        tokenizer.chat_template = TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer

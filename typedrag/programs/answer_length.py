"""The signatures of answers as the options `answer_length`, `answer_words` and `answer_prompt` ask for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import dspy

from typedrag.programs.options import Options
from typedrag.signatures import (
    AnswerFromPassages,
    AnswerFromPerspective,
    AnswerFromSubAnswers,
    AnswerInPhrase,
    AnswerInPhraseWithoutPassages,
    AnswerSubQuery,
    AnswerWithoutPassages,
    ComposeAnswer,
    ComposePhrase,
)
from typedrag.signatures.preqrag import PROMPT_STYLES
from typedrag.signatures.typed_rag import PLAIN

_IN_PHRASE: Mapping[type[dspy.Signature], type[dspy.Signature]] = {
    AnswerFromPassages: AnswerInPhrase,
    AnswerSubQuery: AnswerInPhrase,
    AnswerWithoutPassages: AnswerInPhraseWithoutPassages,
    ComposeAnswer: ComposePhrase,
    AnswerFromSubAnswers: ComposePhrase,
    **dict.fromkeys(PROMPT_STYLES.values(), AnswerInPhrase),
}

_OF_PARTS = (AnswerSubQuery, AnswerFromPerspective)
_PARAGRAPHS = re.compile("one (to three|or two) paragraphs")


def of_length(signature: type[dspy.Signature], options: Options) -> type[dspy.Signature]:
    """The signature as `as_asked`, or its variant that asks for a phrase if option `answer_length` is `phrase`.

    Example:
        >>> of_length(AnswerFromPassages, Options(answer_length="phrase")).__name__
        'AnswerInPhrase'
    """
    return _IN_PHRASE[signature] if options.answer_length == "phrase" else as_asked(signature, options)


def as_asked(signature: type[dspy.Signature], options: Options) -> type[dspy.Signature]:
    """The signature of an answer that is never a phrase: itself, the plain one, or one of about `answer_words` words.

    Example:
        >>> as_asked(AnswerSubQuery, Options(answer_prompt="plain")).__name__
        'AnswerPlainly'
        >>> fields = as_asked(AnswerFromPassages, Options(answer_words=300)).output_fields
        >>> fields["answer"].json_schema_extra["desc"]
        'about 300 words in your own words, without passage numbers'
    """
    chosen = PLAIN.get(signature, signature) if options.answer_prompt == "plain" else signature
    if options.answer_words is None or signature in _OF_PARTS:
        return chosen
    length, usual = f"about {options.answer_words} words", chosen.output_fields["answer"].json_schema_extra["desc"]
    text, replaced = _PARAGRAPHS.subn(length, usual)
    return chosen.with_updated_fields("answer", desc=text if replaced else length)

"""The signatures that answer in a phrase instead of paragraphs."""

from __future__ import annotations

from collections.abc import Mapping

import dspy

from typedrag.programs.options import Options
from typedrag.signatures import (
    AnswerFromPassages,
    AnswerFromSubAnswers,
    AnswerInPhrase,
    AnswerInPhraseWithoutPassages,
    AnswerSubQuery,
    AnswerWithoutPassages,
    ComposeAnswer,
    ComposePhrase,
)
from typedrag.signatures.preqrag import PROMPT_STYLES

_IN_PHRASE: Mapping[type[dspy.Signature], type[dspy.Signature]] = {
    AnswerFromPassages: AnswerInPhrase,
    AnswerSubQuery: AnswerInPhrase,
    AnswerWithoutPassages: AnswerInPhraseWithoutPassages,
    ComposeAnswer: ComposePhrase,
    AnswerFromSubAnswers: ComposePhrase,
    **dict.fromkeys(PROMPT_STYLES.values(), AnswerInPhrase),
}


def of_length(signature: type[dspy.Signature], options: Options) -> type[dspy.Signature]:
    """The signature itself, or its variant that asks for a phrase if option `answer_length` is `phrase`.

    Example:
        >>> of_length(AnswerFromPassages, Options(answer_length="phrase")).__name__
        'AnswerInPhrase'
    """
    return _IN_PHRASE[signature] if options.answer_length == "phrase" else signature

"""The language of a text, by py3langid, which knows 139 of them; it is loaded at the first question."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import regex

ENGLISH = "en"
_SURE = 10
"""The factor by which another language must be likelier than English. Then three of 1,918 questions of NF-CATS valid
are taken for another language; and four of 85 in 38 other languages, like most texts of a word or two, for English."""
_NO_LANGUAGE = "zxx"
_PIECE = 1_000  # characters of a text that are read: more do not change the result

_ENGLISH_QUESTION = regex.compile(r"(?i)(?:how|what|when|where|which|who|why|should) [a-z]+[ -~]*\Z")
"""Half a second of CPU is saved where the model need not be loaded."""

_LATIN = regex.compile(r"\p{Latin}")
_LETTER = regex.compile(r"\p{L}")


def detect_language(text: str) -> str:
    """The ISO 639 code of a text's language: `en` unless another is likelier by far.

    The code of another language is often that of a neighbour for short texts, but "not English" is right.

    Example:
        >>> detect_language("Why does bread rise?"), detect_language("Warum geht Brot auf?")
        ('en', 'de')
    """
    ranks = dict(_identifier().rank(text[:_PIECE].encode("utf-8", "replace")))
    ranks.pop(_NO_LANGUAGE, None)
    likeliest = max(ranks, key=ranks.__getitem__)
    if ranks[likeliest] >= _SURE * ranks[ENGLISH]:
        return str(likeliest)
    return ENGLISH if _LATIN.search(text, concurrent=False) or not _LETTER.search(text, concurrent=False) else "und"


def is_english(text: str) -> bool:
    """True unless another language is likelier by far; what begins as only English does needs no model."""
    return bool(_ENGLISH_QUESTION.match(text)) or detect_language(text) == ENGLISH


def detect_main_language(texts: Iterable[str]) -> str:
    """The code of the language of more than half of some texts; `en` if there is no such language."""
    counts = Counter(detect_language(text) for text in texts)
    most, number = max(counts.items(), key=lambda pair: pair[1], default=(ENGLISH, 0))
    return most if 2 * number > counts.total() else ENGLISH


def known_languages() -> frozenset[str]:
    return frozenset({*_identifier().labels} - {_NO_LANGUAGE})


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

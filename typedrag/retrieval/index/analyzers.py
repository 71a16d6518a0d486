"""Analyzers, which turn texts and queries of a language into terms: those of Lucene.

English keeps Anserini's analyzer. Scripts without spaces, for which the packaged Java runtime has no dictionary,
are indexed by pairs of letters, as Lucene itself does with Chinese and Korean.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import regex

from typedrag.core.errors import InputError
from typedrag.retrieval.index.lucene import java_class, jvm_lock
from typedrag.text.language import ENGLISH, known_languages

ENGLISH_ANALYZER = "english: Porter stemmer, without stopwords"
_PACKAGE = "org.apache.lucene.analysis"
_CLASSES = {
    "ar": "ar.Arabic", "bg": "bg.Bulgarian", "bn": "bn.Bengali", "ca": "ca.Catalan", "ckb": "ckb.Sorani",
    "cs": "cz.Czech", "da": "da.Danish", "de": "de.German", "el": "el.Greek", "es": "es.Spanish",
    "et": "et.Estonian", "eu": "eu.Basque", "fa": "fa.Persian", "fi": "fi.Finnish", "fr": "fr.French",
    "ga": "ga.Irish", "gl": "gl.Galician", "hi": "hi.Hindi", "hu": "hu.Hungarian", "hy": "hy.Armenian",
    "id": "id.Indonesian", "it": "it.Italian", "ja": "ja.Japanese", "ko": "cjk.CJK", "lt": "lt.Lithuanian",
    "lv": "lv.Latvian", "ne": "ne.Nepali", "nl": "nl.Dutch", "nn": "no.Norwegian", "no": "no.Norwegian",
    "pl": "morfologik.Morfologik", "pt": "pt.Portuguese", "ro": "ro.Romanian", "ru": "ru.Russian",
    "sr": "sr.Serbian", "sv": "sv.Swedish", "ta": "ta.Tamil", "te": "te.Telugu", "tr": "tr.Turkish",
    "uk": "uk.UkrainianMorfologik", "wuu": "cjk.CJK", "yue": "cjk.CJK", "zh": "cjk.CJK",
}  # fmt: skip
_STANDARD = "standard.Standard"
"""Lucene's analyzer for other languages: words in lower case, without stems."""
_BY_PAIRS = frozenset(("dz", "km", "lo", "my", "th"))
_UNSPACED = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]+")
_BY_PAIRS_IN_CJK = frozenset(("ja", "ko", "wuu", "yue", "zh"))
_CJK = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}ー]+")


def check_language(language: str) -> None:
    """Refuse a code that is no known language."""
    if language not in (known := known_languages() | _CLASSES.keys()):
        raise InputError(f"'{language}' is no language of an index", f"Write one of: {', '.join(sorted(known))}")


def analyzer_name(language: str) -> str:
    """The name of a language's analyzer, as a manifest records it.

    Example:
        >>> analyzer_name("de"), analyzer_name("th")
        ("Lucene's GermanAnalyzer", "Lucene's StandardAnalyzer, over pairs of letters")
    """
    if language == ENGLISH:
        return ENGLISH_ANALYZER
    name = _class(language).rpartition(".")[2]
    return f"Lucene's {name}{', over pairs of letters' if language in _BY_PAIRS else ''}"


def java_analyzer(language: str) -> Any:
    """Lucene's analyzer for a language other than English, for a searcher."""
    with jvm_lock:
        return java_class(_class(language))()


def indexing_arguments(language: str) -> list[str]:
    """The arguments that make Anserini index texts in a language."""
    if language == ENGLISH:
        return []
    with jvm_lock:  # Anserini's own table has half of the languages that Lucene has
        java_class("io.anserini.analysis.AnalyzerMap").analyzerMap.put(language, _class(language))
    return ["-language", language]


def split_unspaced(text: str, language: str) -> str:
    """The text for the language's analyzer: scripts without spaces are split into pairs of letters.

    Example:
        >>> split_unspaced("ขนมbread", "th"), split_unspaced("bread", "en")
        (' ขน นม bread', 'bread')
    """
    return _UNSPACED.sub(_pairs, text) if language in _BY_PAIRS else text


def letter_pairs(text: str, language: str) -> str:
    """The text as `split_unspaced` gives it, Chinese, Japanese and Korean too: for analyzers that are not Lucene's.

    Example:
        >>> letter_pairs("東京大学 2020", "ja"), letter_pairs("bread", "en")
        (' 東京 京大 大学  2020', 'bread')
    """
    return _CJK.sub(_pairs, text) if language in _BY_PAIRS_IN_CJK else split_unspaced(text, language)


def _pairs(match: regex.Match[str]) -> str:
    letters = regex.findall(r"\X", match[0])  # a letter with its marks
    return f" {' '.join(map(''.join, pairwise(letters))) or match[0]} "


def _class(language: str) -> str:
    return f"{_PACKAGE}.{_CLASSES.get(language, _STANDARD)}Analyzer"

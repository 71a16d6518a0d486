"""The sentences of a text in any script: their repetitions, and the passages that they use."""

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import regex
from sentencex import segment

from typedrag.core.records import Answer, Passage
from typedrag.text.words import content_words, encodable, split_words

_ITEM_NUMBER = regex.compile(r"^\W*\p{Nd}+(?:[.):]\s+|、)")


def sentences(text: str) -> list[str]:
    """The sentences of a text, line by line; a piece without letters, such as a number, belongs to the next.

    Example:
        >>> sentences("Yeast makes gas. Dough rises!\\n1. Knead it.\\n2. Bake it")
        ['Yeast makes gas.', 'Dough rises!', '1. Knead it.', '2. Bake it']
        >>> sentences("酵母产生气体。面团发起来。"), sentences("खमीर गैस बनाता है। आटा फूलता है।")
        (['酵母产生气体。', '面团发起来。'], ['खमीर गैस बनाता है।', 'आटा फूलता है।'])
    """
    whole: list[str] = []
    for line in encodable(text).splitlines():
        begun = ""
        for piece in filter(str.strip, segment("en", line)):  # English abbreviations, but the ends of all languages
            begun += piece
            if any(letter.isalpha() for letter in piece):
                whole.append(begun.strip())
                begun = ""
        if begun.strip():
            whole.append(begun.strip())
    return whole


def without_item_number(sentence: str) -> str:
    return _ITEM_NUMBER.sub("", sentence, concurrent=False)


_SENTENCE_WORDS = 4  # the words of a sentence that may not be repeated, at least; shorter ones may: "Let it dry."
_ROUNDS = 8  # rounds of the same characters that make a loop at the end of a text; rows of tables have fewer
_ROUND_CHARACTERS = 4  # characters of a round, at least; shorter ones are counted as this long: "hahaha"


def repeated_sentences(text: str) -> list[str]:
    """The sentences that repeat an earlier one word for word; the last one may break off and repeat it in part.

    The number of a list's item makes no difference, nor do case and marks. Sentences of fewer than
    `_SENTENCE_WORDS` words do not count, except the last of a text that broke off among repeated ones.
    """
    parts = sentences(text)
    return [sentence for sentence, repeated in zip(parts, _repeated(parts), strict=True) if repeated]


def without_repetitions(text: str) -> str:
    """The text without its end, if that only repeats earlier sentences or rounds of the same characters.

    Example:
        >>> without_repetitions("Yeast makes gas in dough. It rises. Yeast makes gas in dough. Yeast makes")
        'Yeast makes gas in dough. It rises.'
        >>> without_repetitions("They are red, blue" + ", red, blue" * 9 + ", red, bl")
        'They are red, blue,'
    """
    parts = sentences(text)
    repeated = _repeated(parts)
    count = len(parts)
    while count and repeated[count - 1]:
        count -= 1
    rest, signs = text, sum(map(len, "".join(parts[count:]).split()))
    for word in reversed(list(re.finditer(r"\S+", text)) if signs else []):  # whitespace may differ from the text's
        if len(word[0]) >= signs:
            rest = text[: word.end() - signs].rstrip()
            break
        signs -= len(word[0])
    length, round_ = _loop(rest)
    return rest[: len(rest) - length + round_].rstrip() if length else rest


def _repeated(parts: Sequence[str]) -> list[bool]:
    """Truth values of the sentences: True for one that was said before."""
    keys: set[str] = set()
    repeated: list[bool] = []
    for sentence in parts:
        words = split_words(without_item_number(sentence))
        key = " ".join(words)
        breaks_off = len(repeated) == len(parts) - 1 and sentence[-1].isalnum()
        enough = len(words) >= _SENTENCE_WORDS or (breaks_off and repeated[-1:] == [True] and words != [])
        repeated.append(enough and (key in keys or (breaks_off and any(known.startswith(key) for known in keys))))
        keys.add(key)
    return repeated


def _loop(text: str) -> tuple[int, int]:
    """The length of the rounds of the same characters that end a text, and that of one round; zeros without a loop.

    A text that is a loop from its beginning has a border of all but one round (Knuth, Morris and Pratt's failure
    function). The search therefore runs backwards from the text's end.
    """
    if text.count(text[-_ROUND_CHARACTERS:]) < _ROUNDS // 2:  # what most texts end with is not said so often
        return 0, 0
    signs = text[::-1]
    borders, border, longest = [0], 0, (0, 0)
    for place in range(1, len(signs)):
        while border and signs[place] != signs[border]:
            border = borders[border - 1]
        border += signs[place] == signs[border]
        borders.append(border)
        length, round_ = place + 1, place + 1 - border
        if length >= _ROUNDS * max(round_, _ROUND_CHARACTERS):
            longest = (length, round_)
    return longest if any(sign.isalpha() for sign in text[len(text) - longest[0] :]) else (0, 0)


class Support(NamedTuple):
    """A sentence of an answer, from `start` to before `end` in characters, and the passage that it uses."""

    start: int
    end: int
    passage_id: str


def cited_sentences(answer: str, cited: Sequence[Passage], question: str) -> list[Support]:
    """The sentences of an answer that use something of each passage it cites, see `used_passages`.

    A cited passage that no sentence uses counts as support for the whole answer.
    """
    supports = []
    end = 0
    for sentence in sentences(answer):
        start = answer.find(sentence, end)
        if start < 0:  # the sentence holds a character that was replaced
            continue
        end = start + len(sentence)
        if not content_words(sentence) - content_words(question):
            continue  # the sentence says nothing that the question does not
        used = used_passages(sentence, cited, question)
        supports += [Support(start, end, passage.id) for passage in cited if passage.id in used]
    used_ids = {support.passage_id for support in supports}
    return supports + [Support(0, len(answer), passage.id) for passage in cited if passage.id not in used_ids]


def with_source_numbers(answer: Answer) -> str:
    """An answer's text for a reader, with the numbers that `Answer.sources` has after the sentences that use them.

    Example:
        >>> yeast = Passage("yeast", "Old yeast makes little gas.")
        >>> answer = Answer("Why?", "Little gas is made. Knead it.", passages=(yeast,), citations=("yeast",))
        >>> with_source_numbers(answer)
        'Little gas is made. [1] Knead it.'
    """
    numbers = {passage.id: number for number, passage in enumerate(answer.cited, 1)}
    marks: dict[int, set[int]] = defaultdict(set)
    for support in cited_sentences(answer.answer, answer.cited, answer.question):
        marks[support.end].add(numbers[support.passage_id])
    text = answer.answer
    for end in sorted(marks, reverse=True):
        text = f"{text[:end]} {''.join(f'[{number}]' for number in sorted(marks[end]))}{text[end:]}"
    return answer.marked.removesuffix(answer.answer) + text


_NEW_WORDS = 2  # words besides the question's, at least, that show a sentence to come from a passage
_MOST_SENTENCES = 200  # sentences of an answer that are looked at: a stranger's text may be nothing but full stops
_SHARE = 1 / 3
"""The share of a sentence's words; passages on the same subject have two or three in common with any sentence."""


class SentencePair(NamedTuple):
    """A sentence of an answer, and the sentence of a passage that supports it."""

    sentence: str
    passage_id: str
    passage_sentence: str


def supporting_sentences(answer: str, passages: Sequence[Passage], question: str) -> list[SentencePair]:
    """The sentences of passages that support each sentence of an answer, one a passage at most, best first.

    A sentence supports one of the answer if it holds a third of that one's content words, and at least two or the
    only one, not counting words of the question or of a better support.

    Example:
        >>> passages = [Passage("yeast", "Yeast is a fungus. Old yeast makes little gas."), Passage("cats", "Cats purr.")]
        >>> supporting_sentences("It is dense. The gas is little where yeast is old.", passages, "Why is bread dense?")
        [SentencePair(sentence='The gas is little where yeast is old.', passage_id='yeast', passage_sentence='Old yeast makes little gas.')]
    """  # noqa: E501
    question_words = content_words(question)
    sentences_of = {p.id: [(s, content_words(s)) for s in sentences(p.text)] for p in passages}
    supports: list[SentencePair] = []
    for sentence in list(dict.fromkeys(sentences(answer)))[:_MOST_SENTENCES]:
        words = content_words(sentence) - question_words
        best = [
            (passage_id, *max(((s, words & own) for s, own in candidates), key=lambda pair: len(pair[1])))
            for passage_id, candidates in sentences_of.items()
            if candidates and words
        ]
        explained: frozenset[str] = frozenset()
        for passage_id, supporting, shared in sorted(best, key=lambda entry: -len(entry[2])):
            if len(shared - explained) >= max(min(_NEW_WORDS, len(words)), _SHARE * len(words)):
                supports.append(SentencePair(sentence, passage_id, supporting))
                explained |= shared
    return supports


def passage_share(answer: str, passages: Sequence[Passage], question: str) -> float:
    """The share that passages have of the content words which a sentence adds to the question: the mean of those
    sentences of an answer that add any, 1 without one.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas.")]
        >>> passage_share("Old yeast makes little gas. The gas smells.", passages, "Why is bread dense?")
        0.75
    """
    theirs, question_words = content_words(" ".join(p.titled for p in passages)), content_words(question)
    new = [words for s in sentences(answer)[:_MOST_SENTENCES] if (words := content_words(s) - question_words)]
    return fmean(len(words & theirs) / len(words) for words in new) if new else 1.0


def used_passages(answer: str, passages: Sequence[Passage], question: str) -> frozenset[str]:
    """The ids of the passages that an answer uses.

    A passage counts as used if it holds at least two content words of the answer, or its only one, that are neither
    in the question nor in a passage which holds more of the answer. An answer without words of its own, besides the
    question's, may use all of them.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> sorted(used_passages("Bread gets dense because old yeast makes little gas.", passages, "Why?"))
        ['yeast']
        >>> sorted(used_passages("Cats.", passages, "Who?")), sorted(used_passages("Dogs bark.", passages, "Who?"))
        (['cats'], [])
    """
    answered = content_words(answer) - content_words(question)
    shared = {p.id: answered & content_words(f"{p.title} {p.text}") for p in passages}
    used: set[str] = set()
    explained: set[str] = set()
    for passage_id, words in sorted(shared.items(), key=lambda pair: -len(pair[1])):
        if len(words - explained) >= min(_NEW_WORDS, len(answered)):
            used.add(passage_id)
            explained |= words
    return frozenset(used)

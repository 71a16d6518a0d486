"""Faults of an answer that show without knowing the right answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import ClassVar, NamedTuple

import dspy
import regex

from typedrag.core.errors import InputError
from typedrag.core.records import CUT_OFF, Passage
from typedrag.metrics.judges.support import Support, open_support
from typedrag.metrics.metric import Metric, Scored, listed, metric, quoted
from typedrag.signatures.judging import SupportVerdict
from typedrag.text.citations import used_passages
from typedrag.text.language import detect_language, detect_main_language
from typedrag.text.repetitions import repeated_sentences
from typedrag.text.sentences import sentences, without_item_number
from typedrag.text.words import content_words, ends_in_question_mark, split_words

_CLAUSES = re.compile(r"[,;:()–—]|\b(?:while|whereas|but|however|although|though)\b", re.IGNORECASE)
_PARTS = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_REASON = frozenset("because since as due so which who that when if".split())
_IRREGULAR = {"better": ("good", True), "worse": ("good", False), "fewer": ("", False)}
_BEFORE = frozenset(
    """is are be was were been being become becomes became seems seem much far even slightly generally usually often
    also typically considerably significantly still always mostly somewhat""".split()
)
"""Words after which a word in -er is a comparative."""
_NOUNS = frozenset(
    """water paper power silver rubber leather timber fiber fibre winter summer corner matter order other another
    either neither rather together whether over under after never ever former latter super proper per number user
    later however letter sister brother mother father her inner outer upper consumer computer""".split()
)


class Claim(NamedTuple):
    """A claim that something is more or less than something else.

    Attributes:
        subject: The stems of the thing that the claim is about.
        attribute: The stem of the property in which it is more or less.
        more: True for more, False for less.
        rest: The stems of the rest of the claim, such as when it holds.
        than: The stems of the thing that it is compared with; empty if the claim names none.
    """

    subject: frozenset[str]
    attribute: str
    more: bool
    rest: frozenset[str]
    than: frozenset[str]


def claims(sentence: str) -> list[Claim]:
    """The claims of a sentence; parts joined by "and" share the subject.

    Example:
        >>> [(sorted(c.subject), c.attribute, c.more) for c in claims("Cats are cheaper and less loud, but shy.")]
        [(['cat'], 'cheap', True), (['cat'], 'loud', False)]
    """
    results = []
    for clause in _CLAUSES.split(sentence):
        subject: frozenset[str] = frozenset()
        for part in _PARTS.split(clause):
            if claim := _claim(split_words(part)):
                subject = claim.subject or subject
                if subject:
                    results.append(claim._replace(subject=subject))
    return results


def exclude(one: Claim, other: Claim, compared: frozenset[str]) -> bool:
    """True if two claims exclude each other: one thing is both more and less, or each of two is more than the other.

    If X is among the things that the question compares, by their stems, "X is safer" means safer than the other.
    """
    if one.attribute != other.attribute or one.rest != other.rest:
        return False
    if one.more != other.more:
        return one.subject == other.subject and (one.than == other.than or not one.than or not other.than)
    mine, others = one.subject - other.subject, other.subject - one.subject
    if not mine or not others:
        return False
    return others <= (one.than or (compared if mine <= compared else frozenset())) and mine <= (
        other.than or (compared if others <= compared else frozenset())
    )


def _claim(words: list[str]) -> Claim | None:
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word in ("more", "less") and content_words(following):
            return _made(words[:place], _stem(following), word == "more", words[place + 2 :])
        if _compares(word, words[place - 1] if place else "", following):
            attribute, more = _IRREGULAR.get(word, (_positive(word), True))
            return _made(words[:place], _stem(attribute), more, words[place + 1 :])
    return None


def _made(subject: list[str], attribute: str, more: bool, after: list[str]) -> Claim:
    end = next((place for place, word in enumerate(after) if word in _REASON), len(after))
    than = after.index("than") if "than" in after[:end] else end
    texts = (subject, after[:than], after[than + 1 : end])
    about, rest, other = (content_words(" ".join(word for word in text if word not in _BEFORE)) for text in texts)
    return Claim(about, attribute, more, rest, other)


def _compares(word: str, before: str, following: str) -> bool:
    if word in _IRREGULAR:
        return bool(_IRREGULAR[word][0])
    return word.endswith("er") and len(word) > 4 and word not in _NOUNS and (before in _BEFORE or following == "than")


def _positive(word: str) -> str:
    """The base form of a comparative, without an e at its end."""
    stem = word[:-2]
    return stem[:-1] if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsf" else stem


def _stem(word: str) -> str:
    return next(iter(content_words(word)), word).rstrip("e")


_NEGATIONS = frozenset(
    """not no never neither nor none nicht kein keine keinen keinem keiner keines nie niemals ne n pas jamais aucun
    aucune nunca non mai não niet geen nooit не ни нет никогда 不 没 沒 未 无 無 لا ليس ليست لم لن नहीं न मत""".split()
)
_EITHER_ORDER = frozenset(
    """and or with between differ differs different same equal equals as like both und oder mit et ou avec y e o u con
    com en of met и или с 和 与 與 跟 同 或 と や و أو और या""".split()
)
"""Words that let the two things around them change places."""
_LEAST_WORDS = 4
_NUMBER = regex.compile(r"\p{Nd}+(?:[.,'\u00a0\u202f]\p{Nd}+)*")
_NOT = regex.compile(r"(?<=can)not\b|n['’]t\b", regex.IGNORECASE)
_ANY = "0"


class _Sentence(NamedTuple):
    """A sentence, prepared to be compared.

    Attributes:
        words: Its words in their order, each number as `_ANY`.
        numbers: Its numbers in their order.
        negated: Whether it has a negation.
        content: Its content words, without negations.
        claims: Its comparative claims.
    """

    text: str
    words: list[str]
    numbers: list[str]
    negated: bool
    content: frozenset[str]
    claims: list[Claim]


def contradictions(text: str, question: str = "") -> list[tuple[str, str]]:
    """Pairs of sentences that exclude each other: the earliest such sentence, and the later one (or itself).

    Args:
        text: An answer.
        question: Its question. If it compares two things, "X is safer" and "Y is safer" exclude each other.

    Example:
        >>> contradictions("Nuclear power is safer. Wind power is safer.", "Is nuclear or wind power safer?")
        [('Nuclear power is safer.', 'Wind power is safer.')]
        >>> contradictions("Yeast makes gas. It's old. Yeast doesn't make gas."), contradictions("面包不好。面包很好。")
        ([('Yeast makes gas.', "Yeast doesn't make gas.")], [])
    """
    statements = [_read(s) for s in dict.fromkeys(sentences(text)) if not ends_in_question_mark(s)]
    compared = content_words(question)
    excluded_by: dict[str, str] = {}
    for sentence in statements:
        if any(exclude(*pair, compared) for pair in combinations(sentence.claims, 2)):
            excluded_by.setdefault(sentence.text, sentence.text)
    for first, second in combinations(statements, 2):
        if _excludes(first, second, compared):
            excluded_by.setdefault(second.text, first.text)
    return [(excluded_by[s.text], s.text) for s in statements if s.text in excluded_by]


def contradictions_by(support: Support, text: str, question: str = "") -> list[tuple[str, str]]:
    """Pairs as of `contradictions`, by a model that judges each later sentence against each earlier one."""
    statements = list(dict.fromkeys(sentences(text)))
    excluded_by: dict[str, str] = {}
    for place, first in enumerate(statements[:-1], 1):
        verdicts = support.verdicts(question, statements[place:], [first])
        for second, verdict in zip(statements[place:], verdicts, strict=True):
            if verdict is SupportVerdict.CONTRADICTED:
                excluded_by.setdefault(second, first)
    return [(excluded_by[sentence], sentence) for sentence in statements if sentence in excluded_by]


def _read(sentence: str) -> _Sentence:
    text = _NOT.sub(" not", without_item_number(sentence))
    words = split_words(_NUMBER.sub(f" {_ANY} ", text))
    positive = [word for word in words if word not in _NEGATIONS]
    # twice, for "does not make" beside "makes": a stem may be no content word where the word itself is one
    content = content_words(" ".join(content_words(" ".join(positive)))) - {_ANY}
    return _Sentence(sentence, words, _NUMBER.findall(text), len(positive) < len(words), content, claims(text))


def _excludes(first: _Sentence, second: _Sentence, compared: frozenset[str]) -> bool:
    return (
        _is_negated(first, second)
        or _has_another_number(first, second)
        or _is_swapped(first.words, second.words)
        or any(exclude(one, other, compared) for one in first.claims for other in second.claims)
    )


def _is_negated(first: _Sentence, second: _Sentence) -> bool:
    same = first.content == second.content and first.numbers == second.numbers
    return same and len(first.content) > 1 and first.negated != second.negated


def _has_another_number(first: _Sentence, second: _Sentence) -> bool:
    """True if exactly one number differs, and not the one at the start, which is a year or a step: its subject."""
    if first.words != second.words or len(first.words) < _LEAST_WORDS or len(first.numbers) != len(second.numbers):
        return False
    places = [place for place, word in enumerate(first.words) if word == _ANY]
    other = [place for place, *pair in zip(places, first.numbers, second.numbers, strict=True) if pair[0] != pair[1]]
    return len(other) == 1 and other[0] > 1


def _is_swapped(first: Sequence[str], second: Sequence[str]) -> bool:
    """True if two parts of a sentence have changed places around words that make a difference."""
    if len(first) < _LEAST_WORDS or first == second or sorted(first) != sorted(second):
        return False
    different = [place for place, words in enumerate(zip(first, second, strict=True)) if words[0] != words[1]]
    start, end = different[0], different[-1] + 1
    between = next(_between(first[start:end], second[start:end]), ())
    return bool(between) and not _EITHER_ORDER.intersection(between)


def _between(first: Sequence[str], second: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the words between two parts that have changed places, if there are any."""
    length = len(first)
    for one in range(1, length):
        if first[:one] == second[length - one :]:
            for other in range(1, length - one + 1):
                if (
                    second[:other] == first[length - other :]
                    and first[one : length - other] == second[other : length - one]
                ):
                    yield first[one : length - other]


BY_WORDS = "words"
_QUOTED = 20
"""The number of words of a sentence to quote."""


def unused_citations(answer: str, citations: Sequence[str], passages: Sequence[Passage], question: str) -> list[str]:
    """The ids of the passages that an answer cites without using them; empty if its language differs from theirs.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> unused_citations("Because old yeast makes little gas.", ["yeast", "cats"], passages, "Why is it dense?")
        ['cats']
        >>> unused_citations("Weil alte Hefe nur wenig Gas bildet.", ["yeast"], passages, "Why is it dense?")
        []
    """
    cited = list({p.id: p for p in passages if p.id in citations}.values())
    used = used_passages(answer, cited, question)
    if cited and not used and detect_language(answer) != detect_main_language(p.text for p in cited):
        return []
    return [p.id for p in cited if p.id not in used]


@metric
class Defects(Metric):
    """The number of faults that show in the answer itself; no LM is asked.

    Measures, fewer being better: `repeated_sentences`; `contradictions`, sentences that exclude an earlier one,
    see `contradictions`; `unused_citations`, cited passages that the answer does not use, see `used_passages`;
    `cut_off`, 1 if a reply ended at `max_tokens`, else 0. The score is 1 / (1 + their sum).

    Args:
        make: What finds contradictions: `words`, or `nli:NAME`, a model of natural language inference.

    Raises:
        InputError: If the make is neither of these.
    """

    name: ClassVar[str] = "defects"
    measures = ("repeated_sentences", "contradictions", "unused_citations", "cut_off")

    make: str = BY_WORDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.make != BY_WORDS and not self.make.startswith("nli:"):
            raise InputError(f"contradictions cannot be told by '{self.make}'", f"Write {BY_WORDS} or nli:NAME")
        self._support = None if self.make == BY_WORDS else open_support(self.make)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Count the faults of an answer and of its program's fallbacks."""
        answer, question = prediction.answer, example.question
        repeated = repeated_sentences(answer)
        support = self._support
        excluding = contradictions_by(support, answer, question) if support else contradictions(answer, question)
        unused = unused_citations(answer, prediction.get("citations") or (), prediction.get("passages") or (), question)
        cut_off = CUT_OFF in (prediction.get("fallback") or "")
        counts = (len(repeated), len(excluding), len(unused), cut_off)
        messages = (
            f"It says again: {listed(repeated, words=_QUOTED)}." if repeated else "",
            *(_on(first, second) for first, second in excluding[:1]),
            f"It cites, and uses nothing of: {', '.join(unused)}." if unused else "",
            "A reply was cut off before its end." if cut_off else "",
        )
        measures = {name: float(count) for name, count in zip(self.measures, counts, strict=True)}
        details = {"repeated": repeated, "contradictions": [list(pair) for pair in excluding], "unused": unused}
        return Scored(1 / (1 + sum(counts)), " ".join(filter(None, messages)), measures, details)


def _on(first: str, second: str) -> str:
    if first == second:
        return f"It contradicts itself in {quoted(first, _QUOTED)}."
    return f"It says {quoted(first, _QUOTED)} and {quoted(second, _QUOTED)}, which exclude each other."

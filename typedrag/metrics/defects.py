"""Faults of an answer that show without knowing the right answer.

Contradictions are found by the words of sentences and without an LM: precise rather than complete. Two sentences
exclude each other if they have the same words, but one is negated, has another number or swaps two things; in English
also if each of two things is said to be more than the other, or one to be both more and less.
"""

import re
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar, NamedTuple

import dspy
import regex

from typedrag.core.records import CUT_OFF, Passage
from typedrag.core.registry import SpecGrammar
from typedrag.metrics.judges.support import Support, open_support
from typedrag.metrics.metric import Metric, Scored, listed, metric, quoted
from typedrag.signatures.judging import SupportVerdict
from typedrag.text.language import detect_language, detect_main_language
from typedrag.text.sentences import repeated_sentences, sentences, used_passages, without_item_number
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
    """A claim that something is more or less than something else; all but `more` are stems. `attribute` is the
    property, `rest` when it holds and the like, and `than` is empty if nothing is compared with."""

    subject: frozenset[str]
    attribute: str
    more: bool
    rest: frozenset[str]
    than: frozenset[str]


def claims(sentence: str) -> list[Claim]:
    """The claims of a sentence; parts joined by "and" share the subject."""
    results = []
    for clause in _CLAUSES.split(sentence):
        subject: frozenset[str] = frozenset()
        for part in _PARTS.split(clause):
            if claim := _read_claim(split_words(part)):
                subject = claim.subject or subject
                if subject:
                    results.append(claim._replace(subject=subject))
    return results


def _read_claim(words: list[str]) -> Claim | None:
    """The claim of the first comparative among some words."""
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        following = words[place + 1] if place + 1 < len(words) else ""
        in_er = word.endswith("er") and len(word) > 4 and word not in _NOUNS
        if word in ("more", "less") and content_words(following):
            attribute, more, after = following, word == "more", words[place + 2 :]
        elif word in _IRREGULAR and _IRREGULAR[word][0]:
            attribute, more, after = *_IRREGULAR[word], words[place + 1 :]
        elif word not in _IRREGULAR and in_er and (before in _BEFORE or following == "than"):
            base = word[:-2]
            is_doubled = len(base) > 2 and base[-1] == base[-2] and base[-1] not in "lsf"
            attribute, more, after = base[:-1] if is_doubled else base, True, words[place + 1 :]
        else:
            continue
        end = next((n for n, other in enumerate(after) if other in _REASON), len(after))
        than = after.index("than") if "than" in after[:end] else end
        subject, rest, other = (
            content_words(" ".join(word for word in text if word not in _BEFORE))
            for text in (words[:place], after[:than], after[than + 1 : end])
        )
        return Claim(subject, next(iter(content_words(attribute)), attribute).rstrip("e"), more, rest, other)
    return None


def exclude(one: Claim, other: Claim, compared: frozenset[str]) -> bool:
    """True if one thing is both more and less, or each of two is more than the other. If X is among the stems of the
    things that the question compares, "X is safer" means safer than the other."""
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
    """A sentence, prepared to be compared: its words have `_ANY` for numbers, its content words no negations."""

    text: str
    words: list[str]
    numbers: list[str]
    negated: bool
    content: frozenset[str]
    claims: list[Claim]


def contradictions(text: str, question: str = "", support: Support | None = None) -> list[tuple[str, str]]:
    """Pairs of sentences that exclude each other: the earliest such sentence, and the later one (or itself). With
    `support`, a model judges each later sentence against each earlier one."""
    excluded_by: dict[str, str] = {}
    texts = list(dict.fromkeys(sentences(text)))
    if support:
        for place, first in enumerate(texts[:-1], 1):
            verdicts = support.verdicts(question, texts[place:], [first])
            for second, verdict in zip(texts[place:], verdicts, strict=True):
                if verdict is SupportVerdict.CONTRADICTED:
                    excluded_by.setdefault(second, first)
        return [(excluded_by[sentence], sentence) for sentence in texts if sentence in excluded_by]
    statements = [_read(sentence) for sentence in texts if not ends_in_question_mark(sentence)]
    compared = content_words(question)
    for sentence in statements:
        if any(exclude(*pair, compared) for pair in combinations(sentence.claims, 2)):
            excluded_by.setdefault(sentence.text, sentence.text)
    for one, other in combinations(statements, 2):
        if _excludes(one, other, compared):
            excluded_by.setdefault(other.text, one.text)
    return [(excluded_by[s.text], s.text) for s in statements if s.text in excluded_by]


def _read(sentence: str) -> _Sentence:
    text = _NOT.sub(" not", without_item_number(sentence))
    words = split_words(_NUMBER.sub(f" {_ANY} ", text))
    positive = [word for word in words if word not in _NEGATIONS]
    # twice, for "does not make" beside "makes": a stem may be no content word where the word itself is one
    content = content_words(" ".join(content_words(" ".join(positive)))) - {_ANY}
    return _Sentence(sentence, words, _NUMBER.findall(text), len(positive) < len(words), content, claims(text))


def _excludes(first: _Sentence, second: _Sentence, compared: frozenset[str]) -> bool:
    is_same = first.content == second.content and first.numbers == second.numbers
    if is_same and len(first.content) > 1 and first.negated != second.negated:
        return True
    if first.words == second.words and len(first.words) >= _LEAST_WORDS and len(first.numbers) == len(second.numbers):
        places = [place for place, word in enumerate(first.words) if word == _ANY]
        numbers = zip(places, first.numbers, second.numbers, strict=True)
        other = [place for place, one, another in numbers if one != another]
        if len(other) == 1 and other[0] > 1:  # the number at the start is a year or a step: the sentence's subject
            return True
    return _is_swapped(first.words, second.words) or any(
        exclude(one, another, compared) for one in first.claims for another in second.claims
    )


def _is_swapped(first: Sequence[str], second: Sequence[str]) -> bool:
    """True if two parts of a sentence have changed places around words that make a difference."""
    if len(first) < _LEAST_WORDS or first == second or sorted(first) != sorted(second):
        return False
    different = [place for place, words in enumerate(zip(first, second, strict=True)) if words[0] != words[1]]
    ours, theirs = (words[different[0] : different[-1] + 1] for words in (first, second))
    length = len(ours)
    for one in range(1, length):
        if ours[:one] != theirs[length - one :]:
            continue
        for other in range(1, length - one + 1):
            between = ours[one : length - other]
            if theirs[:other] == ours[length - other :] and between == theirs[other : length - one]:
                return bool(between) and not _EITHER_ORDER.intersection(between)
    return False


BY_WORDS = "words"
_MAKES = SpecGrammar("way to find contradictions", BY_WORDS, "nli:NAME")
_QUOTED = 20
"""The number of words of a sentence to quote."""


def unused_citations(answer: str, citations: Sequence[str], passages: Sequence[Passage], question: str) -> list[str]:
    """The ids of the passages that an answer cites without using them; empty if its language differs from theirs."""
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
        self._support = None if _MAKES.parse(self.make).kind == BY_WORDS else open_support(self.make)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        answer, question = prediction.answer, example.question
        repeated = repeated_sentences(answer)
        excluding = contradictions(answer, question, self._support)
        unused = unused_citations(answer, prediction.get("citations") or (), prediction.get("passages") or (), question)
        cut_off = CUT_OFF in (prediction.get("fallback") or "")
        messages = []
        if repeated:
            messages.append(f"It says again: {listed(repeated, words=_QUOTED)}.")
        for first, second in excluding[:1]:
            messages.append(
                f"It contradicts itself in {quoted(first, _QUOTED)}."
                if first == second
                else f"It says {quoted(first, _QUOTED)} and {quoted(second, _QUOTED)}, which exclude each other."
            )
        if unused:
            messages.append(f"It cites, and uses nothing of: {', '.join(unused)}.")
        if cut_off:
            messages.append("A reply was cut off before its end.")
        counts = (len(repeated), len(excluding), len(unused), cut_off)
        measures = {name: float(count) for name, count in zip(self.measures, counts, strict=True)}
        details = {"repeated": repeated, "contradictions": [list(pair) for pair in excluding], "unused": unused}
        return Scored(1 / (1 + sum(counts)), " ".join(messages), measures, details)

"""Support of an answer's sentences by sources: by the embeddings and words of both, by an NLI model, or by an LM.

Names and negations are found as English writes them. The thresholds were set on half of the questions of Wiki-NFQA:
`benchmarks/support.py` measures them on the other half.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import product
from typing import Any, Protocol

import dspy

from typedrag.core.errors import InputError, Unavailable
from typedrag.core.registry import SpecGrammar
from typedrag.lms.asking import allow_tokens, ask, with_settings
from typedrag.metrics.overlap import in_digits
from typedrag.retrieval.local_models import loading, local_model, locate_model
from typedrag.retrieval.rerankers import BI_ENCODER, cosines
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import add_keys, require_keys, values
from typedrag.signatures.judging import JudgeSupport, SupportVerdict
from typedrag.text.sentences import sentences as split_sentences
from typedrag.text.sentences import without_item_number
from typedrag.text.words import content_words, first_words, split_words

NEAR = 0.6
SHARED = 0.25
"""The least share of the words a sentence adds to the question that its sources must have."""
ALMOST_THE_SAME = 0.85
"""The least cosine at which two sentences contradict each other if one of them is negated."""
MOST_EXCHANGED = 5
"""The most content words that replace others in one place: more are another thought."""

FRAGMENT = 5
"""The most words of a fragment, which may say too little by itself to be near a sentence: it is also read after the
question."""

_LEAST_NUMERAL = 3
_QUOTED = re.compile(r"[\"“«]([^\"”»]{1,60})[\"”»]")
_WORD = re.compile(r"\w+")
_DENIES = {"not", "no", "never", "none", "neither", "nor", "without", "cannot", "nothing", "nobody", "t"}
"""Words that negate a sentence; "t" is the end of "don't"."""


class Support(Protocol):
    """Judges the support of sentences by sources: `verdicts` has one for each sentence by all sources, at least one."""

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]: ...


class EmbeddingSupport:
    """Judges by a bi-encoder, names, numbers and words. A sentence is

    - supported, if it is near a source (a fragment also with the question before it), its numbers, names and quoted
      terms are all in the question or the sources, and so are enough of the words that it adds to the question;
    - contradicted, if it is almost the same as a source, but one of the two is negated, or if it is not supported, but
      near a source, and has another number, name or quoted term in the same place;
    - otherwise not stated.
    """

    def __init__(self, model: str = BI_ENCODER) -> None:
        self.model = model

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        parts = [without_item_number(part) for source in sources for part in split_sentences(source)]
        known = " ".join(sources)

        def judge(sentence: str) -> SupportVerdict:
            texts = [sentence] if len(sentence.split()) > FRAGMENT else [sentence, f"{question} {sentence}"]
            near = ((c, part) for t in texts for c, part in zip(cosines(t, parts, self.model), parts, strict=True))
            cosine, nearest = max(near, default=(0.0, ""))
            if cosine < NEAR:
                return SupportVerdict.NOT_STATED
            ours, theirs = (sum(word in _DENIES for word in split_words(text)) % 2 for text in (sentence, nearest))
            if cosine >= ALMOST_THE_SAME and ours != theirs:
                return SupportVerdict.CONTRADICTED
            new = particulars(sentence, f"{question} {known}")
            if not new and shared_words(sentence, question, known) >= SHARED:
                return SupportVerdict.SUPPORTED
            exchanged = new and _stands_for_another(new, sentence, nearest, question)
            return SupportVerdict.CONTRADICTED if exchanged else SupportVerdict.NOT_STATED

        return [judge(without_item_number(sentence)) for sentence in sentences]


def particulars(sentence: str, known: str) -> frozenset[str]:
    """The words of a sentence's numbers, names and quoted terms that a text lacks."""
    had = _content(known)
    sentence = _plain(sentence)
    words = list(_WORD.finditer(sentence))
    named = {w for quote in _QUOTED.findall(sentence) for w in split_words(quote)}
    for word, following in zip(words, [*(w[0] for w in words[1:]), ""], strict=False):
        before = sentence[: word.start()].rstrip(" \"'“«(*")
        begins = not before or before[-1] in ".!?:\n"
        name = word[0][0].isupper() and (following[:1].isupper() or not begins)
        if name or any(character.isdigit() for character in word[0]):
            named.add(word[0].lower())
    return frozenset(word for word in named if not content_words(word) <= had)


def shared_words(sentence: str, question: str, known: str) -> float:
    """The share that a text has of the words that a sentence adds to a question; 1 if it adds none."""
    added = _content(sentence) - _content(question)
    return len(added & _content(known)) / len(added) if added else 1.0


def _stands_for_another(new: frozenset[str], sentence: str, source: str, question: str) -> bool:
    """True if the source has, in the place of one of the words, something that neither sentence nor question has."""
    ours, theirs = split_words(_plain(sentence)), split_words(_plain(source))
    known = _content(sentence) | _content(question)
    for kind, start, end, other_start, other_end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        here, there = (content_words(" ".join(w)) for w in (ours[start:end], theirs[other_start:other_end]))
        if (
            kind == "replace"
            and max(len(here), len(there)) <= MOST_EXCHANGED
            and there - known
            and new & {*ours[start:end]}
        ):
            return True
    return False


@lru_cache(4096)
def _content(text: str) -> frozenset[str]:
    return content_words(_plain(text))


def _plain(text: str) -> str:
    """The text with numerals as digits, and without the marks between digits."""
    return re.sub(r"(?<=\d)[.,](?=\d)", "", in_digits(text, _LEAST_NUMERAL))


SUPPORTS = SpecGrammar("way to judge support", "embedding", "nli:NAME", "lm")
_SOURCE_WORDS = 200
_MOST_SOURCES = 10
"""The most sources that an LM reads; those that the answer cites come first."""
_TOKENS_A_VERDICT = 12


def open_support(spec: str) -> Support:
    """The make of support that a spec names; models are loaded on first use."""
    kind, name = SUPPORTS.parse(spec)
    if kind == "embedding":
        return EmbeddingSupport()
    return NLISupport(name) if kind == "nli" else LMSupport()


class NLISupport:
    """Judges by a model of natural language inference. A sentence is supported if one source entails it; otherwise
    contradicted if one contradicts it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        with _nli_model(self.name) as (model, labels):
            pairs = [(source, sentence) for sentence, source in product(sentences, sources)]
            likeliest = model.predict(pairs, show_progress_bar=False).argmax(axis=1).tolist() if pairs else []
        by_pair = [labels.get(place, SupportVerdict.NOT_STATED) for place in likeliest]
        of_sentences = [by_pair[start : start + len(sources)] for start in range(0, len(by_pair), len(sources))]
        return [
            next((verdict for verdict in SupportVerdict if verdict in of_one), SupportVerdict.NOT_STATED)
            for of_one in of_sentences
        ]


@local_model
def _nli_model(name: str) -> tuple[Any, Mapping[int, SupportVerdict]]:
    """A model, and the verdicts of those of its outputs that mean entailment or contradiction."""
    with loading(f"the model '{name}'", error=Unavailable):
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(locate_model(name), trust_remote_code=False)
    names = {place: str(label).lower() for place, label in model.config.id2label.items()}
    labels = {
        **{place: SupportVerdict.SUPPORTED for place, label in names.items() if label.startswith("entail")},
        **{place: SupportVerdict.CONTRADICTED for place, label in names.items() if label.startswith("contradict")},
    }
    if len(labels) != 2:
        raise InputError(
            f"the model '{name}' tells no entailment and contradiction: its labels are {', '.join(names.values())}",
            "Give an NLI model",
        )
    return model, labels


class LMSupport:
    """Judges by the LM in use, all sentences in one call; the signature decides which verdicts there are."""

    def __init__(self, retries: int = 2, signature: type[dspy.Signature] = JudgeSupport) -> None:
        self._retries = retries
        self.check = predictor(signature)
        (_, self._verdict) = signature.output_fields["verdicts"].annotation.__args__

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[Any]:
        reply = ask(
            "judge support",
            with_settings(self.check, allow_tokens(len(sentences) * _TOKENS_A_VERDICT)),
            retries=self._retries,
            signature=require_keys(self.check.signature, add_keys(sentences)),
            sources=[first_words(source, _SOURCE_WORDS) for source in sources[:_MOST_SOURCES]],
            question=question,
            sentences=add_keys(sentences),
        ).prediction
        return [self._verdict(v) for v in values(reply.verdicts)]

"""Which sub-queries of a decomposition are worth a search?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple

import dspy

from typedrag.lms.asking import Reply
from typedrag.lms.trail import record
from typedrag.programs.options import Options
from typedrag.records import Passage, Step
from typedrag.retrieval import Reranker, Retriever
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.rerank.rerankers import BiEncoderReranker
from typedrag.retrieval.search.dense import DenseRetriever
from typedrag.retrieval.search.hybrid import parts_of
from typedrag.texts.words import content_words, folded

_PROMPT_MARKS = ("[[", "]]", "##", "{", "}", "sub_quer")
_MAX_CHARS = 300
_LONGEST_FRAGMENT = 6
_QUESTION_MARK = re.compile("[?？؟]")
_ALIKE = 0.8
"""That a word and its misspelling are alike: for "pyton" and "python" it is 0.91, for "jva" and "java" 0.86."""

_FAR = 0.15
"""The cosine of MiniLM below which a text is about something else than a question: none of 26 sub-queries that
were written for ours lies below it (the lowest has 0.24), and 91 in 100 of those written for another question.
Encoders whose cosines are all higher drop nothing."""

Nearness = Callable[[str, Sequence[str]], list[float]]
"""Of texts to a question, each as a cosine."""


class Prompt(NamedTuple):
    """What an LM may copy instead of writing, see `prompt_of`.

    Attributes:
        text: Of the instructions, and of the demonstrations of other questions.
        topics: The content words of what each of these demonstrations is about, without the question's own.
    """

    text: str = ""
    topics: tuple[frozenset[str], ...] = ()


class Sifted(NamedTuple):
    """Sub-queries that are kept, and those dropped with the reason, as `sub-query (reason)`."""

    kept: list[str]
    dropped: tuple[str, ...]


def nearness(retriever: Retriever, reranker: Reranker) -> Nearness | None:
    """How near texts are to a question in meaning, by the encoder that a retriever or a reranker has loaded anyway;
    None if neither has one."""
    dense = parts_of(retriever).dense
    if isinstance(dense, DenseRetriever):
        return partial(_cosines, dense.encoder)
    if isinstance(reranker, BiEncoderReranker):
        return partial(_reranked, reranker)
    return None


def sift(
    question: str,
    sub_queries: Sequence[str],
    *,
    prompt: Prompt,
    limit: int,
    about: str = "",
    near: Nearness | None = None,
    by_topic: bool = True,
) -> Sifted:
    """Drop sub-queries that are no query, repeat another in its words, or have left the question's topic.

    By an encoder those have left it that are far from the question and share no word with it. By words alone little
    can be told: only the few among many that share none with the topic, nor with a sub-query that does.

    Args:
        question: The question they were made from.
        sub_queries: In the LM's order, which is kept.
        prompt: What the LM was given, see `prompt_of`; what is copied of it is no sub-query.
        limit: How many to keep.
        about: More words that belong to the topic, such as a debate's.
        near: See `nearness`.
        by_topic: Whether any is dropped but empty ones and those above the limit; not so as published.

    Example:
        >>> sift("Why does bread rise?", ["What does yeast do in bread?", "why does bread rise", "What is a fish?"],
        ...      prompt=Prompt(), limit=5).dropped
        ('why does bread rise (repeats another)', 'What is a fish? (off the topic)')
    """
    written = [" ".join(s.split()) for s in sub_queries]
    strays = _strays(f"{question} {about}".strip(), written, near) if by_topic else frozenset()
    seen = {_wording(question)} if by_topic else set()
    kept: list[str] = []
    dropped: list[str] = []
    for sub_query in written:
        if reason := _no_query(sub_query, prompt) if by_topic else "" if sub_query else "no query":
            pass
        elif _wording(sub_query) in seen:
            reason = "repeats another"
        elif sub_query in strays:
            reason = "off the topic"
        elif len(kept) == limit:
            reason = f"one more than the {limit} allowed"
        if reason:
            dropped.append(f"{sub_query[:100]} ({reason})")
        else:
            kept.append(sub_query)
            if by_topic:
                seen.add(_wording(sub_query))
    return Sifted(kept, tuple(dropped))


def sift_reply(
    reply: Reply,
    question: str,
    sub_queries: Sequence[str],
    predictor: dspy.Predict,
    options: Options,
    *,
    limit: int | None = None,
    about: str = "",
    near: Nearness | None = None,
) -> list[str]:
    """The sub-queries of an LM's reply that are worth a search, recorded as a step of decomposition; see `sift`.

    At most `limit` are kept, by default as many as the options say.
    """
    kept, dropped = sift(
        question,
        sub_queries,
        prompt=prompt_of(predictor, question),
        limit=limit or options.max_sub_queries,
        about=about,
        near=near,
        by_topic=options.sift,
    )
    said = "; ".join(kept)
    record(Step("decompose", question, said, dropped=dropped, seconds=reply.seconds, usage=reply.usage))
    return kept


def is_copied(query: str, prompt: Prompt) -> bool:
    """Whether a query is a piece of what the LM was given, or asks about what a demonstration is about.

    Example:
        >>> fence = Prompt(topics=(frozenset({"wooden", "fenc"}),))
        >>> is_copied("How do I keep a wooden fence dry?", fence), is_copied("How do I keep a fence dry?", fence)
        (True, False)
    """
    said = " ".join(prompt.text.split()).lower()
    if len(query.split()) >= _LONGEST_FRAGMENT and query.lower().rstrip(".?") in said:
        return True
    words = content_words(query)
    # of several words one alone may well belong to the question's own topic
    strangers = any(topic and len(topic & words) >= min(2, len(topic)) for topic in prompt.topics)
    return strangers or any(mark in query for mark in _PROMPT_MARKS)


def prompt_of(predictor: dspy.Predict, question: str) -> Prompt:
    """What an LM may copy instead of writing: the instructions, and the demonstrations of other questions."""
    others = [demo for demo in predictor.demos if demo.get("question") != question]
    text = " ".join([predictor.signature.instructions, *(str(value) for demo in others for value in demo.values())])
    return Prompt(text, tuple(_topic(demo) - content_words(question) for demo in others))


def _topic(demonstration: dspy.Example) -> frozenset[str]:
    """The words of a demonstration's question that half of what was made of it has, too.

    Others of its words, as in "Which changes would make zoos right …?", are as good on another topic.
    """
    made = " ".join(str(value) for name, value in demonstration.items() if name != "question")
    parts = [words for part in _QUESTION_MARK.split(made) if (words := content_words(part))]
    asked = content_words(demonstration.get("question") or "")
    return frozenset(word for word in asked if 2 * sum(word in part for part in parts) >= len(parts) > 0)


def _wording(text: str) -> str:
    return folded(text).rstrip(" ?？؟.!。")


def _strays(topic: str, sub_queries: Sequence[str], near: Nearness | None) -> frozenset[str]:
    """The sub-queries that have left a topic."""
    words = {s: content_words(s) for s in sub_queries if content_words(s)}
    known = content_words(topic)
    if not known or not words:
        return frozenset()
    if near is not None:
        others = [s for s in words if not _on(known, words[s])]
        return frozenset(s for s, score in zip(others, near(topic, others), strict=True) if score < _FAR)
    strays = set(words)
    while joined := {s for s in strays if _on(known, words[s])}:
        strays -= joined
        known = known.union(*(words[s] for s in joined))
    return frozenset(strays) if 2 * len(strays) < len(words) else frozenset()


def _cosines(encoder: Encoder, question: str, texts: Sequence[str]) -> list[float]:
    if not texts:
        return []
    asked, *others = encoder.encode_queries([question, *texts])
    return [float(other @ asked) for other in others]


def _reranked(reranker: BiEncoderReranker, question: str, texts: Sequence[str]) -> list[float]:
    passages = [Passage(str(place), text) for place, text in enumerate(texts)]
    scores = {p.id: p.score for p in reranker.rerank(question, passages, len(passages))}
    return [scores[p.id] for p in passages]


def _on(topic: frozenset[str], words: frozenset[str]) -> bool:
    """Whether there is a word of the topic among others, or one that its asker misspelt."""
    return bool(words & topic) or any(get_close_matches(word, topic, n=1, cutoff=_ALIKE) for word in words)


def _no_query(sub_query: str, prompt: Prompt) -> str:
    if "://" in sub_query or sub_query.startswith("www."):
        return "a URL"
    if not content_words(sub_query):
        return "no query"
    if len(sub_query) > _MAX_CHARS:
        return "too long for a query"
    return "copied from the prompt" if is_copied(sub_query, prompt) else ""

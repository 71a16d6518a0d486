"""The sub-queries of a decomposition, those worth a search, and the parts of a question with their answers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.events import SubAnswered, emit, events_of_part
from typedrag.core.records import Answered, Passage, Step, SubAnswer
from typedrag.lms.asking import Reply, ask
from typedrag.lms.trace import add_step, collect_steps, record_fallback, run_concurrently
from typedrag.programs.answering import NotAnswered, check_citations
from typedrag.programs.options import Options
from typedrag.retrieval import Reranker, Retriever
from typedrag.retrieval.rerankers import BiEncoderReranker
from typedrag.retrieval.search.dense import DenseRetriever
from typedrag.retrieval.search.hybrid import retriever_parts
from typedrag.signatures.fields import QuestionAnswer
from typedrag.text.words import content_words, folded


class Part(NamedTuple):
    """One part of a question with its answer, or the failure that left it without one."""

    query: str
    answer: SubAnswer | None = None
    passages: tuple[Passage, ...] = ()  # the passages that it was answered from
    failure: StepFailed | None = None
    perspective: str = ""  # the perspective of the part, in a debate
    steps: tuple[Step, ...] = ()  # the steps taken to answer it


def answer_parts(
    answers: Mapping[str, Callable[[], dspy.Prediction]],
    threads: int,
    *,
    perspectives: Mapping[str, str] | None = None,
    dropped: tuple[str, ...] = (),
) -> list[Part]:
    """Answer sub-queries, each by its function, concurrently; recorded as one step with the steps of each below it.

    The perspectives are those of sub-queries in a debate, `dropped` the parts that are left out, with the reason.
    """

    def answer_part(item: tuple[str, Callable[[], dspy.Prediction]]) -> Part:
        query, answer = item
        perspective = (perspectives or {}).get(query, "")
        with collect_steps() as steps, events_of_part(query):
            try:
                prediction = answer()
            except StepFailed as failure:
                return Part(query, failure=failure, perspective=perspective, steps=tuple(steps))
            sub_answer = SubAnswer(query, prediction.answer, prediction.citations, perspective, prediction.answered)
            emit(SubAnswered, sub_answer=sub_answer)
        return Part(query, sub_answer, prediction.passages, perspective=perspective, steps=tuple(steps))

    parts = run_concurrently(answer_part, list(answers.items()), threads)
    steps = tuple(
        Step("sub-query", p.query, p.answer.answer if p.answer else str(p.failure), steps=p.steps) for p in parts
    )
    add_step(Step("sub-queries", f"{len(parts)} sub-queries", dropped=dropped, steps=steps))
    return parts


def collect_answers(parts: Sequence[Part]) -> list[SubAnswer]:
    """The answers of the parts that have one; failures of other parts are recorded."""
    answers = [part.answer for part in parts if part.answer]
    unanswered = [part.failure for part in parts if isinstance(part.failure, NotAnswered)]
    failed = [part.failure for part in parts if part.failure and not isinstance(part.failure, NotAnswered)]
    if not answers and failed:
        raise StepFailed("sub-queries", f"none of {len(parts)} is answered ({failed[0]})")
    if not answers:
        passages = _distinct(passage for failure in unanswered for passage in failure.passages)
        raise NotAnswered("sub-queries", f"none of {len(parts)} is answered", passages) if passages else unanswered[0]
    if failed:
        record_fallback(failed[0], f"{len(failed)} of {len(parts)} sub-queries not answered")
    return answers


def question_answers(answers: Iterable[SubAnswer]) -> list[QuestionAnswer]:
    """The answers to parts as the LM that combines them is shown them."""
    return [QuestionAnswer(question=a.sub_query, answer=a.answer) for a in answers]


def combine_answers(
    step: str,
    predict: dspy.Predict,
    otherwise: str,
    fallback: str = "the sub-answers are given one after the other",
    *,
    retries: int,
    question: str,
    **inputs: Any,
) -> str:
    """One answer that the LM combines from those to parts; `otherwise` if that fails, recorded as `fallback`."""
    try:
        known = {"question": question, **inputs}
        read = {name: value for name, value in known.items() if name in predict.signature.input_fields}
        reply = ask(step, predict, retries=retries, **read)
    except StepFailed as failure:
        record_fallback(failure, fallback)
        return otherwise
    answer = str(reply.prediction.answer.strip())
    add_step(Step(step, question, answer, seconds=reply.seconds, usage=reply.usage))
    return answer


def combine_parts(answer: str, parts: Sequence[Part]) -> dspy.Prediction:
    """The prediction of an answer combined from those to parts, with all their passages and citations.

    It cites nothing if a part was answered from the LM's own knowledge.
    """
    answers = [part.answer for part in parts if part.answer]
    from_passages = all(a.answered is Answered.PASSAGES for a in answers)
    citations = tuple(dict.fromkeys(i for a in answers for i in a.passage_ids))
    return dspy.Prediction(
        answer=answer,
        passages=_distinct(passage for part in parts for passage in part.passages),
        citations=citations if from_passages else (),
        answered=Answered.PASSAGES if from_passages else Answered.KNOWLEDGE,
    )


def drop_unused_citations(answer: dspy.Prediction, question: str) -> dspy.Prediction:
    """The combined answer, with only those citations of its parts that it still uses.

    Not for short answers to questions of several hops, which do not name what the passages in between say.
    """
    numbers = {passage.id: number for number, passage in enumerate(answer.passages, 1)}
    cited = check_citations([numbers[i] for i in answer.citations], answer.answer, answer.passages, question)
    if cited.dropped:
        add_step(Step("cite", question, passage_ids=cited.ids, dropped=cited.dropped))
    return dspy.Prediction(**{**answer.toDict(), "citations": cited.ids})


def _distinct(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    return tuple({passage.id: passage for passage in passages}.values())


_PROMPT_MARKS = ("[[", "]]", "##", "{", "}", "sub_quer")
_MAX_CHARS = 300
_LONGEST_FRAGMENT = 6
_QUESTION_MARK = re.compile("[?？؟]")
_ALIKE = 0.8
"""The least similarity of a word and its misspelling: of "pyton" and "python" it is 0.91, of "jva" and "java" 0.86."""

_FAR = 0.15
"""MiniLM's cosine below which a text has left the question's topic: none of 26 sub-queries written for our
questions is below it (the lowest has 0.24), but 91 in 100 of those written for another question are.
With encoders whose cosines are all higher, nothing is dropped."""

Similarity = Callable[[str, Sequence[str]], list[float]]
"""A function of a question and texts that returns the cosine of each text to the question."""


class Prompt(NamedTuple):
    """The text that an LM may copy instead of writing its own, see `copyable_prompt`."""

    text: str = ""  # the instructions, and the demonstrations of other questions
    topics: tuple[frozenset[str], ...] = ()
    """The content words of each of these demonstrations' topics, without the question's own words."""


class SubQueries(NamedTuple):
    """The sub-queries that are kept, and those that are dropped, as `sub-query (reason)`."""

    kept: list[str]
    dropped: tuple[str, ...]


def topic_similarity(retriever: Retriever, reranker: Reranker) -> Similarity | None:
    """A function that compares texts with a question by the encoder that the retriever or the reranker has loaded;
    None if neither has one."""
    dense = retriever_parts(retriever).dense
    if isinstance(dense, DenseRetriever):
        encoder = dense.encoder

        def encode(question: str, texts: Sequence[str]) -> list[float]:
            target, *others = encoder.encode_queries([question, *texts])
            return [float(other @ target) for other in others]

        return encode
    if isinstance(reranker, BiEncoderReranker):

        def rerank(question: str, texts: Sequence[str]) -> list[float]:
            passages = [Passage(str(place), text) for place, text in enumerate(texts)]
            scores = {p.id: p.score for p in reranker.rerank(question, passages, len(passages))}
            return [scores[p.id] for p in passages]

        return rerank
    return None


def filter_sub_queries(
    question: str,
    sub_queries: Sequence[str],
    *,
    prompt: Prompt,
    limit: int,
    about: str = "",
    near: Similarity | None = None,
    check: bool = True,
) -> SubQueries:
    """Drop sub-queries that are no query, repeat another's words, or have left the topic of the question they are for.

    With an encoder (`near`), a sub-query has left the topic if it is far from the question and shares no word with it.
    Without one, it has if it is among a minority that share no word with the topic, nor with a sub-query that does;
    `about` adds words of the topic, such as a debate's. A text copied from the prompt is no sub-query. Without `check`,
    as published, only empty sub-queries and those above the limit are dropped.

    Example:
        >>> sub_queries = ["What does yeast do in bread?", "why does bread rise", "What is a fish?"]
        >>> filter_sub_queries("Why does bread rise?", sub_queries, prompt=Prompt(), limit=5).dropped
        ('why does bread rise (repeats another)', 'What is a fish? (off the topic)')
    """
    written = [" ".join(s.split()) for s in sub_queries]
    strays = _find_strays(f"{question} {about}".strip(), written, near) if check else frozenset()
    wordings = {_wording(question)}
    usable: list[str] = []
    dropped: list[str] = []
    for sub_query in written:
        if check and ("://" in sub_query or sub_query.startswith("www.")):
            reason = "a URL"
        elif not sub_query or (check and not content_words(sub_query)):
            reason = "no query"
        elif check and len(sub_query) > _MAX_CHARS:
            reason = "too long for a query"
        elif check and is_copied(sub_query, prompt):
            reason = "copied from the prompt"
        elif check and _wording(sub_query) in wordings:
            reason = "repeats another"
        elif sub_query in strays:
            reason = "off the topic"
        elif len(usable) == limit:
            reason = f"one more than the {limit} allowed"
        else:
            usable.append(sub_query)
            wordings.add(_wording(sub_query))
            continue
        dropped.append(f"{sub_query[:100]} ({reason})")
    return SubQueries(usable, tuple(dropped))


def filter_reply(
    reply: Reply,
    question: str,
    sub_queries: Sequence[str],
    predictor: dspy.Predict,
    options: Options,
    *,
    limit: int | None = None,
    about: str = "",
    near: Similarity | None = None,
) -> list[str]:
    """The sub-queries of an LM's reply that are worth a search, at most `limit` or as many as the options say, recorded
    as a step of decomposition; see `filter_sub_queries`."""
    usable, dropped = filter_sub_queries(
        question,
        sub_queries,
        prompt=copyable_prompt(predictor, question),
        limit=limit or options.max_sub_queries,
        about=about,
        near=near,
        check=options.sift,
    )
    add_step(Step("decompose", question, "; ".join(usable), dropped=dropped, seconds=reply.seconds, usage=reply.usage))
    return usable


def is_copied(query: str, prompt: Prompt) -> bool:
    """True if a query is a piece of the prompt, or is about the topic of a demonstration.

    Example:
        >>> fence = Prompt(topics=(frozenset({"wooden", "fenc"}),))
        >>> is_copied("How do I keep a wooden fence dry?", fence), is_copied("How do I keep a fence dry?", fence)
        (True, False)
    """
    text = " ".join(prompt.text.split()).lower()
    if len(query.split()) >= _LONGEST_FRAGMENT and query.lower().rstrip(".?") in text:
        return True
    words = content_words(query)
    # one of several words alone may well belong to the question's own topic
    strangers = any(topic and len(topic & words) >= min(2, len(topic)) for topic in prompt.topics)
    return strangers or any(mark in query for mark in _PROMPT_MARKS)


def copyable_prompt(predictor: dspy.Predict, question: str) -> Prompt:
    """The text that an LM may copy: the instructions, and the demonstrations of other questions.

    A demonstration's topic are the words of its question that at least half of its sub-queries share; its other words,
    as in "Which changes would make zoos right …?", fit other topics as well.
    """
    demos = [demo for demo in predictor.demos if demo.get("question") != question]
    topics = []
    for demo in demos:
        outputs = " ".join(str(value) for name, value in demo.items() if name != "question")
        parts = [words for part in _QUESTION_MARK.split(outputs) if (words := content_words(part))]
        words = content_words(demo.get("question") or "") - content_words(question)
        topics.append(frozenset(w for w in words if 2 * sum(w in part for part in parts) >= len(parts) > 0))
    text = " ".join([predictor.signature.instructions, *(str(value) for demo in demos for value in demo.values())])
    return Prompt(text, tuple(topics))


def _wording(text: str) -> str:
    return folded(text).rstrip(" ?？؟.!。")


def _find_strays(topic: str, sub_queries: Sequence[str], near: Similarity | None) -> frozenset[str]:
    """The sub-queries that have left a topic."""
    words = {s: content_words(s) for s in sub_queries if content_words(s)}
    known = content_words(topic)

    def shares_word(sub_query: str) -> bool:  # or the misspelling of one
        own = words[sub_query]
        return bool(own & known) or any(get_close_matches(word, known, n=1, cutoff=_ALIKE) for word in own)

    if not known or not words:
        return frozenset()
    if near is not None:
        others = [s for s in words if not shares_word(s)]
        scores = near(topic, others) if others else []
        return frozenset(s for s, score in zip(others, scores, strict=True) if score < _FAR)
    strays = set(words)
    while joined := {s for s in strays if shares_word(s)}:
        strays -= joined
        known = known.union(*(words[s] for s in joined))
    return frozenset(strays) if 2 * len(strays) < len(words) else frozenset()

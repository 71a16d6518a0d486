"""The small frozen records that data travels in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from typedrag.question_types import QuestionType, SubQuestionType

FALLBACK = "fallback"
"""The name of the steps that say which other step failed and what was done instead."""
CUT_OFF = "the reply was cut off at max_tokens"
"""What such a step says of a reply that ended because it had as many tokens as it may."""

NOT_IN_COLLECTION = "The collection does not say."
"""The text of an answer to a question that no passage answers."""
NOT_FROM_COLLECTION = "Not from the collection, but what the LM knows:"
"""What stands before an answer from the LM's knowledge."""

if TYPE_CHECKING:
    import dspy


class Answered(StrEnum):
    """What a question was answered from."""

    PASSAGES = "passages"
    """From passages that were retrieved."""
    KNOWLEDGE = "knowledge"
    """From what the LM knows."""
    NOTHING = "nothing"
    """Not at all: the collection does not say."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, as the index holds it.

    Attributes:
        id: Unique within its index.
        text: About 100 words.
        title: Of the document it comes from; may be empty.
        score: Of the retriever or reranker that ranked it last; higher is better. Scores of
            different rankers do not compare.
    """

    id: str
    text: str
    title: str = ""
    score: float = 0.0

    @property
    def titled(self) -> str:
        """Its text, below its title if it has one."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Reference:
    """An answer that others are measured by.

    Attributes:
        text: The answer.
        label: Its quality on its dataset's scale; higher is better. Labels of different datasets
            do not compare.
    """

    text: str
    label: int


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """One of the questions that an answer to a question should, may or need not cover."""

    text: str
    type: SubQuestionType


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked of LMs. Calls whose replies were kept cost nothing and are not counted.

    Attributes:
        lm_calls: Calls that were made.
        prompt_tokens: That they read.
        completion_tokens: That they wrote.
        uncounted: Those of the calls whose tokens the server does not tell, which are in no sum.
    """

    lm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.lm_calls + other.lm_calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.uncounted + other.uncounted,
        )

    @classmethod
    def of_call(cls, told: Mapping[str, Any], calls: int = 1) -> Usage:
        """Of a call, by what its server tells of tokens as OpenAI's does, if anything.

        Example:
            >>> Usage.of_call({"prompt_tokens": 10, "completion_tokens": 5})
            Usage(lm_calls=1, prompt_tokens=10, completion_tokens=5, uncounted=0)
            >>> Usage.of_call({"prompt_tokens": None})
            Usage(lm_calls=1, prompt_tokens=0, completion_tokens=0, uncounted=1)
        """
        read, written = (told.get(name) for name in ("prompt_tokens", "completion_tokens"))
        if not (isinstance(read, int) and isinstance(written, int)):
            return cls(calls, uncounted=calls)
        return cls(calls, read, written)

    @property
    def tokens(self) -> int | None:
        """Read and written; None where some are not told."""
        return None if self.uncounted else self.prompt_tokens + self.completion_tokens

    def in_words(self) -> str:
        """Its calls and tokens.

        Example:
            >>> Usage(3, 1000, 200, uncounted=1).in_words()
            '3 LM calls, 1,000 + 200 tokens without those of 1 call, which its server does not tell'
        """
        calls = f"{self.lm_calls:,} LM call{'s' * (self.lm_calls != 1)}"
        return f"{calls}, {self.prompt_tokens:,} + {self.completion_tokens:,} tokens{self.without()}"

    def without(self) -> str:
        """What a number of tokens is without, as words that go after it; empty if it is whole."""
        if not self.uncounted:
            return ""
        return f" without those of {self.uncounted:,} call{'s' * (self.uncounted != 1)}, which its server does not tell"


@dataclass(frozen=True, slots=True)
class SubAnswer:
    """The answer to one sub-query, from the passages found for it, or from what the LM knows."""

    sub_query: str
    answer: str
    passage_ids: tuple[str, ...] = ()
    perspective: str = ""
    answered: Answered = Answered.PASSAGES


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a program did on its way to an answer.

    Attributes:
        name: classify, decompose, retrieve, pool, rerank, answer, aggregate, mediate, ...
        input: What went in, in words: the query, the question.
        output: What came out, in words.
        passage_ids: The passages it found or used, best first.
        dropped: What it left out and why, one entry each.
        seconds: Wall time.
        usage: LM calls and tokens of this step alone, without its sub-steps.
        steps: Sub-steps, in the order of the sub-queries.
    """

    name: str
    input: str = ""
    output: str = ""
    passage_ids: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    seconds: float = 0.0
    usage: Usage = Usage()
    steps: tuple[Step, ...] = ()

    def walk(self) -> Iterator[Step]:
        """This step and all below it, depth first."""
        yield self
        for step in self.steps:
            yield from step.walk()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with all that is known about how it came about.

    Attributes:
        question: As asked; where it ended a conversation, as it stands alone.
        answer: The text for the user.
        question_type: The type whose strategy answered; None for programs that do not classify.
        program: The name of the program.
        passages: Those the answer was written from, in the order the LM saw them.
        citations: Ids of the passages that the answer says it uses, all of them in `passages`.
        steps: What the program did, in order.
        fallback: Empty, or which step failed and what was done instead, or whose reply was cut off.
        seconds: Wall time of the whole.
        route: Which way the question was sent, in programs that choose one by how much retrieval it
            takes, such as a `Route`; empty in others.
        passage_words: How many words of a passage the LM saw at most, which is what a judge of the answer sees;
            None if it is not known.
        answered: What it was answered from.
    """

    question: str
    answer: str
    question_type: QuestionType | None = None
    program: str = ""
    passages: tuple[Passage, ...] = ()
    citations: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    fallback: str = ""
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    route: str = ""
    passage_words: int | None = None
    answered: Answered = Answered.PASSAGES

    @classmethod
    def from_prediction(cls, prediction: dspy.Prediction) -> Answer:
        """The answer that a program predicted.

        Raises:
            KeyError: If the prediction lacks a field that programs set.
        """
        return cls(**{name: prediction[name] for name in cls.__dataclass_fields__})

    def to_prediction(self) -> dspy.Prediction:
        """What a program would have predicted, as metrics take it."""
        import dspy

        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return dspy.Prediction(**fields, grounded=self.grounded)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """The answer that `to_dict` gave; of one from before `answered`, what it was answered from is told by whether
        it has passages."""
        known = Answered.PASSAGES if data["passages"] else Answered.KNOWLEDGE
        told = {"answered": data.get("answered") or known, "question_type": data["question_type"] or None}
        answer: Answer = _reader().validate_python({**data, **told})
        return answer

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold, with `grounded`."""
        return {**asdict(self), "grounded": self.grounded}

    @property
    def grounded(self) -> bool:
        """See `is_grounded`."""
        return is_grounded(self.answered, self.citations)

    @property
    def marked(self) -> str:
        """The text for a reader, who is told first where it is not from the collection."""
        return f"{NOT_FROM_COLLECTION}\n{self.answer}" if self.answered == Answered.KNOWLEDGE else self.answer

    @property
    def dropped(self) -> tuple[str, ...]:
        """What the steps left out: sub-queries, citations of passages that were not retrieved."""
        return tuple(d for step in self.steps for s in step.walk() for d in s.dropped)


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Answer)


def is_grounded(answered: Answered, citations: Sequence[str]) -> bool:
    """Whether an answer is from passages and cites one at least, so that it can be checked.

    Example:
        >>> is_grounded(Answered.PASSAGES, ["p7"]), is_grounded(Answered.PASSAGES, [])
        (True, False)
    """
    return answered == Answered.PASSAGES and bool(citations)


def fallbacks(steps: Iterable[Step]) -> str:
    """What these steps and all below them say of steps that failed, each thing once.

    Example:
        >>> gone = Step(FALLBACK, output="no route could be read; taken as single-step")
        >>> fallbacks([Step("sub-queries", steps=(gone, Step("answer"), gone))])
        'no route could be read; taken as single-step'
    """
    said = (s.output for step in steps for s in step.walk() if s.name == FALLBACK)
    return "; ".join(dict.fromkeys(said))


def total_usage(steps: Iterable[Step]) -> Usage:
    """The LM calls and tokens of these steps and all below them.

    Example:
        >>> inner = Step("answer", usage=Usage(1, 10, 5))
        >>> total_usage([Step("sub-queries", usage=Usage(1, 1, 1), steps=(inner, inner))])
        Usage(lm_calls=3, prompt_tokens=21, completion_tokens=11, uncounted=0)
    """
    return sum((s.usage for step in steps for s in step.walk()), Usage())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value measured on a sample, and where the value of the population probably lies.

    Attributes:
        value: On the sample itself.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Observations in the sample.

    Example:
        >>> print(Estimate(0.5, 0.4, 0.6, 100))
        0.500 [0.400, 0.600]
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

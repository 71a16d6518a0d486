"""The small frozen records that carry data through typedrag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from typedrag.core.question_types import QuestionType, SubQuestionType

FALLBACK = "fallback"
"""The name of a step which says that another step failed and what was done instead."""
ELSEWHERE = "elsewhere"
"""The name of the only step of an answer that no program of typedrag made, whose making is not known."""
CUT_OFF = "the reply was cut off at max_tokens"
"""The reason in such a step if the LM's reply ended because it reached its token limit."""

NOT_IN_COLLECTION = "The collection does not say."
"""The text of an answer to a question that no passage answers."""
NOT_FROM_COLLECTION = "Not from the collection, but what the LM knows:"
"""The line before an answer from the LM's knowledge."""

if TYPE_CHECKING:
    import dspy


class Answered(StrEnum):
    """The source of an answer."""

    PASSAGES = "passages"
    """From retrieved passages."""
    KNOWLEDGE = "knowledge"
    """From the LM's own knowledge."""
    NOTHING = "nothing"
    """From nothing: the collection does not say."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, as the index holds it.

    Attributes:
        id: Unique within its index.
        text: About 100 words.
        title: The title of its document; may be empty.
        score: The score of the retriever or reranker that ranked it last; higher is better. Scores of
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
    """An answer that other answers are measured by.

    The label is its quality on its dataset's scale; higher is better. Labels of different datasets do not compare.
    """

    text: str
    label: int


@dataclass(frozen=True, slots=True)
class Nugget:
    """A thing that a good answer to a question says; an answer without a vital one is poor.

    `wordings` has how each text that it was found in says it, by the text's `make_id`; none if a person wrote it.
    """

    text: str
    vital: bool = True
    wordings: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """A question that an answer to a larger question should, may or need not cover."""

    text: str
    type: SubQuestionType


@dataclass(frozen=True, slots=True)
class Usage:
    """LM calls and tokens, but for those of `uncounted` calls, whose server reports none. Calls whose replies were kept
    cost nothing and are not counted."""

    lm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0

    def __add__(self, other: Usage) -> Usage:
        calls, uncounted = self.lm_calls + other.lm_calls, self.uncounted + other.uncounted
        read, written = self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens
        return Usage(calls, read, written, uncounted)

    @classmethod
    def of_call(cls, reported: Mapping[str, Any], calls: int = 1) -> Usage:
        """The usage of a call, from the tokens that its server reports as OpenAI's does, if any."""
        read, written = (reported.get(name) for name in ("prompt_tokens", "completion_tokens"))
        if not (isinstance(read, int) and isinstance(written, int)):
            return cls(calls, uncounted=calls)
        return cls(calls, read, written)

    @property
    def tokens(self) -> int | None:
        """Tokens read and written; None if some are not reported."""
        return None if self.uncounted else self.prompt_tokens + self.completion_tokens

    def in_words(self) -> str:
        calls = f"{self.lm_calls:,} LM call{'s' * (self.lm_calls != 1)}"
        return f"{calls}, {self.prompt_tokens:,} + {self.completion_tokens:,} tokens{self.without()}"

    def without(self) -> str:
        """The calls that a number of tokens leaves out, as words to follow it; empty if there are none."""
        if not self.uncounted:
            return ""
        return f" without those of {self.uncounted:,} call{'s' * (self.uncounted != 1)}, which its server does not tell"


@dataclass(frozen=True, slots=True)
class SubAnswer:
    """The answer to one sub-query, from the passages found for it, or from the LM's own knowledge."""

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
        input: Its input, in words: the query, the question.
        output: Its output, in words.
        passage_ids: The passages it found or used, best first.
        dropped: The things it left out, one entry each with the reason.
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
        yield self
        for step in self.steps:
            yield from step.walk()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with all that is known about its making.

    Attributes:
        question: As asked; the last of a conversation is rewritten to stand alone.
        answer: The text for the user.
        question_type: As the asker said or the program found out; None for programs that do not classify.
        program: The name of the program.
        passages: The passages that the answer was written from, in the order the LM saw them.
        citations: Ids of the passages that the answer cites, all of them in `passages`.
        steps: The program's steps, in order.
        fallback: The steps that failed and what was done instead, or the steps whose reply was cut off; may be empty.
        seconds: Wall time of the whole.
        route: The question's route, in programs that choose one by how much retrieval it takes, such as a `Route`;
            empty in others.
        passage_words: The most words of a passage that the LM saw, and so a judge of the answer sees;
            None if it is not known.
        answered: The source of the answer.
        type_unsure: Whether the type is unsure, so that the evidence-based way answered.
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
    type_unsure: bool = False

    @classmethod
    def from_prediction(cls, prediction: dspy.Prediction) -> Answer:
        """The answer in a program's prediction."""
        return cls(**{name: prediction[name] for name in cls.__dataclass_fields__})

    def to_prediction(self) -> dspy.Prediction:
        """The prediction of a program with this answer, for metrics."""
        import dspy

        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return dspy.Prediction(**fields, grounded=self.grounded)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """The answer that `to_dict` returned. An older one, without `answered`, counts as from passages if it
        has any, else as from the LM's knowledge."""
        known = Answered.PASSAGES if data["passages"] else Answered.KNOWLEDGE
        defaults = {"answered": data.get("answered") or known, "question_type": data["question_type"] or None}
        answer: Answer = _adapter().validate_python({**data, **defaults})
        return answer

    def to_dict(self) -> dict[str, Any]:
        """The answer as values for JSON, with `grounded`."""
        return {**_adapter().dump_python(self), "grounded": self.grounded}  # asdict takes ten times as long

    @property
    def grounded(self) -> bool:
        return is_grounded(self.answered, self.citations)

    @property
    def marked(self) -> str:
        """The text for a reader, with a first line if it is not from the collection."""
        return f"{NOT_FROM_COLLECTION}\n{self.answer}" if self.answered == Answered.KNOWLEDGE else self.answer

    @property
    def cited(self) -> tuple[Passage, ...]:
        """The passages that the answer cites, in the order of its citations."""
        passages = {passage.id: passage for passage in self.passages}
        return tuple(passages[passage_id] for passage_id in self.citations)

    @property
    def sources(self) -> str:
        """The cited passages as a numbered list, by their titles and ids; empty if none is cited.

        Example:
            >>> heating = Passage("heating.md#1", "Below 1.0 bar the radiators stay cold.", "The heating")
            >>> print(Answer("Why?", "Too little water.", passages=(heating,), citations=("heating.md#1",)).sources)
            Sources:
            [1] The heating (heating.md#1)
        """
        lines = [f"[{n}] {p.title} ({p.id})" if p.title else f"[{n}] {p.id}" for n, p in enumerate(self.cited, 1)]
        return "\n".join(["Sources:", *lines]) if lines else ""

    @property
    def dropped(self) -> tuple[str, ...]:
        """The things that the steps left out, such as sub-queries and citations of passages that were not retrieved."""
        return tuple(d for step in self.steps for s in step.walk() for d in s.dropped)


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Answer)


def is_grounded(answered: Answered, citations: Sequence[str]) -> bool:
    """True if an answer is from passages and cites at least one, so that it can be checked."""
    return answered == Answered.PASSAGES and bool(citations)


def fallbacks(steps: Iterable[Step]) -> str:
    """The messages of failed steps among these steps and their sub-steps, each once."""
    messages = (s.output for step in steps for s in step.walk() if s.name == FALLBACK)
    return "; ".join(dict.fromkeys(messages))


def total_usage(steps: Iterable[Step]) -> Usage:
    return sum((s.usage for step in steps for s in step.walk()), Usage())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value measured on a sample, with an interval in which the population's value probably lies.

    Both ends are None if the sample has too few units for an interval. `units` is the number of independent units, such
    as questions, if it is not `n`, the number of observations.

    Example:
        >>> print(Estimate(0.5, 0.4, 0.6, 100), Estimate(0.5, None, None, 40, units=3), sep="; ")
        0.500 [0.400, 0.600]; 0.500 (n = 3 questions)
    """

    value: float
    low: float | None
    high: float | None
    n: int
    units: int | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def size(self) -> str:
        """The number of units in words, to be shown where there is no interval."""
        count = self.n if self.units is None else self.units
        return f"(n = {count:,} question{'s' * (count != 1)})"

    def __str__(self) -> str:
        ends = self.interval
        return f"{self.value:.3f} " + (f"[{ends[0]:.3f}, {ends[1]:.3f}]" if ends else self.size)

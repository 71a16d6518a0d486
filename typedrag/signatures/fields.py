"""Types of signature fields whose limits DSPy enforces, and several values in one call, by their keys.

A small LM that must name the key before each value keeps to the right one.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, get_args

import dspy
from annotated_types import MaxLen
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    RootModel,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)

from typedrag.core.records import Passage
from typedrag.text.words import first_words

T = TypeVar("T")

_LONGEST_QUESTION = 300
_LONGEST_FRAGMENT = 240


def _leave_only_constraints(schema: dict[str, Any]) -> None:
    # The schema is part of every prompt; the names and docstrings below are for readers of the code.
    schema.pop("title", None)
    schema.pop("description", None)


_CONFIG = ConfigDict(json_schema_extra=_leave_only_constraints)


class _Output(BaseModel):
    model_config = _CONFIG


class _Text(RootModel[str]):
    model_config = _CONFIG
    root: str


ShortQuestion = Annotated[str, StringConstraints(pattern=r"^[^?？؟\n]{6,160}[?？؟]$")]
"""One short question. It keeps a small LM from asking two at once and from never ending."""
_SHORT_QUESTION: TypeAdapter[str] = TypeAdapter(ShortQuestion)


AS_ASKED_FOR = {"as asked for": True}
"""The validation context in which only values pass that the schema sent to servers allows."""


def _on_one_line(text: str, info: ValidationInfo) -> str:
    if info.context == AS_ASKED_FOR:
        return _SHORT_QUESTION.validate_python(text)
    text = " ".join(text.split())
    if not 0 < len(text) <= _LONGEST_QUESTION:
        raise ValueError(f"it has {len(text)} characters, not 1 to {_LONGEST_QUESTION}")
    return text


Question = Annotated[str, AfterValidator(_on_one_line), WithJsonSchema(_SHORT_QUESTION.json_schema())]
"""A query to search with. Servers are asked for a short question; if a server does not keep an LM to that, a
longer one is as good, and so are two in one and `Describe how …`."""

Phrase = Annotated[str, StringConstraints(pattern=r"^[^\n]{1,60}$")]
"""A few words."""


class Listed(RootModel[list[T]], Generic[T]):
    """A list that leaves out the items which do not fit, and those beyond its greatest length.

    The schema that servers get does not tell this; the items that stay must still reach the least length.
    """

    model_config = _CONFIG
    _dropped: tuple[str, ...] = ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """The items left out, one entry each with the reason, such as `0 (it does not fit)`."""
        return self._dropped

    @model_validator(mode="wrap")
    @classmethod
    def _leave_out_misfits(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if not isinstance(value, list) or info.context == AS_ASKED_FOR:
            return handler(value)
        item_type, most = _item_type(cls)
        items: list[Any] = []
        dropped: list[str] = []
        for item in value:
            shown = str(item)[:100]
            if len(items) == most:
                dropped.append(f"{shown} (one more than the {most} allowed)")
                continue
            try:
                item_type.validate_python(item)
            except ValidationError:
                dropped.append("an item (cut off, or empty)" if item is None else f"{shown} (it does not fit)")
            else:
                items.append(item)
        result = handler(items)
        result._dropped = tuple(dropped)
        return result


@lru_cache
def _item_type(listed: type[Listed[Any]]) -> tuple[TypeAdapter[Any], int | None]:
    root = listed.model_fields["root"]
    (item,) = get_args(root.annotation)
    return TypeAdapter(item), next((limit.max_length for limit in root.metadata if isinstance(limit, MaxLen)), None)


def _ask_for_two(schema: dict[str, Any]) -> None:
    _leave_only_constraints(schema)
    schema["minItems"] = 2


class SubQueries(Listed[str]):
    """Up to 5 sub-queries, none where one search is enough."""

    root: Annotated[list[Question], Field(max_length=5)]


class Paraphrases(Listed[str]):
    """2 to 5 sub-queries (Typed-RAG, figures 13 and 14)."""

    root: Annotated[list[Question], Field(min_length=2, max_length=5)]


class Variants(Listed[str]):
    """2 to 5 queries for the same thing. Even one left is enough: the question itself is searched for as well."""

    model_config = ConfigDict(json_schema_extra=_ask_for_two)
    root: Annotated[list[Question], Field(min_length=1, max_length=5)]


class Parts(Listed[str]):
    """1 to 5 questions: the parts of a compound question, or the question itself if it asks for one thing
    (HANRAG, table 10; its benchmark's questions have 2 to 4 parts)."""

    root: Annotated[list[Question], Field(min_length=1, max_length=5)]


class NextQuestion(_Text):
    """One question."""

    root: Question


class EntityQuestion(_Output):
    """A question about an entity, and its short answer (HANRAG, table 15)."""

    question: ShortQuestion
    answer: Annotated[str, StringConstraints(pattern=r"^[^\n]{1,80}$")]


class JoinedQuestion(_Text):
    """One question that asks for several things (HANRAG, table 16)."""

    root: Annotated[str, StringConstraints(pattern=r"^[^\n]+[?？؟]$", min_length=7, max_length=501)]


class Keywords(Listed[str]):
    """1 to 8 keywords."""

    root: Annotated[list[Phrase], Field(min_length=1, max_length=8)]


class Items(Listed[str]):
    """The items of a comparison, up to 5."""

    root: Annotated[list[Phrase], Field(max_length=5)]


class Phrases(Listed[str]):
    """Any number of phrases, as the paper has keywords and compared items (Typed-RAG, figures 10 and 12)."""

    root: list[Annotated[str, StringConstraints(pattern=r"^[^\n]+$")]]


class Citations(Listed[int]):
    """Numbers of passages, up to 10."""

    root: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(max_length=10)]


def _one_for_each_criterion(findings: list[Any]) -> list[Any]:
    first: dict[str, Any] = {}
    for finding in findings:
        first.setdefault(finding.criterion.casefold().strip(), finding)
    return list(first.values())


Purpose = Literal["how they differ", "what they share", "which is better"]
"""The purpose of a comparison: the paper's difference, similarity and superiority (Typed-RAG, section 3.2), in words by
which a small LM tells them apart."""
PlainPurpose = Literal["differences", "similarities", "superiority"]
"""The purposes in the paper's words (Typed-RAG, figure 10)."""


class Finding(_Output):
    """The finding of a comparison by one criterion: the item it speaks for."""

    criterion: Phrase
    speaks_for: Phrase


class Findings(Listed[Finding]):
    """The findings of a comparison, up to 4; for each criterion the first one counts."""

    root: Annotated[list[Finding], Field(max_length=4), AfterValidator(_one_for_each_criterion)]


class Side(_Output):
    """One side of a debate: its view of the topic, and the query that finds its arguments."""

    perspective: Phrase
    sub_query: Question


class Sides(Listed[Side]):
    """2 to 5 sides of a debate (Typed-RAG, figure 16)."""

    root: Annotated[list[Side], Field(min_length=2, max_length=5)]


class SubAspects(Listed[str]):
    """2 to 7 sub-aspects of a question (RichRAG, figure 10)."""

    root: Annotated[list[Phrase], Field(min_length=2, max_length=7)]


class AnswerPart(_Output):
    """A part of a long answer: the sub-aspect that it answers, and its first sentence."""

    sub_aspect: Phrase
    begins: Annotated[int, Field(ge=1, le=999)]


class AnswerParts(RootModel[list[AnswerPart]]):
    """2 to 7 parts of a long answer (RichRAG, figure 10); one left out would leave its sentences to another."""

    model_config = _CONFIG
    root: Annotated[list[AnswerPart], Field(min_length=2, max_length=7)]


class PassageOrder(Listed[int]):
    """Numbers of passages in an order, up to 20."""

    root: Annotated[list[Annotated[int, Field(ge=1, le=99)]], Field(min_length=1, max_length=20)]


class TwoQuestions(Listed[str]):
    """The two sub-questions of a multi-document question (PreQRAG, section 2.2.2)."""

    root: Annotated[list[Question], Field(min_length=2, max_length=2)]


class SearchQuery(_Text):
    """A query on one line (PreQRAG, section 2.2.1)."""

    root: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", max_length=200)]  # xgrammar fails on {1,200}


class WholeQuestion(_Text):
    """A question or a request on one line, as long as a user may write it."""

    root: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", max_length=600)]


class WrittenQuestions(Listed[str]):
    """1 to 20 questions, each on one line."""

    root: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^[^\n]{2,500}$")]], Field(min_length=1, max_length=20)
    ]


class QuestionWithAnswer(_Output):
    """A question on one line and its answer (PreQRAG, appendix D)."""

    question: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", min_length=5, max_length=400)]
    answer: Annotated[str, StringConstraints(min_length=1, max_length=1500)]


class WrittenAnswer(_Text):
    """An answer of some length (Typed-RAG, appendix A.1)."""

    root: Annotated[str, StringConstraints(min_length=1, max_length=1500)]


class WorseningAnswers(_Output):
    """Three answers, each far worse than the one before (Typed-RAG, appendix A.1)."""

    acceptable: Annotated[str, StringConstraints(min_length=1, max_length=800)]
    poor: Annotated[str, StringConstraints(min_length=1, max_length=800)]
    senseless: Annotated[str, StringConstraints(min_length=1, max_length=800)]


class WrittenNugget(_Output):
    """A nugget on one line, and whether a good answer needs it (TREC RAG: vital or okay)."""

    text: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", max_length=160)]
    importance: Literal["vital", "okay"]


class WrittenNuggets(Listed[WrittenNugget]):
    """Up to 8 nuggets."""

    root: Annotated[list[WrittenNugget], Field(max_length=8)]


class StatedAnswer(_Text):
    """An answer of a sentence or two."""

    root: Annotated[str, StringConstraints(pattern=r"^[^\n]+$", max_length=400)]


class ShortAnswer(_Text):
    """An answer of a few words, or a number, which DSPy would read as a number."""

    root: Annotated[
        str,
        StringConstraints(pattern=r"^[^\n]+$", max_length=80),
        BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value),
    ]


class ManyQuestions(Listed[str]):
    """10 to 20 questions (sub-question coverage, section 3.1: around 20)."""

    root: Annotated[list[Question], Field(min_length=10, max_length=20)]


class Questions(Listed[str]):
    """Any number of questions (sub-question coverage, table 5)."""

    root: Annotated[list[Question], Field(min_length=1)]


class Verdict(_Output):
    """A verdict on whether a text answers a question, and by which words.

    The words come first: an LM that has written them decides by them.
    """

    fragment: Annotated[
        str,
        BeforeValidator(lambda text: text[:_LONGEST_FRAGMENT] if isinstance(text, str) else text),
        StringConstraints(max_length=_LONGEST_FRAGMENT),
    ]
    answered: bool


class PlainVerdict(_Output):
    """A verdict in the paper's order: whether a text answers a question, and if so the fragment that does (sub-question
    coverage, table 6)."""

    answered: bool
    fragment: str = ""


@lru_cache
def _one_for_each(keys: tuple[str, ...], value: Any) -> type[BaseModel]:
    """A model that has exactly these keys, each with a value of this type."""
    fields: dict[str, Any] = dict.fromkeys(keys, (value, ...))
    return create_model("OneForEach", __config__=ConfigDict(**_CONFIG, extra="forbid"), **fields)


class PerspectiveAnswer(BaseModel):
    """What one side of a debate answers."""

    perspective: str
    answer: str


class QuestionAnswer(BaseModel):
    """A sub-query and its answer."""

    question: str
    answer: str


class PromptPassage(BaseModel):
    """A passage as an LM sees it: numbered, so that it can be cited by a short number."""

    number: int
    title: str
    text: str


def number_passages(passages: Sequence[Passage], max_words: int) -> list[PromptPassage]:
    """Number passages from 1 for a prompt and cut each to `max_words` words, see `first_words`.

    Example:
        >>> number_passages([Passage(id="p7", text="Yeast makes gas.", title="Bread")], 2)
        [PromptPassage(number=1, title='Bread', text='Yeast makes')]
    """
    return [
        PromptPassage(number=i, title=first_words(p.title, max_words), text=first_words(p.text, max_words))
        for i, p in enumerate(passages, 1)
    ]


def add_keys(values: Iterable[T], letter: str = "q") -> dict[str, T]:
    """Values by their keys.

    Example:
        >>> add_keys(["What is yeast?", "Why does dough rise?"])
        {'q1': 'What is yeast?', 'q2': 'Why does dough rise?'}
    """
    return {f"{letter}{number}": value for number, value in enumerate(values, 1)}


def require_keys(signature: type[dspy.Signature], keys: Iterable[str], value: Any = None) -> type[dspy.Signature]:
    """A signature like this one, whose one output is a dictionary, with one value of type `value` for each of the keys,
    no more and no fewer; by default of the signature's own type.

    Example:
        >>> grades = dspy.Signature("answers: dict[str, str] -> grades: dict[str, int]")
        >>> list(require_keys(grades, ["a1", "a2"]).output_fields["grades"].annotation.model_fields)
        ['a1', 'a2']
    """
    ((name, field),) = signature.output_fields.items()
    (_, usual) = field.annotation.__args__
    return signature.with_updated_fields(name, type_=_one_for_each(tuple(keys), value or usual))


def values(output: Any) -> list[Any]:
    """The values of such an output, in the order of the keys."""
    return list((output if isinstance(output, Mapping) else dict(output)).values())

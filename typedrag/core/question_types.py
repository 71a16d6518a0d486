"""The vocabulary of question types and routes, shared by routing, data, reports and tags."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from typedrag.core.errors import InputError, names_hint
from typedrag.core.registry import SpecGrammar

TYPE_CLASSIFIERS = SpecGrammar("type classifier", "linear", "embedding", "lm", "oracle", "hub:NAME")


class _Described(StrEnum):
    """Names with their meanings."""

    definition: str
    """The thing such a question asks for, or is like, as the end of a sentence."""
    example: str
    """An example of such a question."""

    def __new__(cls, name: str, definition: str = "", example: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_, member.definition, member.example = name, definition, example
        return member


class QuestionType(_Described):
    """The type of a question, after the taxonomy of Bolotova et al. (2022).

    The six non-factoid types are those of Typed-RAG (section 3). The last two complete NF-CATS:
    a factoid is answered the evidence-based way, and what is no question gets a short reply
    without retrieval.

    Example:
        >>> QuestionType("reason").definition
        'asks why something is so or happens: its causes or motives'
        >>> [t.value for t in QuestionType.non_factoid()]
        ['evidence-based', 'comparison', 'experience', 'reason', 'instruction', 'debate']
    """

    EVIDENCE_BASED = (
        "evidence-based",
        "asks what something is, how it works or what is known about it",
        "How does a heat pump warm a house?",
    )
    COMPARISON = (
        "comparison",
        "asks how two or more things differ, what they share, or which is better",
        "What is the difference between a crow and a raven?",
    )
    EXPERIENCE = (
        "experience",
        "asks for advice, recommendations or what people have lived through",
        "What are good beaches for small children?",
    )
    REASON = (
        "reason",
        "asks why something is so or happens: its causes or motives",
        "Why do leaves change colour in autumn?",
    )
    INSTRUCTION = (
        "instruction",
        "asks how to do something, step by step",
        "How do I change a bicycle tyre?",
    )
    DEBATE = "debate", "asks for a judgement on which people disagree", "Should voting be compulsory?"
    FACTOID = (
        "factoid",
        "asks for one fact: a name, a date, a place, a number",
        "When was the telephone invented?",
    )
    NOT_A_QUESTION = (
        "not-a-question",
        "is a greeting, a remark or a fragment that asks nothing",
        "Thanks, see you tomorrow!",
    )

    @classmethod
    def _missing_(cls, value: object) -> QuestionType | None:
        spelled = "-".join(str(value).lower().replace("_", " ").split())
        return next((t for t in cls if t.value == spelled), None)

    @classmethod
    def non_factoid(cls) -> tuple[QuestionType, ...]:
        """The six non-factoid types of Typed-RAG, in the paper's order."""
        return tuple(t for t in cls if t not in (cls.FACTOID, cls.NOT_A_QUESTION))


def parse_question_type(name: str) -> QuestionType:
    try:
        return QuestionType(name)
    except ValueError:
        raise InputError(f"there is no question type '{name}'", names_hint("Types", name, QuestionType)) from None


class QuestionForm(_Described):
    """The form in which people type a question."""

    PLAIN = "plain", "is one ordinary sentence", "Why does bread turn out dense?"
    IMPERATIVE = (
        "imperative",
        "is a command or a request, mostly without a question mark",
        "Explain why bread gets dense",
    )
    KEYWORDS = "keywords", "is two to six words for a search box, no sentence", "bread dense cold kitchen"
    CHATTY = (
        "chatty",
        "is two to five sentences, a story with the question anywhere in it",
        "My loaf was flat again. Why is that? I did knead it.",
    )
    TYPO = "typo", "is misspelt and hasty, in lower case", "wy is my bred so dens"
    OTHER = (
        "other",
        "is a fragment, a follow-up, a tag question, or a statement that means a question",
        "Wondering why my bread is so dense.",
    )


class SubQuestionType(StrEnum):
    """What a sub-question is to the question it belongs to (sub-question coverage, section 3.1)."""

    CORE = "core"
    BACKGROUND = "background"
    FOLLOW_UP = "follow-up"


class DocumentScope(StrEnum):
    """From how many documents a question can be answered (PreQRAG, section 2.1)."""

    SINGLE = "single-document"
    MULTI = "multi-document"


class Route(_Described):
    """How much retrieval a question takes (HANRAG, section 3)."""

    STRAIGHTFORWARD = (
        "straightforward",
        "can be answered from what everybody knows, with nothing looked up",
        "How many legs does a spider have?",
    )
    SINGLE_STEP = (
        "single-step",
        "asks for one thing, which has to be looked up once",
        "Who designed the harbour bridge of Porto Novo?",
    )
    COMPOUND = (
        "compound",
        "asks for two or more things, each of which can be looked up without knowing the others",
        "When was the harbour bridge of Porto Novo opened, and how long is it?",
    )
    COMPLEX = (
        "complex",
        "asks for something that can only be looked up once something else has been found out",
        "In which town was the designer of the harbour bridge of Porto Novo born?",
    )


class RevelatorRole(StrEnum):
    """The roles of HANRAG's revelator (HANRAG, sections 4.1 and 4.2)."""

    ROUTER = "router"
    DECOMPOSER = "decomposer"
    REFINER = "refiner"
    RELEVANCE = "relevance"
    ENDING = "ending"

"""Questions with the steps to their answers, as MuSiQue and 2WikiMultihopQA publish them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field

from typedrag.datasets.contexts import Fact, Sentences
from typedrag.datasets.reading import Id, Layout, Text, parse, read_rows
from typedrag.records import Passage


@dataclass(frozen=True)
class ChainStep:
    """One step of a reasoning chain: a question and its answer.

    Attributes:
        query: The question as it is asked once the earlier steps are answered.
        relevant: The passages that answer it; empty if they are not known.
    """

    query: str
    answer: str
    relevant: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class ReasoningChain:
    """A question and the steps that lead to its answer.

    Attributes:
        steps: The steps in order; the last step's answer is the answer to the question, or settles it.
        noise: Passages that none of the steps needs.
    """

    id: str
    question: str
    steps: tuple[ChainStep, ...]
    noise: tuple[Passage, ...]


class _Hop(Layout):
    question: Text
    answer: Text
    paragraph_support_idx: int | None = None


class _Paragraph(Layout):
    idx: int
    title: str
    paragraph_text: Text
    is_supporting: bool


class _Musique(Layout):
    id: Id
    question: Text
    question_decomposition: list[_Hop] = Field(min_length=2)
    paragraphs: list[_Paragraph] = Field(default=[])


def musique_chains(path: Path) -> Iterator[ReasoningChain]:
    """Yield the chains of a file musique_ans_v1.0_train.jsonl or the like.

    A step may name an earlier answer by `#1`, which that answer replaces. It may also be only
    `SUBJECT >> RELATION`, which is turned into a question.

    Raises:
        InputError: If a row does not fit.
    """
    for entry in read_rows(path):
        row = parse(_Musique, entry)
        passages = {p.idx: Passage(f"{row.id}#{p.idx}", p.paragraph_text, p.title) for p in row.paragraphs}
        answers: list[str] = []
        steps = []
        for hop in row.question_decomposition:
            query = _with_answers(hop.question, answers)
            support = passages.get(hop.paragraph_support_idx) if hop.paragraph_support_idx is not None else None
            steps.append(ChainStep(_as_question(query), hop.answer, (support,) if support else ()))
            answers.append(hop.answer)
        noise = tuple(passages[p.idx] for p in row.paragraphs if not p.is_supporting)
        yield ReasoningChain(row.id, row.question, tuple(steps), noise)


class _Wiki(Layout):
    id: Id = Field(validation_alias=AliasChoices("_id", "id"))
    question: Text
    answer: Text
    context: list[Sentences] = Field(default=[])
    supporting_facts: list[Fact] = Field(default=[])
    evidences: list[Annotated[tuple[Text, Text, Text], Field(strict=False)]] = Field(default=[])


def two_wiki_chains(path: Path) -> Iterator[ReasoningChain]:
    """Yield the chains of 2WikiMultihopQA's train.json or dev.json: each evidence is a step.

    A row without evidences has no chain and is skipped.

    Raises:
        InputError: If a row does not fit.
    """
    for entry in read_rows(path):
        row = parse(_Wiki, entry)
        if not row.evidences:
            continue
        passages = {
            title: Passage(f"{row.id}#{number}", " ".join(s.strip() for s in sentences), title)
            for number, (title, sentences) in enumerate(row.context)
            if any(s.strip() for s in sentences)
        }
        needed = {title for title, _ in row.supporting_facts}
        steps = tuple(
            ChainStep(
                question_of(subject, relation),
                answer,
                (passages[subject],) if subject in passages and subject in needed else (),
            )
            for subject, relation, answer in row.evidences
        )
        noise = tuple(passage for title, passage in passages.items() if title not in needed)
        yield ReasoningChain(row.id, row.question, steps, noise)


_QUESTIONS: Mapping[str, str] = {
    **{
        relation: f"Who is the {relation} of {{}}?"
        for relation in (
            "author", "cast member", "chairperson", "child", "composer", "creator", "director", "editor", "father",
            "head of government", "head of state", "mother", "producer", "screenwriter", "sibling", "spouse",
            "stepparent", "voice actor",
        )
    },
    "country": "In which country is {}?",
    "country of citizenship": "Of which country is {} a citizen?",
    "date of birth": "When was {} born?",
    "date of death": "When did {} die?",
    "doctoral advisor": "Who was the doctoral advisor of {}?",
    "educated at": "Where was {} educated?",
    "followed by": "What is {} followed by?",
    "founded by": "Who founded {}?",
    "has part": "What is a part of {}?",
    "headquarters location": "Where are the headquarters of {}?",
    "inception": "When was {} founded?",
    "instance of": "What is {} an instance of?",
    "located in the administrative territorial entity": "In which administrative territorial entity is {} located?",
    "manufacturer": "Who is the manufacturer of {}?",
    "named after": "What is {} named after?",
    "owned by": "Who owns {}?",
    "part of": "What is {} part of?",
    "performer": "Who performed {}?",
    "place of birth": "Where was {} born?",
    "place of burial": "Where is {} buried?",
    "place of death": "Where did {} die?",
    "publication date": "When was {} published?",
    "publisher": "Who published {}?",
    "record label": "What is the record label of {}?",
    "shares border with": "What does {} share a border with?",
}  # fmt: skip


def question_of(subject: str, relation: str) -> str:
    """The question for the object of a relation with this subject.

    Example:
        >>> question_of("Heonjong of Joseon", "father"), question_of("UHF", "genre")
        ('Who is the father of Heonjong of Joseon?', 'What is the genre of UHF?')
    """
    known = _QUESTIONS.get(" ".join(relation.lower().split()), f"What is the {relation.strip()} of {{}}?")
    return known.format(subject.strip())


def _as_question(query: str) -> str:
    subject, arrow, relation = query.partition(">>")
    return question_of(subject, relation) if arrow else query.strip()


def _with_answers(query: str, answers: list[str]) -> str:
    for number in range(len(answers), 0, -1):  # #12 before #1
        query = query.replace(f"#{number}", answers[number - 1])
    return query

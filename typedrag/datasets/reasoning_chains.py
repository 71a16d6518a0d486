"""Reasoning chains, and the passages that MuSiQue, HotpotQA and 2WikiMultihopQA publish with questions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, BeforeValidator, Field

from typedrag.core.records import Passage
from typedrag.datasets.dataset import make_id
from typedrag.datasets.reading import Id, Layout, Text, parse, read_rows


class ContextPassage(NamedTuple):
    """A passage that comes with a question, and whether a good answer needs it."""

    title: str
    text: str
    needed: bool

    @property
    def id(self) -> str:
        """The hash of title and text, the same in whatever file they are."""
        return make_id(self.title, self.text)


class _Paragraph(Layout):
    title: str
    paragraph_text: str
    is_supporting: bool = False


Sentences = Annotated[tuple[str, list[str]], Field(strict=False)]
"""A title, and the sentences below it; a list in JSON, which has no tuples."""
Fact = Annotated[tuple[str, int], Field(strict=False)]
"""A title, and the number of a sentence below it that a good answer needs."""


def _pairs(second: str) -> BeforeValidator:
    def pairs(value: Any) -> Any:
        """Pairs as files have them, of columns as the hub has them."""
        if isinstance(value, dict) and isinstance(value.get("title"), list) and isinstance(value.get(second), list):
            return list(zip(value["title"], value[second], strict=True))
        return value

    return BeforeValidator(pairs)


class WithContexts(Layout):
    """A question with its passages: MuSiQue's `paragraphs`, or the `context` of HotpotQA and 2WikiMultihopQA."""

    paragraphs: list[_Paragraph] = Field(default=[])
    context: Annotated[list[Sentences], _pairs("sentences")] = Field(default=[])
    supporting_facts: Annotated[list[Fact], _pairs("sent_id")] = Field(default=[])

    @property
    def passages(self) -> list[ContextPassage]:
        """All its passages, in the order of the file; those without text are left out."""
        facts = {title for title, _ in self.supporting_facts}
        texts = [(p.title, p.paragraph_text, p.is_supporting) for p in self.paragraphs]
        texts += [(t, " ".join(s.strip() for s in sentences), t in facts) for t, sentences in self.context]
        return [ContextPassage(t, text, needed) for t, text, needed in texts if text.strip()]

    @property
    def passage_ids(self) -> tuple[str, ...]:
        """The passages that a good answer needs; empty if one of them did not come with the question."""
        needed = [p for p in self.passages if p.needed]
        missing = {title for title, _ in self.supporting_facts} - {p.title for p in needed}
        return () if missing else tuple(dict.fromkeys(p.id for p in needed))


@dataclass(frozen=True)
class ChainStep:
    """A question, as it is asked once the earlier steps are answered, its answer and the passages that give it, if
    known."""

    query: str
    answer: str
    relevant: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class ReasoningChain:
    """A question and the steps that lead to its answer, the last step's, and passages that none of the steps needs."""

    id: str
    question: str
    steps: tuple[ChainStep, ...]
    noise: tuple[Passage, ...]


class _Hop(Layout):
    question: Text
    answer: Text
    paragraph_support_idx: int | None = None


class _ChainsParagraph(Layout):
    idx: int
    title: str
    paragraph_text: Text
    is_supporting: bool


class _Musique(Layout):
    id: Id
    question: Text
    question_decomposition: list[_Hop] = Field(min_length=2)
    paragraphs: list[_ChainsParagraph] = Field(default=[])


def musique_chains(path: Path) -> Iterator[ReasoningChain]:
    """Yield the chains of a file musique_ans_v1.0_train.jsonl or the like. A step may name an earlier answer by `#1`,
    or be only `SUBJECT >> RELATION`, which is turned into a question."""
    for entry in read_rows(path):
        row = parse(_Musique, entry)
        passages = {p.idx: Passage(f"{row.id}#{p.idx}", p.paragraph_text, p.title) for p in row.paragraphs}
        answers: list[str] = []
        steps = []
        for hop in row.question_decomposition:
            query = hop.question
            for number in range(len(answers), 0, -1):  # #12 before #1
                query = query.replace(f"#{number}", answers[number - 1])
            subject, arrow, relation = query.partition(">>")
            query = relation_question(subject, relation) if arrow else query.strip()
            support = passages.get(hop.paragraph_support_idx) if hop.paragraph_support_idx is not None else None
            steps.append(ChainStep(query, hop.answer, (support,) if support else ()))
            answers.append(hop.answer)
        noise = tuple(passages[p.idx] for p in row.paragraphs if not p.is_supporting)
        yield ReasoningChain(row.id, row.question, tuple(steps), noise)


class _Wiki(WithContexts):
    id: Id = Field(validation_alias=AliasChoices("_id", "id"))
    question: Text
    answer: Text
    evidences: list[Annotated[tuple[Text, Text, Text], Field(strict=False)]] = Field(default=[])


def two_wiki_chains(path: Path) -> Iterator[ReasoningChain]:
    """Yield the chains of 2WikiMultihopQA's train.json or dev.json: each evidence is a step."""
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
                relation_question(subject, relation),
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


def relation_question(subject: str, relation: str) -> str:
    """The question for the object of a relation with this subject."""
    known = _QUESTIONS.get(" ".join(relation.lower().split()))
    return known.format(subject.strip()) if known else f"What is the {relation.strip()} of {subject.strip()}?"

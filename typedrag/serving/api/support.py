"""`/v1/support`: the sentences of cited passages that support an answer's sentences."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from typedrag.files.text_files import WholeText
from typedrag.records import Passage
from typedrag.texts.citations import supporting_sentences

router = APIRouter(prefix="/v1", tags=["answers"])


class CitedPassage(BaseModel):
    """A passage that an answer cites."""

    id: WholeText
    text: WholeText


class CitedAnswer(BaseModel):
    """An answer, and the passages that it cites."""

    question: WholeText
    answer: str = Field(max_length=20_000)
    passages: list[CitedPassage] = Field(max_length=100)


class SupportedSentence(BaseModel):
    """A sentence of the answer, and the sentence of a passage that says the same."""

    sentence: str
    passage_id: str
    passage_sentence: str


class Supported(BaseModel):
    """The supported sentences of an answer, in their order."""

    support: list[SupportedSentence]


@router.post("/support")
def support(body: CitedAnswer) -> Supported:
    """Find the passage's sentence that supports each sentence of an answer, by shared words, without an LM call."""
    passages = [Passage(p.id, p.text) for p in body.passages]
    sentences = supporting_sentences(body.answer, passages, body.question)
    return Supported(support=[SupportedSentence(**one._asdict()) for one in sentences])

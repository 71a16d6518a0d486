"""References of known quality for non-factoid questions, as Wiki-NFQA has them (Typed-RAG, section 4.3).

Who writes them, and at which temperatures, is in appendices B.4 and B.5, what is asked in A.1 and A.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import dspy
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from typedrag.builders.rows import Built, Row, why
from typedrag.datasets.dataset import hash_of
from typedrag.errors import InputError
from typedrag.lms.asking import ask
from typedrag.lms.asking_each import Failed, ask_each
from typedrag.lms.call_settings import with_settings
from typedrag.lms.lm import lm_identity, use_lm
from typedrag.metrics.judges.judgments import Judgments
from typedrag.signatures import LabelAnswers, RewriteAnswer, WriteWorseAnswers, predictor
from typedrag.signatures.keyed import exactly, keyed, values
from typedrag.texts.words import folded

GROUND_TRUTH = "ground_truth"
"""The author of the answer that a question came with, as Wiki-NFQA calls it."""


@dataclass(frozen=True)
class ReferenceLMs:
    """Who writes references and labels them. Their temperatures are set by the settings.

    Attributes:
        writers: Each writes three answers of falling quality (appendix B.5: GPT-3.5-turbo-16k,
            Mistral-7B-Instruct-v0.2 and Llama-3.1-8B-Instruct). One that is named again draws anew.
        superior: Rewrites the ground truth (GPT-4o-2024-08-06).
        annotator: Labels all answers to a question (section 4.3: GPT-4o-2024-11-20).
    """

    writers: tuple[dspy.LM, ...]
    superior: dspy.LM
    annotator: dspy.LM


class WikiNFQASettings(BaseModel):
    """How references are written and labelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=0.8, ge=0)
    """At which references are written (appendix B.4: 0.8)."""
    annotation_temperature: float = Field(default=0.1, ge=0)
    """At which they are labelled (appendix B.4: 0.1)."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Of nucleus sampling (appendix B.4: 0.95)."""
    max_tokens: PositiveInt = 512
    """Of a reply (appendix B.4: 512)."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Of the order in which the annotator sees the answers."""


class ReferenceWriter(dspy.Module):
    """Writes answers to a question whose right answer it is shown."""

    signature: ClassVar[type[dspy.Signature]]
    step: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    """Of the reply's only field, the answers from good to bad."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.write = predictor(self.signature)
        self._retries = retries

    def forward(self, question: str, right_answer: str, settings: dict[str, Any]) -> list[str]:
        """The answers."""
        asked = with_settings(self.write, settings)
        reply = ask(self.step, asked, retries=self._retries, question=question, right_answer=right_answer)
        [(_, answers)] = reply.prediction.items()
        return [getattr(answers, part) for part in self.parts]


class SuperiorWriter(ReferenceWriter):
    """Rewrites the ground truth into one superior answer (figure 5)."""

    signature, step, parts = RewriteAnswer, "rewrite", ("root",)


class InferiorWriter(ReferenceWriter):
    """Writes three answers from good to bad, all worse than the ground truth (figure 6)."""

    signature, step, parts = WriteWorseAnswers, "write", ("acceptable", "poor", "senseless")


class Annotator(dspy.Module):
    """Labels answers to a question from 0 to 3 (figure 7)."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.label = predictor(LabelAnswers)
        self._retries = retries

    def forward(self, question: str, answers: Sequence[str]) -> list[int]:
        """A label for each answer, in their order."""
        shown = keyed(answers, "a")
        signature = exactly(self.label.signature, shown)
        reply = ask("label", self.label, retries=self._retries, signature=signature, question=question, answers=shown)
        return [int(label) for label in values(reply.prediction.grades)]


def build_wiki_nfqa(
    questions: Sequence[dspy.Example],
    lms: ReferenceLMs,
    store: Judgments,
    settings: WikiNFQASettings,
    *,
    threads: int = 16,
    on_done: Callable[[int], None] = lambda done: None,
) -> Built:
    """Questions with labelled references in the layout of dataset `wiki-nfqa`.

    The ground truth is labelled with the others, as in the paper, which has eleven answers for nine
    questions of ten: what an LM did not write legibly is missing, and the question stays. So here: a
    reference that cannot be read, is blank or repeats another is left out and counted, and a question
    only if its answers cannot be labelled or all have one label, so that no answer is better than
    another. The annotator sees the answers in an order drawn by hash: in that of their authors it
    could tell the good ones by their places.

    Args:
        store: Keeps what they wrote: after a kill, the same call pays only for what is missing.

    Raises:
        InputError: If no LM is to write.
        LMUnavailable: If an LM cannot be used; what was written is kept.
    """
    if not lms.writers:
        raise InputError("no LM is to write references", "Name one or more; the paper has three")
    authors = list(_authors(lms, settings))
    annotator = Annotator(settings.retries)
    annotating = lms.annotator.copy(**_sampling(settings, settings.annotation_temperature))

    stages = len(authors) + 1

    def tell(stage: int) -> Callable[[int], None]:
        return lambda done: on_done((stage * len(questions) + done) // stages)

    built = Built()
    replies = [
        ask_each(partial(author.references, store=store, retries=settings.retries), questions, threads, tell(stage))
        for stage, author in enumerate(authors)
    ]
    written = [
        _of_use(question, dict(zip(authors, of_question, strict=True)), built)
        for question, *of_question in zip(questions, *replies, strict=True)
    ]
    asked = list(zip(questions, written, strict=True))

    def label(answered: tuple[dspy.Example, dict[str, list[str]]]) -> list[int]:
        return _labels(answered[0], _answers(answered[1]), annotator, store, settings.seed)

    with use_lm(annotating):
        labelled = ask_each(label, asked, threads, tell(len(authors)))
    for (question, texts), labels in zip(asked, labelled, strict=True):
        if isinstance(labels, Failed):
            built.left_out[f"questions: {why(labels, 'their answers could not be labelled')}"] += 1
        elif len(set(labels)) < 2:
            built.left_out["questions: all their answers have the same label"] += 1
        else:
            built.rows.append(_row(question, texts, labels))
    return built


@dataclass(frozen=True, eq=False)
class _Author:
    """An LM that writes references.

    Attributes:
        name: By which rows call it; no other has it.
        lm: With its settings.
        writer: What it is asked for.
        draw: How many authors before are the same LM and asked for the same.
    """

    name: str
    lm: dspy.LM
    writer: ReferenceWriter
    draw: int

    def references(self, question: dspy.Example, store: Judgments, retries: int) -> list[str]:
        """What it writes, or once wrote.

        Raises:
            StepFailed: If no reply can be read.
            LMUnavailable: If the LM cannot be used.
        """
        asked = {"question": question.question, "right_answer": question.answers[0]}
        again = {"rollout_id": self.draw * (retries + 1)} if self.draw else {}  # past DSPy's cache
        with use_lm(self.lm):
            made = store.get_or_make(
                self.writer, {**asked, "draw": self.draw}, lambda: {"answers": self.writer(**asked, settings=again)}
            )
        return list(made["answers"])


def _authors(lms: ReferenceLMs, settings: WikiNFQASettings) -> Iterator[_Author]:
    """The superior LM and the others, in the order of Wiki-NFQA's rows."""
    sampling = _sampling(settings, settings.temperature)
    superior, inferior = SuperiorWriter(settings.retries), InferiorWriter(settings.retries)
    names: Counter[str] = Counter()
    draws: Counter[str] = Counter()
    tasks: list[tuple[dspy.LM, ReferenceWriter]] = [(lms.superior, superior), *((lm, inferior) for lm in lms.writers)]
    for lm, writer in tasks:
        name = lm.model.rpartition("/")[2]
        names[name] += 1
        same = f"{type(writer).__name__} {lm_identity(lm)}"
        called = name if names[name] == 1 else f"{name}-{names[name]}"
        yield _Author(called, lm.copy(**sampling), writer, draws[same])
        draws[same] += 1


def _sampling(settings: WikiNFQASettings, temperature: float) -> dict[str, Any]:
    return {"temperature": temperature, "top_p": settings.top_p, "max_tokens": settings.max_tokens}


def _of_use(
    question: dspy.Example, replies: Mapping[_Author, list[str] | Failed], built: Built
) -> dict[str, list[str]]:
    """The answers to a question by their authors, the ground truth first; those that are missing are counted."""
    written = {GROUND_TRUTH: [question.answers[0]]}
    seen = {folded(question.answers[0])}
    for author, reply in replies.items():
        written[author.name] = []
        if isinstance(reply, Failed):
            built.left_out[f"references: {why(reply)}"] += len(author.writer.parts)
            continue
        for text in reply:
            if not text.strip():
                built.left_out["references: blank"] += 1
            elif folded(text) in seen:
                built.left_out["references: it repeats another"] += 1
            else:
                seen.add(folded(text))
                written[author.name].append(text.strip())
    return written


def _answers(written: dict[str, list[str]]) -> list[str]:
    return [text for texts in written.values() for text in texts]


def _labels(
    question: dspy.Example, answers: Sequence[str], annotator: Annotator, store: Judgments, seed: int
) -> list[int]:
    """The label of each answer."""
    order = sorted(range(len(answers)), key=lambda n: hash_of(f"{question.id} {n}", seed))
    asked = {"question": question.question, "answers": [answers[n] for n in order]}
    said = store.get_or_make(annotator, asked, lambda: {"labels": annotator(**asked)})["labels"]
    labels = dict(zip(order, said, strict=True))
    return [labels[n] for n in range(len(answers))]


def _row(question: dspy.Example, written: dict[str, list[str]], labels: list[int]) -> Row:
    answers = _answers(written)
    return {
        "question_id": question.id,
        "question_text": question.question,
        "subset": question.subset,
        "predicted_type": str(question.question_type),
        "answers": list(question.answers),
        "num_answers": len(answers),
        "answer_dict": {
            author: {f"answer{number}": text for number, text in enumerate(texts, 1)}
            for author, texts in written.items()
        },
        "answer_list": answers,
        "answer_label": labels,
    }

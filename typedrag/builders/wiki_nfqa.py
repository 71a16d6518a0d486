"""References of known quality for non-factoid questions, in the manner of Wiki-NFQA (Typed-RAG, section 4.3).

The LMs and their temperatures are in appendices B.4 and B.5 of the paper, the prompts in A.1 and A.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import dspy
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.builders.builder import Builder, Built, OpenLM, Row, usable, why
from typedrag.builders.non_factoid import select_non_factoid
from typedrag.core.errors import InputError
from typedrag.datasets.dataset import text_hash
from typedrag.datasets.open_domain import read_question_set
from typedrag.experiments.loading import load_type_classifier
from typedrag.lms.asking import ask, with_settings
from typedrag.lms.lm import lm_identity, use_lm
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
from typedrag.runs.work import Failed, Stages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import add_keys, require_keys, values
from typedrag.signatures.generation import LabelAnswers, RewriteAnswer, WriteWorseAnswers
from typedrag.text.words import folded

GROUND_TRUTH = "ground_truth"
"""Wiki-NFQA's author name for the answer that a question came with."""


@dataclass(frozen=True)
class ReferenceLMs:
    """The LMs that write references and label them. The settings set their temperatures.

    Attributes:
        writers: Each writes three answers of falling quality (appendix B.5: GPT-3.5-turbo-16k,
            Mistral-7B-Instruct-v0.2 and Llama-3.1-8B-Instruct). One that is named again draws anew.
        superior: Rewrites the ground truth (GPT-4o-2024-08-06).
        annotator: Labels all answers to a question (section 4.3: GPT-4o-2024-11-20).
    """

    writers: tuple[dspy.LM, ...]
    superior: dspy.LM
    annotator: dspy.LM


class WikiNFQA(Builder):
    """Select the non-factoid questions of QA datasets, and have LMs write references and label them 0 to 3.

    The result is read by --dataset wiki-nfqa --path FILE.
    """

    name: ClassVar[str] = "wiki-nfqa"
    counted: ClassVar[tuple[str, ...]] = ("subset", "predicted_type")

    questions: tuple[str, ...] = Field(min_length=1)
    """DATASET, DATASET:PATH, or a file of questions with answers. Repeatable."""
    subset: str | None = None
    """Subset of the datasets, such as validation; default: all."""
    type_classifier: str | None = None
    """Finds the non-factoid questions; as option type_classifier. The paper: hub:Lurunchik/nf-cats."""
    program: str | None = None
    """Instead: a compiled program, whose type classifier is used."""
    patterns: bool = True
    """Whether a question must also have one of the taxonomy's patterns, of any type."""
    per_subset: PositiveInt | None = 300
    """Maximum questions of a subset, drawn in turn from each type (Wiki-NFQA's largest subset has 300)."""
    lm: tuple[str, ...] = ()
    """LM that writes three references: embedded[:NAME], vllm:MODEL or a DSPy name, with @URL behind it for its server.
    Repeatable; one that is named again draws anew."""
    superior: str | None = None
    """LM that rewrites the ground truth; default: the annotator."""
    annotator: str | None = None
    """LM that labels answers, and names types if the classifier asks an LM; default: the first --lm."""
    temperature: float = Field(default=0.8, ge=0)
    """The temperature of writing references (appendix B.4: 0.8)."""
    annotation_temperature: float = Field(default=0.1, ge=0)
    """The temperature of labelling (appendix B.4: 0.1)."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    """The share of nucleus sampling (appendix B.4: 0.95)."""
    max_tokens: PositiveInt = 512
    """The most tokens of a reply (appendix B.4: 512)."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Random seed."""

    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        """See `Builder.build`."""
        if self.type_classifier and self.program:
            raise InputError("both a type classifier and a program are named", "Give --type-classifier or --program")
        if self.program:
            classifier, _ = load_type_classifier(self.program)
        else:
            named = {"type_classifier": self.type_classifier} if self.type_classifier else {}
            classifier = build_type_classifier(Options().with_given(named))
        writers = tuple(open_lm(spec) for spec in self.lm or (None,))
        annotator = open_lm(self.annotator) if self.annotator else writers[0]
        superior = open_lm(self.superior) if self.superior else annotator
        sets = [read_question_set(where, self.subset) for where in self.questions]
        by_name: dict[str, list[dspy.Example]] = {}
        for each in sets:
            by_name.setdefault(each.name, []).extend(each.examples)
        with use_lm(annotator):
            selected, report = select_non_factoid(by_name, classifier, stages, self)
        report.left_out["rows: their loader leaves them out"] += sum(each.skipped for each in sets)
        built = build_wiki_nfqa(selected, ReferenceLMs(writers, superior, annotator), stages, self)
        built.left_out.update(report.left_out)
        return built


class ReferenceWriter(dspy.Module):
    """Writes answers to a question, given its right answer."""

    signature: ClassVar[type[dspy.Signature]]
    step: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    """The parts of the reply's only field: the answers from good to bad."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.write = predictor(self.signature)
        self._retries = retries

    def forward(self, question: str, right_answer: str, settings: dict[str, Any]) -> list[str]:
        """The answers."""
        write = with_settings(self.write, settings)
        reply = ask(self.step, write, retries=self._retries, question=question, right_answer=right_answer)
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
        """The label of each answer, in order."""
        shown = add_keys(answers, "a")
        signature = require_keys(self.label.signature, shown)
        reply = ask("label", self.label, retries=self._retries, signature=signature, question=question, answers=shown)
        return [int(label) for label in values(reply.prediction.grades)]


def build_wiki_nfqa(
    questions: Sequence[dspy.Example],
    lms: ReferenceLMs,
    stages: Stages,
    settings: WikiNFQA,
) -> Built:
    """Build questions with labelled references in the layout of dataset `wiki-nfqa`.

    As in the paper, the ground truth, a list if a question has several answers, is labelled with the others, and
    illegible answers of an LM are missing while the question stays: nine questions of ten have eleven answers there.
    So here a reference that cannot be read, is blank or repeats another is left out and counted. A question is left
    out only if its answers cannot be labelled or all have one label, so that no answer is better than another. The
    annotator sees the answers in an order drawn by hash: in the order of their authors it could tell the good ones by
    their places.

    Args:
        stages: Ask the LMs.

    Raises:
        InputError: If there is no LM to write.
        LMUnavailable: If an LM cannot be used; the texts so far are kept.
    """
    if not lms.writers:
        raise InputError("no LM is to write references", "Name one or more; the paper has three")
    authors = list(_authors(lms, settings))
    annotator = Annotator(settings.retries)
    annotating = lms.annotator.copy(**_sampling(settings, settings.annotation_temperature))

    built = Built()
    replies = [
        stages.run(f"references of {author.name}", partial(author.references, retries=settings.retries), questions)
        for author in authors
    ]
    written = [
        _of_use(question, dict(zip(authors, of_question, strict=True)), built)
        for question, *of_question in zip(questions, *replies, strict=True)
    ]
    answered = list(zip(questions, written, strict=True))

    def label(answered: tuple[dspy.Example, dict[str, list[str]]]) -> list[int]:
        return _labels(answered[0], _answers(answered[1]), annotator, settings.seed)

    with use_lm(annotating):
        labelled = stages.run("labelled questions", label, answered)
    for (question, texts), labels in usable(
        answered, labelled, built, "questions: ", "their answers could not be labelled"
    ):
        if len(set(labels)) < 2:
            built.left_out["questions: all their answers have the same label"] += 1
        else:
            built.rows.append(_row(question, texts, labels))
    return built


@dataclass(frozen=True, eq=False)
class _Author:
    """An LM that writes references.

    Attributes:
        name: Its unique name in the rows.
        lm: The LM with its settings.
        writer: The module that asks it.
        draw: The number of earlier authors with the same LM and prompt.
    """

    name: str
    lm: dspy.LM
    writer: ReferenceWriter
    draw: int

    def references(self, question: dspy.Example, retries: int) -> list[str]:
        """The answers that it writes."""
        inputs = {"question": question.question, "right_answer": _ground_truth(question)}
        again = {"rollout_id": self.draw * (retries + 1)} if self.draw else {}  # another draw than theirs
        with use_lm(self.lm):
            return list(self.writer(**inputs, settings=again))


def _authors(lms: ReferenceLMs, settings: WikiNFQA) -> Iterator[_Author]:
    """Yield the superior LM and the others, in the order of Wiki-NFQA's rows."""
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


def _ground_truth(question: dspy.Example) -> str:
    """A question's answer; several as one written list, as in Wiki-NFQA's rows: it is labelled as a whole (figure 7).

    Example:
        >>> _ground_truth(dspy.Example(answers=("pitot tube", "Pitot probe")))
        "['pitot tube', 'Pitot probe']"
    """
    answers = list({folded(text): text for text in reversed(question.answers)}.values())[::-1]
    return str(answers) if len(answers) > 1 else str(answers[0])


def _sampling(settings: WikiNFQA, temperature: float) -> dict[str, Any]:
    return {"temperature": temperature, "top_p": settings.top_p, "max_tokens": settings.max_tokens}


def _of_use(
    question: dspy.Example, replies: Mapping[_Author, list[str] | Failed], built: Built
) -> dict[str, list[str]]:
    """The answers to a question by author, the ground truth first; missing ones are counted."""
    truth = _ground_truth(question)
    written = {GROUND_TRUTH: [truth]}
    known = {folded(truth)}
    for author, reply in replies.items():
        written[author.name] = []
        if isinstance(reply, Failed):
            built.left_out[f"references: {why(reply)}"] += len(author.writer.parts)
            continue
        for text in reply:
            if not text.strip():
                built.left_out["references: blank"] += 1
            elif folded(text) in known:
                built.left_out["references: it repeats another"] += 1
            else:
                known.add(folded(text))
                written[author.name].append(text.strip())
    return written


def _answers(written: dict[str, list[str]]) -> list[str]:
    return [text for texts in written.values() for text in texts]


def _labels(question: dspy.Example, answers: Sequence[str], annotator: Annotator, seed: int) -> list[int]:
    """The label of each answer."""
    order = sorted(range(len(answers)), key=lambda n: text_hash(f"{question.id} {n}", seed))
    drawn = annotator(question=question.question, answers=[answers[n] for n in order])
    labels = dict(zip(order, drawn, strict=True))
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

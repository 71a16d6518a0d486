"""Programs changed as optimizers change them, without one."""

from typing import Any

import dspy
from hypothesis import strategies as st

from tests.programs.ways import PUBLISHED
from typedrag.core.question_types import DocumentScope, QuestionType
from typedrag.core.records import Passage
from typedrag.programs import Options, PreQRAGOptions, Program, SubQueryOptions
from typedrag.programs.artifact import named_predictors
from typedrag.programs.compiled import build_without_index
from typedrag.signatures.fields import (
    Citations,
    Finding,
    Findings,
    Items,
    Keywords,
    PerspectiveAnswer,
    PromptPassage,
    QuestionAnswer,
    SearchQuery,
    Side,
    Sides,
    SubQueries,
    TwoQuestions,
)

POOL = SubQueryOptions(combine="pool", search="joined")
AGGREGATE = SubQueryOptions(combine="aggregate", search="sub-query")
OPTIONS = (
    Options(),
    PUBLISHED,
    Options(
        type_classifier="lm",
        debate=POOL,
        reason=AGGREGATE,
        top_k=3,
        preqrag=PreQRAGOptions(classifier="either", prompt_style="D", generation=2),
    ).as_defaults(),  # each program takes what concerns it
)
PROGRAMS = ("typed_rag", "rag", "direct_lm", "preqrag")
_BASES = [build_without_index(name, options) for name in PROGRAMS for options in OPTIONS]

HOSTILE = ("[[ ## answer ## ]]", "\u2028{}{{", "\x00\x1b[31m", "</script>", "«»\n    x", "  padded\t", "Größe 零")

texts = st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE))
questions = st.sampled_from(
    ["Why does dough rise?", "How hot is an oven?", "Warum geht Teig auf?", "面包为什么会膨胀？"]
)
phrases = st.sampled_from(["bread", "old yeast", "für Anfänger", "面包"])

VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("question", "remark", "answer", "reasoning", "topic", "perspective"), texts),
    "question_type": st.sampled_from(QuestionType),
    "scope": st.sampled_from(DocumentScope),
    "sparse_query": st.builds(SearchQuery, phrases),
    "dense_query": st.builds(SearchQuery, questions),
    "two_sub_questions": st.builds(TwoQuestions, st.lists(questions, min_size=2, max_size=2)),
    **dict.fromkeys(("is_comparison", "is_debate"), st.booleans()),
    "purpose": st.sampled_from(["how they differ", "what they share", "which is better"]),
    "items_compared": st.builds(Items, st.lists(phrases, max_size=5)),
    "findings": st.builds(Findings, st.lists(st.builds(Finding, criterion=phrases, speaks_for=phrases), max_size=4)),
    "keywords": st.builds(Keywords, st.lists(phrases, min_size=1, max_size=8)),
    "sub_queries": st.builds(SubQueries, st.lists(questions, min_size=2, max_size=5)),
    "sides": st.builds(
        Sides, st.lists(st.builds(Side, perspective=phrases, sub_query=questions), min_size=2, max_size=5)
    ),
    "citations": st.builds(Citations, st.lists(st.integers(1, 99), max_size=10)),
    "answered": st.booleans(),
    "passages": st.lists(st.builds(PromptPassage, number=st.integers(1, 9), title=texts, text=texts), max_size=3),
    "sub_answers": st.lists(st.builds(QuestionAnswer, question=texts, answer=texts), max_size=3),
    "perspectives": st.lists(st.builds(PerspectiveAnswer, perspective=texts, answer=texts), max_size=3),
}
"""What the fields of signatures can hold, by name."""


class Spy:
    """Finds three passages for anything."""

    def search(self, queries, k):
        return [[Passage(f"p{n}", f"passage {n} on dough and yeast", "Bread") for n in range(3)] for _ in queries]


@st.composite
def compiled_programs(draw: st.DrawFn) -> Program:
    """Of any name and several options, with other instructions, descriptions, demonstrations and settings."""
    program = draw(st.sampled_from(_BASES)).deepcopy()
    predictors = list(named_predictors(program).values())
    for predictor in draw(st.lists(st.sampled_from(predictors), max_size=4, unique_by=id)):
        change(draw, predictor)
    for _, module in program.named_sub_modules(dspy.Module):
        module._compiled = draw(st.booleans())
    return program


def change(draw: st.DrawFn, predictor: dspy.Predict) -> None:
    signature = predictor.signature.with_instructions(draw(texts))
    name = draw(st.sampled_from(list(signature.fields)))
    predictor.signature = signature.with_updated_fields(name, desc=draw(texts), prefix=draw(texts))
    predictor.demos = [demonstration(draw, signature) for _ in range(draw(st.integers(0, 3)))]
    predictor.config = draw(st.sampled_from([{}, {"temperature": 0.7}, {"temperature": 1, "max_tokens": 99}]))


def demonstration(draw: st.DrawFn, signature: type[dspy.Signature]) -> dspy.Example:
    values = {name: draw(VALUES[name]) for name in signature.fields}
    for name in draw(st.lists(st.sampled_from(list(values)), max_size=1)):
        # left out, not known, or cut as text as SIMBA does
        way = draw(st.sampled_from(["without", "none", "text"]))
        if way == "without":
            del values[name]
        else:
            values[name] = None if way == "none" else f"{values[name]} … <TRUNCATED>"
    # what labelled examples bring along
    return dspy.Example(**values, augmented=draw(st.booleans()), references=("secret gold",), id="q1")

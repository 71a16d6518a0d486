"""Builders, which make datasets: from others' files, and with an LM that writes or labels."""

from typedrag.builders.aspects import Aspects, build_aspects
from typedrag.builders.builder import Builder, Built
from typedrag.builders.compound import Compound, build_compound, write_single_hop
from typedrag.builders.fabrications import Fabrications, build_fabrications
from typedrag.builders.preqrag import PreQRAGQuestions, build_preqrag
from typedrag.builders.question_types import QuestionTypes, build_question_types
from typedrag.builders.revelator import (
    RevelatorData,
    RouterTest,
    build_revelator,
    build_router_test,
    label_relevance,
)
from typedrag.builders.wiki_nfqa import ReferenceLMs, WikiNFQA, build_wiki_nfqa, select_non_factoid

BUILDERS: dict[str, type[Builder]] = {
    builder.name: builder
    for builder in (
        Aspects,
        Compound,
        Fabrications,
        PreQRAGQuestions,
        QuestionTypes,
        RevelatorData,
        RouterTest,
        WikiNFQA,
    )
}

__all__ = [
    "BUILDERS",
    "Aspects",
    "Builder",
    "Built",
    "Compound",
    "Fabrications",
    "PreQRAGQuestions",
    "QuestionTypes",
    "ReferenceLMs",
    "RevelatorData",
    "RouterTest",
    "WikiNFQA",
    "build_aspects",
    "build_compound",
    "build_fabrications",
    "build_preqrag",
    "build_question_types",
    "build_revelator",
    "build_router_test",
    "build_wiki_nfqa",
    "label_relevance",
    "select_non_factoid",
    "write_single_hop",
]

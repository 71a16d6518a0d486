"""Builders, which make datasets: from others' files, and with an LM that writes or labels."""

from typedrag.builders.aspects import build_aspects
from typedrag.builders.compound import CompoundSettings, build_compound, write_single_hop
from typedrag.builders.fabrications import FabricationsSettings, build_fabrications
from typedrag.builders.non_factoid import NonFactoidSettings, select_non_factoid
from typedrag.builders.preqrag import PreQRAGSettings, build_preqrag
from typedrag.builders.question_types import QuestionTypesSettings, build_question_types
from typedrag.builders.revelator import RevelatorSettings, RevelatorSources, build_revelator, label_relevance
from typedrag.builders.router_test import build_router_test
from typedrag.builders.rows import Built, write_built
from typedrag.builders.wiki_nfqa import ReferenceLMs, WikiNFQASettings, build_wiki_nfqa

__all__ = [
    "Built",
    "CompoundSettings",
    "FabricationsSettings",
    "NonFactoidSettings",
    "PreQRAGSettings",
    "QuestionTypesSettings",
    "ReferenceLMs",
    "RevelatorSettings",
    "RevelatorSources",
    "WikiNFQASettings",
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
    "write_built",
    "write_single_hop",
]

"""Datasets that are made: out of others' files, and with an LM that writes or labels."""

from typedrag.builders.building import Built, write_built
from typedrag.builders.compound import CompoundSettings, build_compound, write_single_hop
from typedrag.builders.preqrag import PreQRAGSettings, build_preqrag
from typedrag.builders.revelator import RevelatorSettings, RevelatorSources, build_revelator, label_relevance

__all__ = [
    "Built",
    "CompoundSettings",
    "PreQRAGSettings",
    "RevelatorSettings",
    "RevelatorSources",
    "build_compound",
    "build_preqrag",
    "build_revelator",
    "label_relevance",
    "write_built",
    "write_single_hop",
]

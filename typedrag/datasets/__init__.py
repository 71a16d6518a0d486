"""Named datasets, as `dspy.Example`s with splits, a fingerprint and a licence note."""

from typedrag.datasets import (  # each makes its datasets known
    everyday,  # noqa: F401
    linkage,  # noqa: F401
    nf_cats,  # noqa: F401
    pairs,  # noqa: F401
    researchy_questions,  # noqa: F401
    richrag,  # noqa: F401
    sub_questions,  # noqa: F401
    webgpt,  # noqa: F401
    wiki_nfqa,  # noqa: F401
    wikiasp,  # noqa: F401
    wikipassageqa,  # noqa: F401
)
from typedrag.datasets.compound import load_compound
from typedrag.datasets.dataset import Dataset, Source, load_dataset, plain, source, source_named, sources
from typedrag.datasets.fabrications import AnswerKind, MadeAnswer
from typedrag.datasets.file import field_mapping
from typedrag.datasets.hub import cache_folder
from typedrag.datasets.open_domain import OPEN_DOMAIN_SETS
from typedrag.datasets.revelator import REVELATOR
from typedrag.datasets.sample import SampleQuestion, sample_questions
from typedrag.datasets.splits import SPLITS

__all__ = [
    "OPEN_DOMAIN_SETS",
    "REVELATOR",
    "SPLITS",
    "AnswerKind",
    "Dataset",
    "MadeAnswer",
    "SampleQuestion",
    "Source",
    "cache_folder",
    "field_mapping",
    "load_compound",
    "load_dataset",
    "plain",
    "sample_questions",
    "source",
    "source_named",
    "sources",
]

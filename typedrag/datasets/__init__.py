"""Named datasets, as `dspy.Example`s with splits, a fingerprint and a licence note."""

from typedrag.datasets import (  # each makes its datasets known
    preferences,  # noqa: F401
    preqrag,  # noqa: F401
    richrag,  # noqa: F401
    sub_question_coverage,  # noqa: F401
    typed_rag,  # noqa: F401
)
from typedrag.datasets.dataset import SPLITS, Dataset, Source, load_dataset, plain, source, source_named, sources
from typedrag.datasets.file import field_mapping
from typedrag.datasets.hanrag import REVELATOR, load_compound
from typedrag.datasets.open_domain import OPEN_DOMAIN_SETS
from typedrag.datasets.preferences import AnswerKind, MadeAnswer
from typedrag.datasets.reading import cache_folder
from typedrag.datasets.sample import SampleQuestion, sample_questions

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

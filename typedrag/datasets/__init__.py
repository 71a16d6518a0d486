"""Named datasets, as `dspy.Example`s with splits, a fingerprint and a licence note."""

from typedrag.datasets.compound import COMPOUND, COMPOUND_SUBSETS, load_compound
from typedrag.datasets.dataset import (
    Dataset,
    Source,
    load_dataset,
    plain,
    source,
    source_named,
    sources,
)
from typedrag.datasets.fabrications import FABRICATIONS, AnswerKind, MadeAnswer, load_fabrications
from typedrag.datasets.file import field_mapping, load_file
from typedrag.datasets.hub import cache_folder
from typedrag.datasets.linkage import load_antique, load_trec_dl_nf
from typedrag.datasets.nf_cats import load_nf_cats
from typedrag.datasets.open_domain import OPEN_DOMAIN_SETS, load_open_domain
from typedrag.datasets.pairs import load_pairs
from typedrag.datasets.researchy_questions import load_researchy_questions
from typedrag.datasets.revelator import REVELATOR, load_revelator
from typedrag.datasets.sample import SampleQuestion, load_sample, sample_questions
from typedrag.datasets.splits import SPLITS
from typedrag.datasets.sub_questions import load_sub_question_coverage, load_sub_question_types
from typedrag.datasets.webgpt import load_webgpt
from typedrag.datasets.wiki_nfqa import load_wiki_nfqa
from typedrag.datasets.wikiasp import load_wikiasp
from typedrag.datasets.wikipassageqa import load_wikipassageqa

__all__ = [
    "COMPOUND",
    "COMPOUND_SUBSETS",
    "FABRICATIONS",
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
    "load_antique",
    "load_compound",
    "load_dataset",
    "load_fabrications",
    "load_file",
    "load_nf_cats",
    "load_open_domain",
    "load_pairs",
    "load_researchy_questions",
    "load_revelator",
    "load_sample",
    "load_sub_question_coverage",
    "load_sub_question_types",
    "load_trec_dl_nf",
    "load_webgpt",
    "load_wiki_nfqa",
    "load_wikiasp",
    "load_wikipassageqa",
    "plain",
    "sample_questions",
    "source",
    "source_named",
    "sources",
]

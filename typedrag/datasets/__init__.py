"""Named datasets, as `dspy.Example`s with splits, a fingerprint and a licence note."""

from collections.abc import Callable
from functools import partial

from typedrag.datasets import (
    file,
    hanrag,
    open_domain,
    preferences,
    preqrag,
    richrag,
    sample,
    sub_question_coverage,
    typed_rag,
)
from typedrag.datasets.dataset import SPLITS, Dataset, Source, load_dataset, plain, source, source_named, sources
from typedrag.datasets.file import Row, check_file, field_mapping, with_nuggets
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
    "Row",
    "SampleQuestion",
    "Source",
    "cache_folder",
    "check_file",
    "field_mapping",
    "load_compound",
    "load_dataset",
    "plain",
    "sample_questions",
    "source",
    "source_named",
    "sources",
    "with_nuggets",
]

_HUB = "https://huggingface.co/datasets"
_LINKAGE = "https://github.com/babyyang525/LINKAGE-Listwise-NFQA-Evaluation"
_XIE = "Apache-2.0 (Xie et al. 2024)", "https://arxiv.org/abs/2410.15531"
_MADE = "that of what it was made from", ""
_WIKIPEDIA = "none stated; texts of Wikipedia: CC BY-SA"

# fmt: off
_TABLE: tuple[tuple[str, Callable[..., Dataset], str, str, str], ...] = (
    ("file", file.load_file,
     "questions of your own: a .jsonl, .csv, .tsv or .json file, with its fields mapped", "its own", ""),
    ("pairs", preferences.load_pairs,
     "pairs of answers of your own, and which one people prefer: a .jsonl file, with its fields mapped", "its own", ""),
    ("sample", sample.load_sample,
     "24 questions over the sample corpus, four of each non-factoid type, with the passages they need",
     "Apache-2.0", "the package"),
    ("everyday", typed_rag.load_everyday,
     "questions as people type them into a search box, a chat or a support desk, by type and form",
     "Apache-2.0; those from NF-CATS: MIT", "the package"),
    ("wiki-nfqa", typed_rag.load_wiki_nfqa,
     "945 non-factoid questions on Wikipedia, each with about 11 answers that GPT-4o labelled 0 to 3",
     "CC BY-SA 4.0", f"{_HUB}/{typed_rag.WIKI_NFQA_HUB}"),
    ("antique", typed_rag.load_antique,
     "500 questions from Yahoo! Answers, each with about 20 answers labelled 1 (off topic) to 4 (convincing)",
     "none stated; content of Yahoo! Answers, for research (Hashemi et al. 2020; Yang et al. 2024)", _LINKAGE),
    ("trec-dl-nf", typed_rag.load_trec_dl_nf,
     "non-factoid questions of TREC Deep Learning with passages labelled 0 (irrelevant) to 3 (perfect)",
     "MS MARCO: non-commercial research only", _LINKAGE),
    ("nf-cats", typed_rag.load_nf_cats,
     "about 12,000 questions labelled with one of eight categories, by people and by clustering",
     "MIT", "https://github.com/Lurunchik/NF-CATS"),
    ("richrag", richrag.load_richrag,
     "questions with sub-aspects and sub-answers as RichRAG's authors publish them, of WikiPassageQA or WikiAsp",
     _WIKIPEDIA, richrag.HOME),
    ("wikiasp", richrag.load_wikiasp,
     "Wikipedia articles of 20 domains: a summary is asked for, and answered aspect by aspect",
     "CC BY-SA 4.0", "https://github.com/neulab/wikiasp"),
    ("wikipassageqa", richrag.load_wikipassageqa,
     "about 4,200 non-factoid questions on 863 Wikipedia articles, with the passages that answer them",
     _WIKIPEDIA, "https://ciir.cs.umass.edu/downloads/wikipassageqa/"),
    ("webgpt", preferences.load_webgpt,
     "about 19,600 pairs of answers with references, and by how much people prefer one",
     "none stated; OpenAI's WebGPT comparisons", f"{_HUB}/openai/webgpt_comparisons"),
    ("researchy-questions", sub_question_coverage.load_researchy_questions,
     "about 96,000 search queries that are non-factoid, many-sided and took their users much effort",
     "CDLA-Permissive-2.0", f"{_HUB}/{sub_question_coverage.RESEARCHY_HUB}"),
    ("adaptive-rag", hanrag.load_adaptive_rag,
     "Adaptive-RAG's 500 test questions of a set (SQuAD, NQ, TriviaQA, MuSiQue, HotpotQA, 2WikiMultihopQA)",
     "that of the set", "https://github.com/starsuzi/Adaptive-RAG"),
    ("liverag", preqrag.load_liverag,
     "895 questions of the LiveRAG Challenge 2025 with answers, written by DataMorgana on FineWeb",
     "ODC-BY 1.0", f"{_HUB}/{preqrag.LIVERAG_HUB}"),
    ("sub-question-types", sub_question_coverage.load_sub_question_types,
     "sub-questions that four people called core, background or follow-up", *_XIE),
    ("sub-question-coverage", sub_question_coverage.load_sub_question_coverage,
     "whether an answer of a search engine answers a sub-question, and where, by people", *_XIE),
    ("fabrications", preferences.load_fabrications,
     "a right answer and fabrications to each question, made by `typedrag datasets build fabrications`", *_MADE),
    ("compound", hanrag.load_compound,
     "questions for two to four things about one entity, made by `typedrag datasets build compound`", *_MADE),
    (REVELATOR, hanrag.load_revelator,
     "labels of HANRAG's router, decomposer, refiner and discriminators, by `datasets build revelator`", *_MADE),
    *((data.name, partial(open_domain.load_open_domain, data), data.about, data.licence, f"{_HUB}/{data.hub}")
      for data in OPEN_DOMAIN_SETS),
)
# fmt: on
for _name, _load, _about, _licence, _home in _TABLE:
    source(_name, about=_about, licence=_licence, home=_home)(_load)

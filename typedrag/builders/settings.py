"""The settings of builders, which commands read without DSPy; each builder is a class of these."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, FilePath, NonNegativeInt, PositiveInt, model_validator

from typedrag.builders.builder import Builder, DatasetBuilder
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionForm, QuestionType
from typedrag.text.words import SHORT_ANSWER_WORDS


class AspectsSettings(DatasetBuilder):
    """Divide the long answer of each question into sub-answers, and name their sub-aspects (RichRAG).

    The result is read by --dataset file.
    """

    name: ClassVar[str] = "aspects"
    counted: ClassVar[tuple[str, ...]] = ("subset",)
    of: ClassVar[str] = "questions"

    dataset: str = "wikipassageqa"
    """A dataset with long answers."""
    split: Literal["all", "train", "validation", "test"] | None = "all"
    """The part of it to divide."""
    demonstrations: FilePath | None = None
    """Questions with aspects and sub_answers that show the LM how, as for --dataset file."""


class CompoundSettings(Builder):
    """Join single questions about one entity into compound ones, each with its parts and answers."""

    name: ClassVar[str] = "compound"
    counted: ClassVar[tuple[str, ...]] = ("subset",)

    questions: tuple[Path, ...] = ()
    """Single questions: SQuAD 1.1's files, or rows with entity, question and answer. Repeatable."""
    passages: tuple[Path, ...] = ()
    """Instead: passages with titles, for the LM to write single questions on. Repeatable."""
    entities: PositiveInt | None = None
    """Number of entities to write questions about; default: all."""
    documents: PositiveInt = 10
    """Maximum passages of an entity that single questions are written from (appendix C.1: 10)."""
    per_entity: PositiveInt = 6
    """Compound questions to try for each entity (60,000 for 10,000 entities: 6)."""
    hops: tuple[Annotated[int, Field(ge=2, le=5)], ...] = (2, 3, 4)
    """A number of questions that are joined (appendix C.1: 2 to 4), drawn evenly. Repeatable."""
    limit: PositiveInt | None = None
    """Compound questions to try in all; single questions are written only for these. Default: all."""
    validation_share: float = Field(default=8 / 60, ge=0, lt=1)
    """Share of the entities for validation (8,000 of 60,000)."""
    test_share: float = Field(default=2 / 60, ge=0, lt=1)
    """Share of the entities for the test (2,000 of 60,000)."""
    passage_words: PositiveInt = 200
    """Words of a passage that the LM sees."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Random seed."""


class FabricationsSettings(DatasetBuilder):
    """Write a right answer and fabrications of the same length and style to each question.

    `typedrag research judges check --path fabrications=FILE` then tests judges with them.
    """

    name: ClassVar[str] = "fabrications"
    counted: ClassVar[tuple[str, ...]] = ("kind",)
    of: ClassVar[str] = "answers"

    dataset: str = "wiki-nfqa"
    """A dataset with gold answers."""
    gold_words: PositiveInt = SHORT_ANSWER_WORDS
    """Words of a gold answer at most: for a longer one no rule tells whether an answer holds it."""


class NuggetsSettings(DatasetBuilder):
    """List what a good answer to each question says, from passages that people labelled good and reference answers.

    No answer of a system is read, so that none is favoured. Edit the result as you like; the metric nuggets and
    judges check read it.
    """

    name: ClassVar[str] = "nuggets"
    counted: ClassVar[tuple[str, ...]] = ("vital",)
    of: ClassVar[str] = "nuggets, by whether they are vital"

    dataset: str = "antique"
    """A dataset with good passages, references or gold answers."""
    texts: PositiveInt = 8
    """Passages and references read of a question at most, the best first; each takes a call."""
    alike: float = Field(default=0.75, gt=0, le=1)
    """The cosine from which two nuggets may say the same."""
    most: PositiveInt = 20
    """Nuggets of a question at most: vital ones first, then those that most texts say."""


class PreQRAGQuestionsSettings(Builder):
    """Have an LM write single- and multi-document questions of all kinds, with answers and passages.

    The result is read by --dataset file; its subsets are single-document and multi-document.
    """

    name: ClassVar[str] = "preqrag"
    counted: ClassVar[tuple[str, ...]] = ("subset",)

    index: Path | None = None
    """Index of passages to write questions on. Default: TYPEDRAG_INDEX, else a sample corpus."""
    passages: tuple[Path, ...] = ()
    """Instead: files or folders of passages, as for typedrag index build. Repeatable."""
    retriever: str = "bm25"
    """Finds a second passage in --index: bm25, dense, hybrid, hybrid:WEIGHT or auto."""
    single: NonNegativeInt = 110
    """Number of single-document questions (table D.1: 110)."""
    multi: NonNegativeInt = 106
    """Number of multi-document questions (table D.1: 106)."""
    only: Mapping[str, tuple[str, ...]] = {}
    """Use only these categories of a choice, such as turn=first-turn. Repeatable; default: all."""
    attempts: PositiveInt = 3
    """Maximum attempts for each question: some cannot be used."""
    passage_words: PositiveInt = 200
    """Words of a passage that the LM sees."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Random seed."""


class QuestionTypesSettings(Builder):
    """Write questions in domains of yours, as people type them, and keep those whose type two labels agree on.

    The result is read by --dataset everyday. An LM that writes good questions is a large one.
    """

    name: ClassVar[str] = "question-types"
    counted: ClassVar[tuple[str, ...]] = ("type", "form")

    domain: tuple[str, ...] = Field(min_length=1)
    """What the questions are about and who asks: "a bank's help pages: pensioners". Repeatable."""
    type: tuple[QuestionType, ...] = tuple(QuestionType)
    """A type to write questions of; repeatable. Default: all."""
    form: tuple[QuestionForm, ...] = tuple(QuestionForm)
    """A form to write them in; repeatable. Default: all."""
    each: PositiveInt = Field(default=5, le=20)
    """Questions of each type and form in each domain."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""


class RevelatorDataSettings(Builder):
    """Turn the files of other datasets into rows for the revelator's five roles.

    An LM is needed only for --label-relevance. No file is required, but without one its rows are missing.
    """

    name: ClassVar[str] = "revelator"
    counted: ClassVar[tuple[str, ...]] = ("role", "part")

    straightforward: FilePath | None = None
    """CommonsenseQA's train_rand_split.jsonl: questions that take no retrieval."""
    single_step: tuple[FilePath, ...] = ()
    """NQ-open.train.jsonl, or DPR's biencoder-nq-train.json, whose passages teach relevance. Repeatable."""
    musique: FilePath | None = None
    """musique_ans_v1.0_train.jsonl."""
    two_wiki: FilePath | None = None
    """2WikiMultihopQA's train.json."""
    compound: FilePath | None = None
    """The output of datasets build compound; its train subset is used."""
    exclude: tuple[FilePath, ...] = ()
    """Test questions to leave out, one a row. Repeatable."""
    limit: PositiveInt = 50_000
    """Maximum rows to train on of one role, origin and label, of the router of one route whatever its origin, and
    maximum chains of one origin, drawn by hash (appendix C: 50,000)."""
    noise: NonNegativeInt = 2
    """Irrelevant passages for each query with a relevant one."""
    validation_share: float = Field(default=0.05, ge=0, lt=1)
    """Share of the questions for validation during training."""
    test_share: float = Field(default=0.05, ge=0, lt=1)
    """Share of the questions for the test."""
    seed: int = 0
    """Random seed."""
    label_relevance: bool = False
    """Let --lm label relevance, instead of using the files' labels."""

    @model_validator(mode="after")
    def _leaves_something_to_train_on(self) -> Self:
        if self.validation_share + self.test_share >= 1:
            raise InputError("no row is left to train on", "Lower the shares for validation and test")
        return self


class RouterTestSettings(Builder):
    """Draw as many questions of each route, and measure routers on them by `typedrag research revelator evaluate`.

    Of a dataset, those of its test split are drawn from; an LM is not needed.
    """

    name: ClassVar[str] = "router-test"
    counted: ClassVar[tuple[str, ...]] = ("route", "origin")
    asks_lm: ClassVar[bool] = False

    straightforward: tuple[FilePath, ...] = Field(min_length=1)
    """CommonsenseQA's dev_rand_split.jsonl, and its test file. Repeatable."""
    single_step: tuple[str, ...] = Field(min_length=1)
    """A dataset of single-step questions, such as squad=dev-v1.1.json. Repeatable."""
    complex: tuple[str, ...] = Field(min_length=1)
    """A dataset of complex questions, such as musique=FOLDER. Repeatable."""
    compound: FilePath
    """The output of datasets build compound; its test subset is used."""
    each: PositiveInt = 1_500
    """Questions of each route (HANRAG, appendix D)."""
    seed: int = 0
    """Random seed."""


class WikiNFQASettings(Builder):
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
    patterns_file: Path | None = None
    """The Typed-RAG authors' patterns, in the place of ours: data/processing/filter_nf_dataset_and_remap_paras.py of
    their repository."""
    per_subset: PositiveInt | None = 300
    """Maximum questions of a subset, drawn in turn from each type (Wiki-NFQA's largest subset has 300)."""
    lm: tuple[str, ...] = ()
    """LM that writes three references: embedded[:NAME], vllm:MODEL or a DSPy name, with @URL behind it for its server.
    Repeatable; one that is repeated draws again."""
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
    repeats: bool = False
    """Whether a reference that repeats another is kept, as in the authors' data."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be read is asked for again."""
    seed: int = 0
    """Random seed."""


_ALL: tuple[type[Builder], ...] = (
    AspectsSettings, CompoundSettings, FabricationsSettings, NuggetsSettings, PreQRAGQuestionsSettings,
    QuestionTypesSettings, RevelatorDataSettings, RouterTestSettings, WikiNFQASettings,
)  # fmt: skip
SETTINGS = {settings.name: settings for settings in _ALL}

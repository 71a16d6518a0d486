"""Build objects from a configuration's names."""

from __future__ import annotations

import logging
import platform
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dspy

from typedrag import retrieval
from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.question_types import TYPE_CLASSIFIERS
from typedrag.core.redaction import Redactor, make_redactor
from typedrag.datasets.dataset import Dataset, load_dataset, sample
from typedrag.experiments.answers_file import AnswersFile, read_answers
from typedrag.experiments.config import DataConfig, EvaluationConfig, LMConfig, MetricConfig, ProgramConfig
from typedrag.experiments.judges.saved import SavedJudge, load_judge
from typedrag.experiments.loading import program_source
from typedrag.experiments.question_typing import DEFAULT_CLASSIFIER, infer_type, program_classifier, with_types
from typedrag.experiments.results import METRIC, PlannedQuestion
from typedrag.files.text_files import hash_files
from typedrag.lms.cost import track_calls
from typedrag.lms.lm import Role, check_lm, open_lm, reply_settings
from typedrag.lms.specs import default_spec, model_files
from typedrag.metrics import Metric, build_metric, metric_class, takes_scorer
from typedrag.programs import Options, Program, program_class
from typedrag.programs.compiled import Compiled
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval import BM25Setting, IndexRetriever, Reranker
from typedrag.retrieval.opening import brings_index, find_server

logger = logging.getLogger(__name__)

# options of metrics that name the folder of a compiled judge, with the kind of that judge
_JUDGES: Mapping[str, Mapping[str, str]] = {
    "linkage": {"judge": "linkage-judge"},
    "coverage": {"judge": "coverage-judge", "typer": "sub-question-typer"},
}


class Resources:
    """The objects that the runs of an evaluation share; each is built when it is first used."""

    def __init__(
        self,
        config: EvaluationConfig,
        replies: Path,
        among: Collection[str] | None = None,
        sources: Mapping[str, ProgramSource] | None = None,
    ) -> None:
        self.config, self._replies, self._among = config, replies, among
        self._rerankers: dict[str, Reranker] = {}
        self._retrievers: dict[tuple[str, tuple[tuple[BM25Setting, float], ...]], IndexRetriever] = {}
        self._sources = dict(sources or {})

    def with_lm(self, lm: LMConfig) -> Resources:
        return self._copy({"lm": lm}, "lm", "redactor")

    def with_metrics(self, metrics: tuple[MetricConfig, ...]) -> Resources:
        return self if metrics == self.config.metrics else self._copy({"metrics": metrics}, "metrics")

    def _copy(self, changes: Mapping[str, Any], *built: str) -> Resources:
        """A copy with another configuration; all objects but those `built` by what has changed are shared."""
        other = copy(self)
        other.config = self.config.model_copy(update=changes)
        for name in built:
            other.__dict__.pop(name, None)
        return other

    def check(self) -> None:
        for program in self.config.programs:
            self.check_program(program)
        for metric in self.config.metrics:
            metric_class(metric.name).check_scorer(self.config.scorer, **metric.options)
            with_fingerprints(metric.name, metric.options)
        for program in self.config.programs:
            self.check_index(program)

    def check_program(self, program: ProgramConfig) -> None:
        source = self.source(program)
        if isinstance(source, AnswersFile):
            return
        source.check(configured_options(program, source))
        retrieval.check_retriever(configured_retriever(program, source))
        retrieval.check_reranker(reranker_spec(program, source))

    def check_index(self, program: ProgramConfig) -> None:
        source = self.source(program)
        if source.retrieves:
            retrieval.check_index(configured_retriever(program, source), self.config.index)

    def index_fingerprint(self, program: ProgramConfig) -> str:
        return str(self.retriever(program).identity["index"]) if self.source(program).retrieves else ""

    def retriever_spec(self, program: ProgramConfig) -> str:
        """The spec by which a program's passages are searched; of an index elsewhere how it is, not its address."""
        spec = configured_retriever(program, self.source(program))
        return str(self.retriever(program).identity.get("retriever", "bm25")) if brings_index(spec) else spec

    @cached_property
    def lm(self) -> dspy.LM:
        return open_metered(self.config.lm)

    @property
    def answering_lm(self) -> dspy.LM | None:
        return None if all(p.program in self.given for p in self.config.programs) else self.lm

    @property
    def given(self) -> dict[str, AnswersFile]:
        sources = {p.program: self.source(p) for p in self.config.programs}
        return {spec: source for spec, source in sources.items() if isinstance(source, AnswersFile)}

    @cached_property
    def scorer(self) -> dspy.LM | None:
        if self.config.scorer is None:
            return None
        scorer = self.config.scorer.inherit_address(self.config.lm)
        return open_metered(scorer.model_copy(update={"cache": True}), "scorer")

    @property
    def addresses(self) -> list[str]:
        """The addresses of the servers that programs' passages come from."""
        return [server for program in self.config.programs if (server := find_server(program.retriever or ""))]

    @cached_property
    def redactor(self) -> Redactor:
        return make_redactor([lm for lm in (self.answering_lm, self.scorer) if lm], addresses=self.addresses)

    @cached_property
    def dataset(self) -> Dataset:
        return load_configured(self.config.dataset)

    @property
    def split(self) -> str:
        return self.config.dataset.split or self.dataset.default_split

    @cached_property
    def examples(self) -> list[dspy.Example]:
        split = [e for e in self.dataset.split(self.split) if self._among is None or str(e.id) in self._among]
        if not split:
            problem = f"dataset '{self.dataset.name}' has no question in split '{self.split}'"
            raise InputError(problem, "Name another --split or --subset")
        for source in self.given.values():
            split = [e for e in split if source.find_answer(e)]
            if not split:
                raise InputError(
                    f"{source.path} answers no question of split '{self.split}' of dataset '{self.dataset.name}'",
                    "Give each line the question as it is there, or its id, or name another --split",
                )
        data = self.config.dataset
        if data.limit and len(split) < data.limit:
            words = "split '%s' of dataset '%s' has %d questions, fewer than the limit of %d"
            logger.warning(words, self.split, self.dataset.name, len(split), data.limit)
        return sample(self.typed(split), data.limit or len(split), data.seed, infer_type)

    def typed(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """The examples, with the types that the evaluation's type classifier names; see `question_typing`."""
        source, options = self._typing
        if options.type_classifier == DEFAULT_CLASSIFIER:
            return list(examples)  # `infer_type` names their types when they are needed
        lm = self.lm if TYPE_CLASSIFIERS.parse(options.type_classifier).kind == "lm" else None
        classifier, threads = program_classifier(source, options), self.config.threads
        return with_types(examples, classifier, lm, replies=self._replies, threads=threads)

    @property
    def type_classifier(self) -> str:
        return self._typing[1].type_classifier

    @cached_property
    def _typing(self) -> tuple[ProgramSource, Options]:
        """The first program that names a type classifier, else the first one, with its options."""
        classifier = self.config.dataset.type_classifier
        programs = [(source := self.source(p), configured_options(p, source)) for p in self.config.programs]
        naming = (p for p in programs if p[1].type_classifier != DEFAULT_CLASSIFIER)
        source, options = next(naming, programs[0])
        return source, options.with_given({"type_classifier": classifier}) if classifier else options

    @cached_property
    def questions(self) -> list[PlannedQuestion]:
        return [
            PlannedQuestion(str(e.id), e.question, infer_type(e), str(e.get("subset") or "")) for e in self.examples
        ]

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        return {
            m.name: build_metric(m.name, self.scorer, **with_judges(m.name, m.options, self.scorer))
            for m in self.config.metrics
        }

    def check_measurable(self, measures: Iterable[str] = ()) -> None:
        """Refuse metrics, and measures as `METRIC/MEASURE`, that can be measured on no question."""
        examples, metrics = self.examples, self.metrics
        for name, _, measure in (*((m, "", "") for m in metrics), *(m.partition("/") for m in measures)):
            if name in metrics:
                metric = metrics[name]
                if measure and metric.measures and measure not in (*metric.measures, "score"):  # it may be over many
                    raise InputError(
                        f"metric '{metric.name}' has no measure '{measure}' of an answer",
                        f"Measures: {', '.join((*metric.measures, 'score'))}",
                    )
                check_measurable(metric, examples, self.dataset, measure)

    def retriever(self, program: ProgramConfig) -> IndexRetriever:
        source = self.source(program)
        spec, bm25 = configured_retriever(program, source), bm25_settings(program, source)
        key = (spec, tuple(sorted(bm25.items())))
        if key not in self._retrievers:
            check_lm(self.config.lm.spec)  # opening an index may start Java
            if self.config.scorer is not None:
                check_lm(self.config.scorer.spec, "scorer")
            self._retrievers[key] = retrieval.open_retriever(spec, self.config.index, bm25)
            if program.as_published:
                source.warn_other_language(self._retrievers[key], program.as_published)
        return self._retrievers[key]

    def source(self, program: ProgramConfig) -> ProgramSource:
        if program.program not in self._sources:
            uri = self.config.tracking.uri
            answers = read_answers(program)
            self._sources[program.program] = answers or program_source(program.program, tracking_uri=uri)
        return self._sources[program.program]

    def program(self, config: ProgramConfig) -> Program:
        source = self.source(config)
        reranker, options = reranker_spec(config, source), configured_options(config, source)
        retrieval.check_reranker(reranker)  # its name first: opening an index takes seconds
        retriever = self.retriever(config) if source.retrieves else None
        if reranker not in self._rerankers:
            self._rerankers[reranker] = retrieval.open_reranker(reranker)
        return source.build(retriever, self._rerankers[reranker], options)

    def with_compiled(self, program: ProgramConfig, folder: Path) -> ProgramConfig:
        """The program that was compiled from another, with its options and that one's retriever, BM25 and reranker.

        All options and the reranker are named, since none that a folder names by itself is loaded from elsewhere; see
        `ProgramSource.options`.
        """
        compiled = Compiled.read(folder)
        reads = set(program_class(compiled.program).reads)
        own = {
            "program": str(folder),
            "as_published": None,
            "options": compiled.options.model_dump(mode="json", include=reads),
            "reranker": reranker_spec(program, self.source(program)),
        }
        return program.model_copy(update=own)

    def settings(self, program: ProgramConfig) -> dict[str, Any]:
        """The settings that a run's answers and judgments depend on; other settings make another run."""
        data, source = self.config.dataset, self.source(program)
        made_here: dict[str, Any] = {}
        if not isinstance(source, AnswersFile):
            made_here = {**self.answer_settings(program), "lm settings": reply_settings(self.lm)}
        metrics = {}
        for m in self.config.metrics:
            own: dict[str, Any] = {"options": with_fingerprints(m.name, m.options)}
            metrics[f"{METRIC}{m.name}"] = own
            if self.scorer and self.config.scorer and takes_scorer(m.name, m.options):
                spec = self.config.scorer.spec or default_spec()
                own |= {"scorer": spec, "scorer settings": reply_settings(self.scorer)}
        return {
            **source.settings,
            **made_here,
            "dataset": data.name,
            "dataset fingerprint": self.dataset.fingerprint,
            "subset": data.subset,
            "split": self.split,
            "seed": data.seed,
            **({} if self.type_classifier == DEFAULT_CLASSIFIER else {"question types": self.type_classifier}),
            **metrics,
        }

    def answer_settings(self, program: ProgramConfig) -> dict[str, Any]:
        """The settings that a program's answers depend on, besides those of the LM."""
        source, lm = self.source(program), self.config.lm.spec or default_spec()
        options = configured_options(program, source).model_dump(mode="json")
        files = {
            name: digest
            for value in (lm, *options.values())
            if isinstance(value, str)
            for name, digest in model_files(value).items()
        }
        return {
            **source.settings,
            "options": options,
            **retrieval.reranker_identity(reranker_spec(program, source)),
            **(self.retriever(program).identity if source.retrieves else {"index": None}),
            "lm": lm,
            **({"model files": files} if files else {}),
        }

    @cached_property
    def _commit(self) -> str | None:
        return git_commit()

    def notes(self, program: ProgramConfig) -> dict[str, Any]:
        """Other facts about a run, which do not make it another run."""
        source = self.source(program)
        elsewhere = source.retrieves and brings_index(program.retriever or "")
        place = self.retriever(program).place if elsewhere else ""
        return {
            "name": program.name,
            **({"compiled program": program.program} if source.compiled else {}),
            **({"passages from": self.redactor(place)} if place else {}),
            "data": self.dataset.source,
            "licence": self.dataset.licence,
            "git commit": self._commit,
            "versions": {"python": platform.python_version()} | {p: version(p) for p in ("typedrag", "dspy", "mlflow")},
        }


def load_configured(config: DataConfig) -> Dataset:
    subset = {} if config.subset is None else {"subset": config.subset}
    options = dict(config.options)
    if config.fields:
        options["fields"] = {**options.get("fields", {}), **config.fields}
    return load_dataset(config.name, config.path, **subset, **options)


def check_measurable(metric: Metric, examples: Sequence[dspy.Example], dataset: Dataset, measure: str = "") -> None:
    """Refuse a metric, or a measure of it, that can be measured on none of the examples."""
    reason = ""
    for example in examples:
        try:
            metric.require(example, measure) if measure else metric.require(example)
        except NotMeasurable as lack:
            reason = str(lack)
        else:
            return
    if examples:
        name, columns = f"{metric.name}/{measure}" if measure else metric.name, dataset.columns
        raise InputError(
            f"'{name}' can be measured on none of the {len(examples)} questions of dataset '{dataset.name}': {reason}"
            f"{f' ({columns})' if columns else ''}",
            "Leave it out" + (", or name the column that has it: --field NAME=COLUMN" if columns else ""),
        )


def with_judges(metric: str, options: Mapping[str, Any], scorer: dspy.LM | None) -> dict[str, Any]:
    """The options of a metric, with compiled judges in the place of their folders."""
    model, kinds = scorer.model if scorer else "", _JUDGES.get(metric, {})
    return {**options, **{n: load_judge(f, kinds[n], model) for n, f in _judge_folders(metric, options).items()}}


def configured_options(program: ProgramConfig, source: ProgramSource) -> Options:
    return source.options(as_published=program.as_published, overrides=program.options)


def configured_retriever(program: ProgramConfig, source: ProgramSource) -> str:
    return source.choose_retriever(program.retriever, as_published=program.as_published)


def reranker_spec(program: ProgramConfig, source: ProgramSource) -> str:
    return source.choose_reranker(program.reranker, as_published=program.as_published)


def bm25_settings(program: ProgramConfig, source: ProgramSource) -> dict[BM25Setting, float]:
    """The settings of a program's BM25: those configured, over those it was compiled with, or the published ones."""
    elsewhere = not source.retrieves or brings_index(configured_retriever(program, source))
    return source.choose_bm25(program.bm25.settings, as_published=None if elsewhere else program.as_published)


def _judge_folders(metric: str, options: Mapping[str, Any]) -> dict[str, Path]:
    named = {name: options.get(name) for name in _JUDGES.get(metric, {})}
    return {name: Path(folder) for name, folder in named.items() if isinstance(folder, str | Path)}


def with_fingerprints(metric: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a metric, with what judges are asked by, and nuggets, in the place of where they lie."""
    nuggets = {"file": hash_files(Path(options["file"]))} if metric == "nuggets" and options.get("file") else {}
    return {
        **options,
        **nuggets,
        **{n: SavedJudge.read(f).fingerprint for n, f in _judge_folders(metric, options).items()},
    }


def git_commit(folder: Path | None = None) -> str | None:
    """The commit of a checkout, by default the working folder's, with a + if files have changed; None if unknown."""
    try:
        commit, changes = (
            subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changes else commit


def open_metered(config: LMConfig, role: Role = "LM") -> dspy.LM:
    return track_calls(open_lm(config.spec, api_base=config.api_base, role=role, **config.settings))

"""Programs before they are built: by their name, or from the folder of a compiled one."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.core.parameters import Published
from typedrag.core.question_types import TYPE_CLASSIFIERS
from typedrag.lms.models import MODELS
from typedrag.programs import Options, Program, build_program, program_class, program_names
from typedrag.programs.artifact import has_file
from typedrag.programs.compiled import PROGRAM, Compiled, build_without_index
from typedrag.programs.options import COMPLEXITY_CLASSIFIERS, Preset, find_preset
from typedrag.retrieval import BM25Setting, Reranker, Retriever, check_retriever, open_retriever, retriever_parts
from typedrag.retrieval.index.bm25_part import Manifest
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.relevance_filter import RELEVANCE_FILTERS

logger = logging.getLogger(__name__)

FORMS = "a folder, models:/NAME@ALIAS, models:/NAME/VERSION or runs:/ID/PATH"


@dataclass(frozen=True)
class ProgramSource:
    """A program before it is built: its name, and the state that it was compiled to, if it was."""

    name: str
    compiled: Compiled | None = None

    @property
    def retrieves(self) -> bool:
        return program_class(self.name).retrieves

    @property
    def reranker(self) -> str:
        if self.compiled is None:
            return "none"
        spec = self.compiled.reranker
        name = spec.partition(":")[2]
        if name and name not in MODELS:
            raise InputError(
                f"{self.compiled.source} was compiled with reranker {spec!r:.100}, which does not come with typedrag",
                "Name a --reranker yourself, this or another",
            )
        return spec

    def preset(self, as_published: Published | None) -> Preset | None:
        """The settings that the program is published with, if it is asked for so; a compiled one has its own."""
        return find_preset(self.name, as_published) if as_published and self.compiled is None else None

    def choose_reranker(self, spec: str | None, *, as_published: Published | None = None) -> str:
        """A reranker's spec, if one is given; else the program's own, or the published one."""
        preset = self.preset(as_published)
        if spec or preset is None:
            return spec or self.reranker
        if self.name == "richrag":
            raise InputError(
                "richrag as published orders passages by its list ranker",
                "Load the authors' (typedrag research ranker import) or train one, and name it: --reranker list:FOLDER",
            )
        return preset.reranker

    @property
    def retriever(self) -> str:
        spec = (self.compiled and self.compiled.retriever) or program_class(self.name).searches
        if brings_index(spec):
            raise InputError(f"{self.name} was compiled with retriever {spec!r:.100}", "Name a --retriever yourself")
        check_retriever(spec)
        return spec

    def choose_retriever(self, spec: str | None, *, as_published: Published | None = None) -> str:
        """A retriever's spec, if one is given; else the published one, or the program's own."""
        preset = self.preset(as_published)
        return spec or (preset.retriever if preset else "") or self.retriever

    def open_retriever(self, index: Path | str | None = None, spec: str | None = None) -> IndexRetriever | None:
        """The program's retriever, or another spec's, over `default_index()` or another; None if it needs none."""
        return open_retriever(spec or self.retriever, index, self.choose_bm25()) if self.retrieves else None

    def warn_other_language(self, retriever: IndexRetriever, as_published: Published) -> None:
        """Warn if the index analyzes words otherwise than the one that the program is published with."""
        preset = self.preset(as_published)
        manifest = getattr(retriever_parts(retriever).sparse, "manifest", None)
        if preset and preset.language and isinstance(manifest, Manifest) and manifest.language != preset.language:
            logger.warning(
                "%s is published with words as they are, and this index has those of the analyzer '%s'. Build one like "
                "the authors': typedrag index build FILE --language %s --out INDEX",
                self.name, manifest.analyzer, preset.language,
            )  # fmt: skip

    def choose_bm25(
        self,
        settings: Mapping[BM25Setting, float] | None = None,
        *,
        as_published: Published | None = None,
    ) -> dict[BM25Setting, float]:
        """BM25's settings: these, over those that the program was compiled with, or the published ones."""
        preset = self.preset(as_published)
        own = self.compiled.bm25 if self.compiled else preset.bm25 if preset else {}
        return {**own, **(settings or {})}

    def options(self, *, as_published: Published | None = None, overrides: Mapping[str, Any] | None = None) -> Options:
        overrides = overrides or {}
        if self.compiled is None:
            held = Options.as_published(self.name, as_published) if as_published else Options()
        elif as_published:
            raise InputError(
                f"{self.compiled.source} has the options that it was compiled with, not the published ones",
                "Leave out --as-published",
            )
        else:
            held = self.compiled.options.as_defaults(program_class(self.name).reads)
            for name, value in external_options(held):
                group, _, option = name.partition(".")
                override = overrides.get(group)
                if option and isinstance(override, Mapping):
                    override = override.get(option)
                if override is None:
                    reason = f"was compiled with {name} {value!r:.100}, which does not come with typedrag"
                    raise InputError(f"{self.compiled.source} {reason}", f"Name {name} yourself, this or another")
        options = held.with_given(overrides)
        program_class(self.name).check_options(options.model_fields_set)
        return options

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that answers depend on, besides options, reranker and index."""
        return {"program": self.name, **({"compiled": self.compiled.fingerprint} if self.compiled else {})}

    def check(self, options: Options) -> None:
        """Raise the `InputError` that `build` would raise, without an index."""
        if self.compiled:
            self.compiled.without_index(options)

    def check_unlabelled(self, options: Options, retriever: str | None) -> None:
        """The same for questions of which no labels are known: those of users, and of a compile."""
        self.check(options)
        labels = [f"program {self.name}"] if program_class(self.name).reads_labels else list(options.labels)
        if (retriever or self.retriever) == "gold":
            labels.append("retriever=gold")
        if labels:
            raise InputError(
                f"{labels[0]} reads labels of a dataset, which questions have in evaluations alone",
                "Leave it out, or use it in an evaluation",
            )

    def without_index(self, options: Options) -> Program:
        return self.compiled.without_index(options) if self.compiled else build_without_index(self.name, options)

    def build(self, retriever: Retriever | None, reranker: Reranker | None, options: Options) -> Program:
        if self.compiled:
            return self.compiled.build(retriever, reranker, options)
        return build_program(self.name, retriever, reranker, options)


def external_options(options: Options) -> list[tuple[str, str]]:
    """The options that name a model, a file or an LM that does not come with typedrag, by their dotted names."""
    specs = (
        ("type_classifier", TYPE_CLASSIFIERS, options.type_classifier),
        ("relevance", RELEVANCE_FILTERS, options.relevance),
        ("adaptive.classifier", COMPLEXITY_CLASSIFIERS, options.adaptive.classifier),
    )
    external = [(name, spec) for name, grammar, spec in specs if grammar.parse(spec).argument]
    lms = {"hanrag.revelator_lm": options.hanrag.revelator_lm, "richrag.explorer_lm": options.richrag.explorer_lm}
    return [*external, *((name, spec) for name, spec in lms.items() if spec)]


def without_external_models(options: Options) -> Options:
    """The options without models, files and LMs that do not come with typedrag; the predictors stay the same."""
    external, relevance = dict(external_options(options)), options.relevance
    changes = {
        "type_classifier": "linear" if "type_classifier" in external else options.type_classifier,
        "relevance": relevance if "relevance" not in external else "cascade" if "cascade" in relevance else "score",
        "hanrag": options.hanrag.model_copy(update={"revelator_lm": ""}),
        "richrag": options.richrag.model_copy(update={"explorer_lm": ""}),
    }
    return options.model_copy(update=changes).as_defaults()


def program_source(text: str) -> ProgramSource:
    """The source of a program by its name, or by the folder of a compiled one; the name counts where both are there."""
    if text in program_names():
        return ProgramSource(text)
    if "/" in text or os.sep in text or has_file(Path(text), PROGRAM):
        compiled = Compiled.read(Path(text), source=text)
        return ProgramSource(compiled.program, compiled)
    try:
        return ProgramSource(program_class(text).name)
    except InputError as error:
        raise InputError(error.problem, f"{error.hint}; or name a compiled one: {FORMS}") from None

"""The objects that a sweep's trials share, built from its configuration."""

import json
import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy
from filelock import FileLock
from optuna.distributions import CategoricalDistribution
from pydantic import ValidationError

from typedrag.core.errors import InputError, names_hint
from typedrag.datasets.dataset import check_split, text_hash
from typedrag.experiments import config as configs
from typedrag.experiments.compare import COSTS
from typedrag.experiments.config import EvaluationConfig, LMConfig, MetricConfig, ProgramConfig
from typedrag.experiments.held_out import OBJECTIVE, SCORE
from typedrag.experiments.resources import (
    Resources,
    bm25_settings,
    configured_options,
    configured_retriever,
    reranker_spec,
)
from typedrag.experiments.results import METRIC
from typedrag.files.text_files import write_text
from typedrag.lms.lm import use_lm
from typedrag.lms.replies import REPLIES
from typedrag.metrics import objective_risk, takes_scorer
from typedrag.optimizers.compile import CompileConfig, run_compile
from typedrag.optimizers.compile.config import OptimizerConfig
from typedrag.optimizers.sweep import space
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.space import Point, Space
from typedrag.retrieval import reranker_identity
from typedrag.retrieval.opening import bm25_of_index

_HOW = {"name", "stop", "index", "threads", "calls_in_flight", "storage", "heartbeat", "tracking", "held_out"}
"""Settings that trials do not depend on."""


class SweepResources:
    """The parts of a sweep; each is built when it is first used."""

    def __init__(self, config: SweepConfig, out: Path) -> None:
        self.config = config
        self.out = out
        self._replies = out / REPLIES
        self.measures = [*(o.measure for o in config.objectives), *(c.measure for c in config.constraints)]
        self.metrics = tuple(MetricConfig(name=m.name, options=m.options) for m in config.weighted_metrics)
        self._turned_weights = [name for name in space.RATING if name in config.knobs]
        self._at: dict[tuple[LMConfig, str], Resources] = {}

    def check(self) -> None:
        """Refuse measures, splits, knobs and values that cannot be used, before anything is paid."""
        self.base.check()
        known = {"cost", OBJECTIVE, *self.config.weights}
        for measure in self.measures:
            if measure.partition("/")[0] not in known:
                hint = names_hint("Metrics", measure.partition("/")[0], sorted(known))
                raise InputError(f"measure '{measure}' is of no metric of the sweep", hint)
            if measure.startswith("cost/") and measure not in COSTS:
                raise InputError(f"there is no cost '{measure}'", names_hint("Costs", measure, COSTS))
            if measure.startswith(f"{OBJECTIVE}/") and measure != SCORE:
                raise InputError(f"there is no measure '{measure}'", f"Name {SCORE}, the weighted mean of all metrics")
        if self.config.sampler.name == "grid" and self.space.size == math.inf:
            raise InputError("the knobs have too many values for a grid", "Give each knob a list of values, or a step")
        if self._turned_weights:
            self._check_rating(self._turned_weights[0])
        swept, held = self.config.dataset.split, self.config.held_out.split
        for split in (swept, held):
            check_split(split)
        if swept == held or "all" in (swept, held):
            raise InputError(
                f"trials over the split {swept} would see questions of the split {held}, which are to be held out",
                "Sweep over dataset.split: validation, and measure on held_out.split: test",
            )
        if self.config.compile and held != "test":
            raise InputError(
                f"what is compiled sees the split {held}, whose questions are to be held out",
                "Measure on held_out.split: test",
            )
        turned: dict[str, Iterable[Any]] = {
            name: d.choices if isinstance(d, CategoricalDistribution) else (d.low, d.high)  # type: ignore[attr-defined]
            for name, d in self.space.distributions.items()
        }
        for program in turned.pop("program", (self.config.program.program,)):
            self._check_point({"program": program})
            for name, values in turned.items():  # one knob at a time, at each of its values or the ends of its range
                for value in values:
                    self._check_point({"program": program, name: value})

    def _check_rating(self, turned: str) -> None:
        """Refuse to turn weights that rate nothing, or to go by a measure that they change by themselves."""
        if not any(name in space.RATED for name in self.config.weights):
            hint = f"Name a metric: {' or '.join(space.RATED)}"
            raise InputError(f"knob '{turned}' turns no metric of the sweep", hint)
        rated = {"coverage/score", "coverage/rating"} | ({SCORE} if "coverage" in self.config.weights else set())
        if by := next((measure for measure in self.measures if measure in rated), None):
            raise InputError(
                f"knob '{turned}' changes what '{by}' means, so that trials cannot be compared by it",
                "Go by preference/accuracy, or by a measure without weights, such as linkage/mrr",
            )

    def _check_point(self, point: Point) -> None:
        try:
            program = space.apply_params(self.config.program, point)
            space.apply_lm_params(self.config.lm, point)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"a knob cannot be turned to '{first['input']}'", first["msg"]) from None
        self.base.check_program(program)
        self.base.check_index(program)
        optimizer = point.get(space.OPTIMIZER, "none")
        known = ("none", *(self.config.compile.optimizers if self.config.compile else ()))
        if optimizer not in known:
            raise InputError(
                f"optimizer '{optimizer}' is not among the optimizers of 'compile'", "Say there how it compiles"
            )

    @cached_property
    def space(self) -> Space:
        return space.build_space(self.config.knobs)

    @property
    def risk(self) -> str:
        """The risk of optimizing these measures, or those that knob `optimizer` compiles against; empty if none."""
        named = [m.partition("/")[0] for m in self.measures]
        risk = objective_risk([*named, *(self.config.weights if SCORE in self.measures else ())])
        section = self.config.compile
        return risk or (objective_risk(m.name for m in section.against) if section else "")

    @cached_property
    def base(self) -> Resources:
        return Resources(self.evaluation(self.config.program), self._replies)

    @property
    def first_point(self) -> Point | None:
        """The point of the program as it is; None if that is not in the space."""
        base, index = self.config.program, self.config.index
        source = self.base.source(base)
        try:
            own = {"retriever": configured_retriever(base, source), "reranker": reranker_spec(base, source)}
        except InputError:  # it names what is not used without its user's word
            return None
        program = base.model_copy(update={**own, "bm25": configs.BM25Config(**bm25_settings(base, source))})
        options = configured_options(base, source)
        point = {
            name: space.current_value(name, options, program, self.base.config.lm, self.metrics)
            for name in self.config.knobs
        }
        if unset := [name for name, value in point.items() if value is None and name.startswith("bm25.")]:
            settings = bm25_of_index(own["retriever"], index)
            point |= {name: settings[name.removeprefix("bm25.")] for name in unset}
        return point if self.space.holds(point) else None

    def evaluation(
        self, *programs: ProgramConfig, split: str | None = None, limit: int | None = None
    ) -> EvaluationConfig:
        config = self.config
        data = dict(config.dataset)
        if split is not None:
            data |= {"split": split, "limit": limit}
        return EvaluationConfig(
            programs=programs,
            dataset=configs.DatasetConfig(**data),
            metrics=self.metrics,
            lm=config.lm.model_copy(update={"cache": True}),  # stored replies are looked up by it; see `Replies`
            scorer=config.scorer and config.scorer.model_copy(update={"cache": True}),
            index=config.index,
            threads=config.threads,
            calls_in_flight=config.calls_in_flight,
            caps=configs.CapsConfig(failures=config.failures),
            replies=self._replies,
            tracking=config.tracking,
        )

    def program_config(self, point: Point, name: str = "") -> ProgramConfig:
        """The program of a point; compiled first if knob `optimizer` names an optimizer that has not run yet."""
        program = self.config.program
        optimizer = point.get(space.OPTIMIZER, "none")
        if optimizer != "none":
            program = self.base.with_compiled(program, self._compiled(str(optimizer)))
        return space.apply_params(program, point).model_copy(update={"name": name})

    def components(self, point: Point) -> Resources:
        """The components of the sweep with the LM and the metrics of a point."""
        lm, metrics = space.apply_lm_params(self.base.config.lm, point), space.apply_rating(self.metrics, point)
        key = (lm, json.dumps([m.model_dump(mode="json") for m in metrics], sort_keys=True))
        if key not in self._at:
            _ = self.base.dataset, self.base.questions, self.base.metrics  # loaded here once, then shared
            self._at[key] = self.base.with_lm(lm).with_metrics(metrics)
        return self._at[key]

    def lms_answer(self) -> bool:
        for lm in filter(None, (self.base.answering_lm, self.base.scorer)):
            try:
                with use_lm(lm.copy(cache=False)):
                    dspy.Predict("question -> answer")(question="What is water?")
            except dspy.AdapterParseError:
                pass  # it has replied
            except Exception:  # of DSPy or LiteLLM
                return False
        return True

    def identity(self) -> dict[str, Any]:
        """The settings that trials depend on, as JSON values; all workers of a study must have the same."""
        config, base = self.config, self.base
        settings = base.settings(config.program)
        measured = {name: value for name, value in settings.items() if not name.startswith(METRIC)}
        judged = {name: value for name, value in settings.items() if name.startswith(METRIC)}
        values = config.model_dump(mode="json", exclude=_HOW)
        names = ("knobs", "objectives", "constraints", "sampler", "pruning", "compile", "failures")
        # digests of the compiled programs and of the folders of rerankers that knobs name
        places = {n: map(str, config.knobs[n].values) if n in config.knobs else () for n in ("program", "reranker")}
        programs, rerankers = [], []
        for place in places["program"]:
            if compiled := base.source(space.apply_params(config.program, {"program": place})).compiled:
                held = [compiled.fingerprint, compiled.model_dump(mode="json", exclude={"about", "versions"})]
                programs.append([place, text_hash(json.dumps(held, sort_keys=True))[:16]])
        for place in places["reranker"]:
            if digest := reranker_identity(place).get("reranker files"):
                rerankers.append([place, digest])
        return {
            **{name: values[name] for name in names},
            **({"weights": config.weights} if SCORE in self.measures else {}),
            **({"programs": programs} if programs else {}),
            **({"rerankers": rerankers} if rerankers else {}),
            **{name.replace(" ", "_"): value for name, value in measured.items()},
            "metrics": judged,
            "questions": len(base.questions),
        }

    def _compiled(self, optimizer: str) -> Path:
        """The folder of the program that an optimizer compiled, once for all workers on this machine."""
        config, section = self.config, self.config.compile
        assert section is not None, "it was checked"
        folder = self.out / "compiled" / optimizer.replace(":", "-")
        folder.parent.mkdir(parents=True, exist_ok=True)
        done = folder / "done"
        with FileLock(f"{folder}.lock"):
            if not done.exists():
                data = configs.DataConfig(**{n: getattr(config.dataset, n) for n in configs.DataConfig.model_fields})
                settings = CompileConfig(
                    program=config.program,
                    modules=section.modules,
                    optimizer=OptimizerConfig(name=optimizer, options=section.optimizers[optimizer]),
                    budget=section.budget,
                    dataset=data,
                    test_limit=1,  # the best is tested once it is known
                    metrics=section.metrics,
                    lm=config.lm,
                    scorer=config.scorer if any(takes_scorer(m.name, m.options) for m in section.against) else None,
                    index=config.index,
                    threads=config.threads,
                    calls_in_flight=config.calls_in_flight,
                    seed=config.sampler.seed,
                    replies=self._replies,
                    tracking=config.tracking.disabled(),
                )
                run_compile(settings, folder, resume=True)
                write_text(done, "")
        return folder / "program"

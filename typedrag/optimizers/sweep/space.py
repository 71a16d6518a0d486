"""The points of a sweep: the values of each knob, and the program that a point stands for."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from typedrag.core.errors import InputError, did_you_mean
from typedrag.core.parameters import Parameter, Value, declared_parameters
from typedrag.core.question_types import QuestionType
from typedrag.experiments.config import LMConfig, MetricConfig, ProgramConfig
from typedrag.metrics.sub_question_coverage import WEIGHTS
from typedrag.optimizers.sweep.config import KnobConfig, SweepConfig
from typedrag.programs import Options, Program
from typedrag.programs.options import PER_TYPE, SUB_QUERY_TYPES
from typedrag.retrieval import check_retriever
from typedrag.retrieval.opening import brings_index

Point = Mapping[str, Value]
"""A value for each knob of the sweep."""

OPTIMIZER = "optimizer"
RATING = ("rating.core", "rating.background", "rating.follow_up")
"""The knobs of the weights by which metrics rate coverage."""
RATED = ("coverage", "preference")
"""The metrics that these knobs turn."""
_OF_PROGRAM = ("program", "reranker", "retriever", "bm25")
_WEIGHT, _RETRIEVER = "hybrid.weight", "retriever"
_CLASHES = {
    (_RETRIEVER, _WEIGHT): "Name what searches in one: retriever: [bm25, hybrid:0.3, hybrid:0.7]",
    ("program", OPTIMIZER): "Compile each program first, and name the folders: program: [FOLDER, FOLDER]",
}
"""Pairs of knobs where one would overrule the other, so that a trial would not match its point."""


def all_knobs(program: type[Program] | None = None) -> dict[str, Parameter]:
    """All knobs, or those that a program reads, by their names in a sweep file."""
    options = declared_parameters(Options)
    types = {name: SUB_QUERY_TYPES if name == "max_sub_queries" else QuestionType.non_factoid() for name in PER_TYPE}
    of_types = {f"by_type.{t}.{n}": options[n] for n in PER_TYPE if n in options for t in types[n]}
    retrieval = {name: knob for name, knob in declared_parameters(ProgramConfig).items() if name != "program"}
    retrieval[_WEIGHT] = Parameter(0.0, 1.0, step=0.1)  # part of the retriever's spec
    read = Options.model_fields if program is None else program.reads
    return {
        **{name: knob for name, knob in (options | of_types).items() if name.partition(".")[0] in read},
        "program": Parameter(),
        **(retrieval if not program or program.retrieves else {}),
        **declared_parameters(LMConfig, "lm."),
        **dict.fromkeys(RATING, Parameter(-1.0, 1.0, step=0.25)),
        OPTIMIZER: Parameter(),
    }


def sweep_schema() -> dict[str, Any]:
    """The JSON schema of sweep files, with each setting's description and every knob with its range."""
    schema = SweepConfig.model_json_schema()
    knobs = schema["properties"]["knobs"]
    form = knobs.pop("additionalProperties")
    knobs["additionalProperties"] = False
    knobs["properties"] = {
        name: {"description": f"By default {knob}.", "anyOf": [form, {"type": "array"}, {"type": "null"}]}
        for name, knob in all_knobs().items()
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A sweep of typedrag"}


@dataclass(frozen=True)
class Space:
    """The points that a sweep can choose."""

    distributions: Mapping[str, BaseDistribution]

    @property
    def size(self) -> float:
        size: float = 1
        for d in self.distributions.values():
            if isinstance(d, CategoricalDistribution):
                size *= len(d.choices)
                continue
            assert isinstance(d, IntDistribution | FloatDistribution)
            if d.low < d.high:
                size *= math.inf if d.step is None else int((d.high - d.low) / d.step + 1e-9) + 1
        return size

    def suggest(self, trial: Trial) -> dict[str, Value]:
        point: dict[str, Any] = {}
        for name, d in self.distributions.items():
            match d:
                case CategoricalDistribution():
                    point[name] = trial.suggest_categorical(name, d.choices)
                case IntDistribution():
                    point[name] = trial.suggest_int(name, d.low, d.high, step=d.step, log=d.log)
                case FloatDistribution():
                    point[name] = trial.suggest_float(name, d.low, d.high, step=d.step, log=d.log)
        return point

    def holds(self, point: Point) -> bool:
        if point.keys() != self.distributions.keys():
            return False
        for name, value in point.items():
            d = self.distributions[name]
            if isinstance(d, CategoricalDistribution):
                is_held = value in d.choices
            else:
                assert isinstance(d, IntDistribution | FloatDistribution)
                is_held = isinstance(value, int | float) and d.low <= value <= d.high
                if is_held and isinstance(value, int | float) and d.step:
                    steps = (value - d.low) / d.step
                    is_held = abs(steps - round(steps)) < 1e-9
            if not is_held:
                return False
        return True


def build_space(knobs: Mapping[str, KnobConfig]) -> Space:
    """The space of a sweep file's knobs; a knob without values or a range gets its declared range."""
    known = all_knobs()
    unknown = [name for name in knobs if name not in known]
    if unknown:
        raise InputError(
            f"no knob is called '{unknown[0]}'", f"{did_you_mean(unknown[0], known)}See: typedrag sweep --knobs"
        )
    for clash, hint in _CLASHES.items():
        if knobs.keys() >= set(clash):
            raise InputError(f"knobs '{clash[0]}' and '{clash[1]}' say the same thing twice", hint)
    return Space({name: _distribution(name, knob, known[name]) for name, knob in knobs.items()})


def params_key(point: Point) -> str:
    """The key of a point, short enough for the name of a folder."""
    rounded = {name: round(value, 10) if isinstance(value, float) else value for name, value in point.items()}
    return hashlib.sha256(json.dumps(rounded, sort_keys=True).encode()).hexdigest()[:16]


def apply_params(base: ProgramConfig, point: Point) -> ProgramConfig:
    """The program with its knobs turned to a point."""
    values: dict[str, Any] = base.model_dump()
    for name, value in point.items():
        first, _, _ = name.partition(".")
        if first in ("lm", "rating") or name == OPTIMIZER:
            continue
        if name == _WEIGHT:
            if brings_index(base.retriever or ""):
                raise InputError(f"{_WEIGHT} cannot be turned: an index server searches", "Leave the knob out")
            values[_RETRIEVER] = f"hybrid:{value:g}" if isinstance(value, int | float) else f"hybrid:{value}"
            continue
        *groups, last = name.split(".")
        held = values if first in _OF_PROGRAM else values["options"]
        for group in groups:
            held = held.setdefault(group, {})
        held[last] = value
    return ProgramConfig.model_validate(values)


def apply_lm_params(base: LMConfig, point: Point) -> LMConfig:
    turned = {name.removeprefix("lm."): value for name, value in point.items() if name.startswith("lm.")}
    return LMConfig.model_validate({**base.model_dump(), **turned})


def apply_rating(base: Sequence[MetricConfig], point: Point) -> tuple[MetricConfig, ...]:
    """The metrics with the weights of their rating turned to a point."""
    turned = [point.get(name) for name in RATING]
    if turned == [None] * len(RATING):
        return tuple(base)
    metrics = []
    for metric in base:
        if metric.name in RATED:
            own = metric.options.get("weights", tuple(WEIGHTS.values()))
            weights = [was if weight is None else weight for was, weight in zip(own, turned, strict=True)]
            metric = metric.model_copy(update={"options": {**metric.options, "weights": weights}})
        metrics.append(metric)
    return tuple(metrics)


def current_value(
    name: str, options: Options, program: ProgramConfig, lm: LMConfig, metrics: Sequence[MetricConfig] = ()
) -> Any:
    """The value of a knob that is not turned, a rating's weight by the first metric that rates; None if unknown."""
    first, _, rest = name.partition(".")
    if name == OPTIMIZER:
        return "none"
    if name == _WEIGHT:
        return check_retriever(program.retriever or "")
    if first == "lm":
        return {"temperature": 0.0, **lm.settings}.get(rest)
    if name in RATING:
        rated = next(metric for metric in metrics if metric.name in RATED)
        return rated.options.get("weights", tuple(WEIGHTS.values()))[RATING.index(name)]
    if first == "by_type":
        _, question_type, option = name.split(".")
        return getattr(options.for_type(QuestionType(question_type)), option)
    holder: Any = program if first in _OF_PROGRAM else options
    for part in name.split("."):
        holder = getattr(holder, part)
    return holder


def _distribution(name: str, knob: KnobConfig, declared: Parameter) -> BaseDistribution:
    if knob.values:
        return CategoricalDistribution(knob.values)
    low, high = (knob.low, knob.high) if knob.low is not None else (declared.low, declared.high)
    if low is None or high is None:
        if not declared.choices:
            raise InputError(f"knob '{name}' has no values of its own", f"Name some: {name}: [VALUE, VALUE]")
        return CategoricalDistribution(declared.choices)
    step = knob.step or (declared.step if knob.low is None and not knob.log else None)
    log = knob.log or (declared.log and not step)
    whole = all(float(number).is_integer() for number in (low, high, step or 1))
    if isinstance(declared.low, int) and not whole:
        raise InputError(f"knob '{name}' has whole numbers alone", "Give it such a low, high and step")
    if log and step:
        raise InputError(f"knob '{name}' has steps and is logarithmic", "Leave out step, or log")
    if log and low <= 0:
        raise InputError(f"knob '{name}' is logarithmic and begins at {low:g}", "Begin above 0, or leave out log")
    if whole and (isinstance(declared.low, int) or declared.low is None):
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(float(low), float(high), log=log, step=step)

"""What all metrics have in common, and how they are found by name.

A metric has DSPy's five arguments and returns a score from 0 to 1 with feedback in words, so that
one metric serves `dspy.Evaluate`, every teleprompter, GEPA's reflection, Optuna and MLflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, dataclass_transform

import dspy

from typedrag.errors import InputError
from typedrag.lms.asking import unless_all_is_refused
from typedrag.lms.lm import use_lm
from typedrag.metrics.feedback import PredictorCall
from typedrag.metrics.judges.judgments import Judgments
from typedrag.registry import Registry, check_options


@dataclass(frozen=True)
class Scored:
    """What a metric says about one answer.

    Attributes:
        score: From 0 to 1; higher is better.
        feedback: Why, in words that a reflecting teleprompter can use.
        measures: The numbers that reports show for this answer, by name. They are what intervals
            and paired tests are computed from.
        details: All else, as JSON values: ranks, labels, what `summarize` needs.
    """

    score: float
    feedback: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Metric:
    """Scores answers. Stateless but for the judgments it stores; safe to call from many threads.

    A call raises `StepFailed` where its judge's reply cannot be read, even when asked again: that is
    a missing value, never the worst score. It raises `NotMeasurable` where the example lacks what
    is measured by.

    Its options are fields, as of a dataclass.

    Args:
        scorer: The LM behind the judge; None for metrics that need none.
        judgments: Where judgments are stored and found again; by default in memory.

    Raises:
        InputError: If the metric needs a scorer and has none.
    """

    name: ClassVar[str]
    """As specs, results and MLflow call it."""
    judged: ClassVar[bool] = False
    """Whether it asks a scorer; see `takes_scorer`."""
    measures: ClassVar[tuple[str, ...]] = ()
    """The names of all measures that an answer may have; empty if they are not known beforehand."""
    needs: ClassVar[Callable[[dspy.Example], object] | None] = None
    """What is measured by, of an example; it raises `NotMeasurable` if the example lacks it."""

    scorer: dspy.LM | None = None
    judgments: Judgments = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.check_scorer(**vars(self))
        self.judgments = Judgments() if self.judgments is None else self.judgments

    @classmethod
    def takes_scorer(cls, options: Mapping[str, Any]) -> bool:
        """Whether it asks a scorer with these options, if there is one."""
        return cls.judged

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        """Refuse a metric that measures nothing with these options without a scorer, the LM or what says which it is.

        Raises:
            InputError: If it has none.
        """
        if scorer is None and cls.takes_scorer(options):
            raise InputError(f"metric '{cls.name}' needs a scorer", "Name one: --scorer SPEC")

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Score a program's prediction for an example: what a metric's own file writes."""
        raise NotImplementedError

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """Refuse an example that no prediction can be measured by, by this measure where not all can be had alike.

        Raises:
            NotMeasurable: If the example lacks what is measured by.
        """
        if needs := type(self).needs:
            needs(example)

    def feedback_for(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """What one predictor of the program can do about a score, in words; empty if nothing.

        Where a metric does not know better, those that write answers hear what all hear.
        """
        return scored.feedback if call.role.writes else ""

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The measures of many answers: their means, as comparisons, reports and sweeps take them, and `over_all`.

        Example:
            >>> Metric().summarize([Scored(0.0, measures={"f1": 0.0}), Scored(1.0, measures={"f1": 0.5})])
            {'f1': 0.25}
        """
        names = dict.fromkeys(name for s in scored for name in s.measures)
        values = {name: [s.measures[name] for s in scored if name in s.measures] for name in names}
        means = {name: sum(found) / len(found) for name, found in values.items()}
        return {**means, **(self.over_all(scored) if scored else {})}

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """What the metric defines over many answers alone, one or more of them.

        None has the name of a measure: that means one thing wherever it stands.
        """
        return {}

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Score a prediction; see `Scored` for the fields of what is returned.

        Raises:
            StepFailed: If the judge's reply cannot be read.
            NotMeasurable: If the example lacks what is measured by.
            CallFailed: If the scorer fails at this answer, or refuses all that it is asked.
            LMUnavailable: If the scorer cannot be used.
        """
        # a judge's calls belong neither to the program's LM nor to the trace that it is compiled from
        scorer = use_lm(self.scorer) if self.scorer else nullcontext()
        with dspy.context(trace=None), scorer, unless_all_is_refused():
            scored = self.score(gold, pred)
        return dspy.Prediction(
            score=scored.score,
            feedback=scored.feedback,
            measures=dict(scored.measures),
            details=dict(scored.details),
        )


M = TypeVar("M", bound=type[Metric])

_METRICS: Registry[Metric] = Registry("metric")
metric_names = _METRICS.names
metric_class = _METRICS.find


@dataclass_transform(eq_default=False)
def metric(cls: M) -> M:
    """Class decorator: make a metric's options its fields, and it known by its name."""
    dataclass(eq=False, repr=False)(cls)
    return _METRICS.add(cls)


def takes_scorer(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the metric of this name asks a scorer with these options, if there is one.

    Raises:
        InputError: If no metric has that name.
    """
    return metric_class(name).takes_scorer(options)


def build_metric(
    name: str, scorer: dspy.LM | None = None, judgments: Judgments | None = None, **options: Any
) -> Metric:
    """The metric of this name with its own options; one that asks no scorer with these gets none.

    Raises:
        InputError: If no metric has that name, it needs a scorer and has none, or it does not know
            an option.
    """
    cls = metric_class(name)
    check_options(f"metric '{name}'", cls, options, besides=("scorer", "judgments"))
    try:
        return cls(scorer if cls.takes_scorer(options) else None, judgments, **options)  # type: ignore[arg-type]
    except TypeError as error:
        raise InputError(f"metric '{name}': {error}", "Give its options values of their types") from None

"""The base of all metrics, their registry by name, and feedback for the predictors of a program.

A metric has DSPy's five arguments and returns a score from 0 to 1 with feedback in words, so that one metric serves
`dspy.Evaluate`, every optimizer, GEPA's reflection, Optuna and MLflow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import isnan
from typing import Any, ClassVar, TypeVar, dataclass_transform

import dspy

from typedrag.core.errors import InputError
from typedrag.core.registry import Registry, check_options
from typedrag.lms.asking import detect_refusals
from typedrag.lms.lm import use_lm
from typedrag.signatures.roles import Role
from typedrag.text.sentences import sentences
from typedrag.text.words import beginning, content_words

MOST_QUOTED = 3
NO_SCORER_HINT = "Name one: --scorer SPEC, or scorer: {spec: SPEC} in the configuration"
"""The number of sentences or sub-questions that a feedback quotes."""
_TOUCHED = 0.5
"""The share of a sentence's content words that a text must have to touch it."""


@dataclass(frozen=True)
class PredictorCall:
    """A call of the predictor that feedback is for: the question it was asked, which may be a sub-query, the texts it
    wrote from (passages, or answers to parts of the question), the text it wrote, if any, and all its outputs by
    field."""

    role: Role
    question: str = ""
    sources: tuple[str, ...] = ()
    written: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)


def untouched(texts: Iterable[str], by: Iterable[str], question: str, most: int = MOST_QUOTED) -> list[str]:
    """The sentences of some texts, the most important first, that no other text touches, without repetitions. A text
    touches a sentence if it has half of its content words, leaving out the question's, which all texts have."""
    topic = content_words(question)
    known = [content_words(text) for text in by]
    results: list[str] = []
    for sentence in (s for text in texts for s in sentences(text)):
        words = content_words(sentence) - topic
        if len(words) < 2 or any(len(words & other) >= _TOUCHED * len(words) for other in known):
            continue
        known.append(words)
        results.append(sentence)
        if len(results) == most:
            break
    return results


def touched(sentence: str, by: Iterable[str], question: str) -> bool:
    """True if one of the texts touches a sentence or a sub-question; see `untouched`."""
    words = content_words(sentence) - content_words(question)
    return bool(words) and any(len(words & content_words(text)) >= _TOUCHED * len(words) for text in by)


def quoted(text: str, most: int = 40) -> str:
    """The first words of a text, in quotes."""
    return f"«{beginning(text, most)}»"


def listed(texts: Sequence[str], most: int | None = MOST_QUOTED, words: int = 25) -> str:
    """The first texts, quoted, and the number of the others; all of them if `most` is None."""
    more = f" and {len(texts) - most} more" if most is not None and len(texts) > most else ""
    return " ".join(quoted(text, words) for text in texts[:most]) + more


@dataclass(frozen=True)
class Scored:
    """The score of one answer, from 0 to 1, higher being better, with the reasons in words that a reflecting
    optimizer can use.

    `measures` are the numbers that reports show for this answer, by name; if there are none, they show the score.
    Intervals and paired tests are computed from them. `details` are JSON values: ranks, labels, whatever `summarize`
    needs.
    """

    score: float
    feedback: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Metric:
    """Scores answers. Stateless, and safe to call from many threads.

    A call raises `StepFailed` if its judge's reply cannot be read even after retries: that is a missing
    value, never the worst score. It raises `NotMeasurable` if the example lacks what the metric needs.

    Its options are dataclass fields.

    Args:
        scorer: The LM behind the judge; None for metrics that need none.

    Raises:
        InputError: If the metric needs a scorer and has none.
    """

    name: ClassVar[str]
    """The metric's name in specs, results and MLflow."""
    judged: ClassVar[bool] = False
    """Whether it asks a scorer; see `takes_scorer`."""
    measures: ClassVar[tuple[str, ...]] = ()
    """The names of all measures that an answer may have; empty if not known in advance."""
    needs: ClassVar[Callable[[dspy.Example], object] | None] = None
    """Gets from an example what the metric needs; raises `NotMeasurable` if the example lacks it."""

    scorer: dspy.LM | None = None

    def __post_init__(self) -> None:
        self.check_scorer(**vars(self))

    @classmethod
    def takes_scorer(cls, options: Mapping[str, Any]) -> bool:
        """True if it asks a scorer with these options, if there is one."""
        return cls.judged

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        """Raise `InputError` if the metric needs a scorer with these options, the LM or its spec, and has none."""
        if scorer is None and cls.takes_scorer(options):
            raise InputError(f"metric '{cls.name}' needs a scorer", NO_SCORER_HINT)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Score a program's prediction for an example; each metric overrides this."""
        raise NotImplementedError

    def require(self, example: dspy.Example, measure: str = "") -> None:
        """Raise `NotMeasurable` if an example lacks what the metric needs, or what one of its measures needs."""
        if needs := type(self).needs:
            needs(example)

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        """The feedback for one predictor of the program; empty if there is none. By default, predictors that write
        answers get the general feedback."""
        return scored.feedback if call.role.writes else ""

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The measures of many answers: their means, which comparisons, reports and sweeps use, and `over_all`."""
        names = dict.fromkeys(name for s in scored for name in s.measures)
        values = {name: [s.measures[name] for s in scored if name in s.measures] for name in names}
        means = {name: sum(numbers) / len(numbers) for name, numbers in values.items()}
        return {**means, **(self.over_all(scored) if scored else {})}

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The numbers that the metric defines only over all answers, at least one; none has the name of a measure."""
        return {}

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Score a prediction; the result has the fields of `Scored`."""
        # a judge's calls are not the program's: they use another LM and stay out of its trace
        scorer = use_lm(self.scorer) if self.scorer else nullcontext()
        with dspy.context(trace=None), scorer, detect_refusals():
            scored = self.score(gold, pred)
        measures = dict(scored.measures) or {"score": scored.score}
        if unknown := [name for name, value in {"score": scored.score, **measures}.items() if isnan(value)]:
            raise InputError(
                f"metric '{self.name}' gives question '{gold.get('id')}' no number as its {unknown[0]}, but NaN",
                "Let it raise NotMeasurable where there is nothing to measure",
            )
        return dspy.Prediction(
            score=scored.score, feedback=scored.feedback, measures=measures, details=dict(scored.details)
        )


M = TypeVar("M", bound=type[Metric])

_METRICS: Registry[Metric] = Registry("metric")
metric_names = _METRICS.names
metric_class = _METRICS.find


@dataclass_transform(eq_default=False)
def metric(cls: M) -> M:
    """Class decorator: make a metric a dataclass, and register it by its name."""
    dataclass(eq=False, repr=False)(cls)
    return _METRICS.add(cls)


def takes_scorer(name: str, options: Mapping[str, Any]) -> bool:
    """True if the metric of this name asks a scorer with these options, if there is one."""
    return metric_class(name).takes_scorer(options)


def build_metric(name: str, scorer: dspy.LM | None = None, **options: Any) -> Metric:
    """The metric of this name with its own options; it gets the scorer only if it asks one with these."""
    cls = metric_class(name)
    check_options(f"metric '{name}'", cls, options, besides=("scorer",))
    try:
        return cls(scorer if cls.takes_scorer(options) else None, **options)
    except TypeError as error:
        raise InputError(f"metric '{name}': {error}", "Give its options values of their types") from None

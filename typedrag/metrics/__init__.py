"""Metrics, found by name: pure arithmetic, and the judges on top of it."""

from typedrag.core.records import Estimate
from typedrag.metrics.defects import Defects
from typedrag.metrics.estimate import bootstrap_estimate, mean_estimate
from typedrag.metrics.judges.grades import Correctness, Equivalence, Faithfulness, Relevance
from typedrag.metrics.judges.linkage import Linkage
from typedrag.metrics.judges.preference import Preference
from typedrag.metrics.judges.truthfulness import Truthfulness
from typedrag.metrics.labels import LabelMatch, QueryMatch, QuestionTypeMatch
from typedrag.metrics.metric import Metric, Scored, build_metric, metric, metric_class, metric_names, takes_scorer
from typedrag.metrics.nuggets import Nuggets
from typedrag.metrics.objective import DEFAULT_OBJECTIVE, Objective, objective_risk, parse_objective
from typedrag.metrics.overlap import Accuracy, ExactMatch, TokenF1
from typedrag.metrics.ranking import Retrieval, Rewrite, Steps
from typedrag.metrics.similarity import BERTScore, ComRouge, Rouge, Similarity
from typedrag.metrics.sub_question_coverage import SubQuestionCoverage

__all__ = [
    "DEFAULT_OBJECTIVE", "Accuracy", "BERTScore", "ComRouge", "Correctness", "Defects", "Equivalence", "Estimate",
    "ExactMatch", "Faithfulness", "LabelMatch", "Linkage", "Metric", "Nuggets", "Objective", "Preference", "QueryMatch",
    "QuestionTypeMatch", "Relevance", "Retrieval", "Rewrite", "Rouge", "Scored", "Similarity", "Steps",
    "SubQuestionCoverage", "TokenF1", "Truthfulness", "bootstrap_estimate", "build_metric", "mean_estimate", "metric",
    "metric_class", "metric_names", "objective_risk", "parse_objective", "takes_scorer",
]  # fmt: skip

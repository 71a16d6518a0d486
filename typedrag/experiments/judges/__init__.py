"""How good are the judges? Their agreement with labels that people gave, dataset by dataset."""

from typedrag.experiments.judges.check import CHECKED, check_judges
from typedrag.experiments.judges.page import judges_page
from typedrag.experiments.judges.records import Agreement, Check, CheckSettings, Cost, JudgesCheck, Scorer

__all__ = [
    "CHECKED",
    "Agreement",
    "Check",
    "CheckSettings",
    "Cost",
    "JudgesCheck",
    "Scorer",
    "check_judges",
    "judges_page",
]

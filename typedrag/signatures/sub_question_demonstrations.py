"""Written examples for the judges of sub-question coverage.

Each shows many sub-questions, so that one counts as a few shots, as in the paper (section 3.1, appendix A).
"""

from __future__ import annotations

import dspy

from typedrag.question_types import SubQuestionType
from typedrag.signatures.fields import ManyQuestions, Verdict
from typedrag.signatures.keyed import keyed
from typedrag.signatures.sub_questions import (
    DecomposeIntoSubQuestions,
    FindAnsweringSentences,
    FindAnswers,
    TypeSubQuestions,
)

_BEES = "Why do people keep bees in cities?"
_ABOUT_BEES = {
    "What do city beekeepers gain from their hives?": SubQuestionType.CORE,
    "How do bees find enough flowers in a city?": SubQuestionType.CORE,
    "How much honey does a hive in a city give?": SubQuestionType.CORE,
    "What is a beehive made of?": SubQuestionType.BACKGROUND,
    "How do city bees help gardens and parks nearby?": SubQuestionType.CORE,
    "Do people keep bees in cities to protect nature?": SubQuestionType.CORE,
    "How does beekeeping bring neighbours together?": SubQuestionType.CORE,
    "When did people begin to keep bees?": SubQuestionType.BACKGROUND,
    "Why do hotels and companies put hives on their roofs?": SubQuestionType.CORE,
    "How can a beginner start to keep bees?": SubQuestionType.FOLLOW_UP,
    "Are there fewer pesticides in cities than on farmland?": SubQuestionType.CORE,
    "How do schools use beehives in lessons?": SubQuestionType.CORE,
    "What does a beekeeper do in the course of a year?": SubQuestionType.BACKGROUND,
    "What harm do hives in cities do to wild bees?": SubQuestionType.FOLLOW_UP,
    "How does keeping bees help people to relax?": SubQuestionType.CORE,
    "Which laws on beekeeping do cities have?": SubQuestionType.FOLLOW_UP,
    "Can city beekeepers earn money with honey?": SubQuestionType.CORE,
    "What should I do when a bee stings me?": SubQuestionType.FOLLOW_UP,
    "Which plants could I grow on a balcony for bees?": SubQuestionType.FOLLOW_UP,
    "How did news of dying bees make people start with hives?": SubQuestionType.CORE,
}

_ROMAN_ROADS = (
    "Roman roads were built for the army first. A legion could march about thirty kilometres a day on them, in any "
    "weather, because the paving of stone and gravel let water run off to both sides. Merchants used the same roads, "
    "and towns grew where two of them met. Many are still in use: modern routes in Italy and Britain follow their "
    "straight lines."
)
_ON_ROMAN_ROADS = {
    "How far could soldiers march on a Roman road in a day?": Verdict(
        fragment="A legion could march about thirty kilometres a day on them", answered=True
    ),
    "Who paid for the building of Roman roads?": Verdict(
        fragment="Roman roads were built for the army first", answered=False
    ),
    "Why did Roman roads stay dry in the rain?": Verdict(
        fragment="the paving of stone and gravel let water run off to both sides", answered=True
    ),
    "Which goods did merchants carry on Roman roads?": Verdict(
        fragment="Merchants used the same roads", answered=False
    ),
    "How do modern roads differ from Roman roads?": Verdict(
        fragment="modern routes in Italy and Britain follow their straight lines", answered=False
    ),
    "How did Roman roads change where people lived?": Verdict(
        fragment="towns grew where two of them met", answered=True
    ),
}

SUB_QUESTION_DEMONSTRATIONS: dict[type[dspy.Signature], dspy.Example] = {
    DecomposeIntoSubQuestions: dspy.Example(question=_BEES, sub_questions=ManyQuestions(list(_ABOUT_BEES))),
    TypeSubQuestions: dspy.Example(question=_BEES, sub_questions=keyed(_ABOUT_BEES), types=keyed(_ABOUT_BEES.values())),
    FindAnswers: dspy.Example(
        text=_ROMAN_ROADS,
        sub_questions=keyed(_ON_ROMAN_ROADS),
        verdicts=keyed(_ON_ROMAN_ROADS.values()),
    ),
    FindAnsweringSentences: dspy.Example(
        sub_questions=keyed(_ON_ROMAN_ROADS),
        sentences={str(number): f"{text}." for number, text in enumerate(_ROMAN_ROADS.rstrip(".").split(". "), 1)},
        verdicts=keyed((2, 0, 2, 0, 0, 3)),
    ),
}

"""Written examples of the decompositions, one for each, as in the paper's prompts.

A small LM that is only told what a sub-query is explains instead of asking. Teleprompters replace
these demonstrations by their own.
"""

from __future__ import annotations

import dspy

from typedrag.signatures.decomposition import (
    DecomposeInstruction,
    DecomposeReason,
    ExtractKeywords,
    FrameComparison,
    FrameDebate,
)
from typedrag.signatures.fields import (
    AnswerPart,
    AnswerParts,
    Items,
    Keywords,
    Side,
    Sides,
    SubAspects,
    SubQueries,
    Variants,
)
from typedrag.signatures.hanrag_demonstrations import HANRAG_DEMONSTRATIONS
from typedrag.signatures.plain import FrameSides
from typedrag.signatures.preqrag_demonstrations import PREQRAG_DEMONSTRATIONS
from typedrag.signatures.reference_answer_demonstrations import REFERENCE_ANSWER_DEMONSTRATIONS
from typedrag.signatures.richrag import DivideAnswer, ExploreSubAspects, VaryQuery
from typedrag.signatures.sub_question_demonstrations import SUB_QUESTION_DEMONSTRATIONS

_DEBATE = dspy.Example(
    question="Is it right to keep wild animals in zoos?",
    is_debate=True,
    topic="keeping wild animals in zoos",
    sides=Sides(
        [
            Side(perspective="supporters", sub_query="How do zoos help to protect wild animals from extinction?"),
            Side(perspective="opponents", sub_query="How do wild animals suffer when they are kept in zoos?"),
            Side(perspective="reformers", sub_query="Which changes would make zoos right for wild animals?"),
        ]
    ),
)

DEMONSTRATIONS: dict[type[dspy.Signature], dspy.Example] = {
    FrameComparison: dspy.Example(
        question="Do oil paints or watercolours suit a beginner better?",
        is_comparison=True,
        items_compared=Items(["oil paints for beginners", "watercolours for beginners"]),
        purpose="which is better",
    ),
    ExtractKeywords: dspy.Example(
        question="Which Greek islands would you recommend for a quiet week in spring?",
        keywords=Keywords(["Greek islands", "quiet", "spring", "recommended"]),
    ),
    DecomposeReason: dspy.Example(
        question="Why did so many knights stop wearing full armour?",
        sub_queries=SubQueries(
            [
                "Could firearms pierce the armour of knights?",
                "How much did full armour cost a knight?",
                "How did full armour limit how knights moved?",
                "How did changes in warfare make knights less useful?",
            ]
        ),
    ),
    DecomposeInstruction: dspy.Example(
        question="How do I put up a wooden fence?",
        sub_queries=SubQueries(
            [
                "How do I plan and measure a wooden fence?",
                "How deep do I set the posts of a wooden fence?",
                "How do I fix rails and boards to fence posts?",
                "How do I protect a wooden fence from the weather?",
            ]
        ),
    ),
    FrameDebate: _DEBATE,
    FrameSides: _DEBATE.without("is_debate"),
    ExploreSubAspects: dspy.Example(
        question="What should I know about keeping bees?",
        sub_aspects=SubAspects(
            ["equipment and costs", "place for the hives", "work through the year", "diseases and losses", "laws"]
        ),
    ),
    DivideAnswer: dspy.Example(
        question="What should I know about keeping bees?",
        sentences={
            "1": "A hive, a veil and a smoker cost a few hundred euros.",
            "2": "Used hives are cheaper, but may carry spores.",
            "3": "In spring a colony is given room, so that it does not swarm.",
            "4": "Honey is taken in July, and sugar given in its place.",
            "5": "Mites kill most of the colonies that die in winter.",
        },
        parts=AnswerParts(
            [
                AnswerPart(sub_aspect="equipment and costs", begins=1),
                AnswerPart(sub_aspect="work through the year", begins=3),
                AnswerPart(sub_aspect="diseases and losses", begins=5),
            ]
        ),
    ),
    VaryQuery: dspy.Example(
        question="How did the printing press change Europe?",
        queries=Variants(
            [
                "What effects did the printing press have on European society?",
                "How did printed books spread new ideas across Europe?",
                "How did the invention of printing change religion and science in Europe?",
            ]
        ),
    ),
    **SUB_QUESTION_DEMONSTRATIONS,
    **PREQRAG_DEMONSTRATIONS,
    **REFERENCE_ANSWER_DEMONSTRATIONS,
    **HANRAG_DEMONSTRATIONS,
}

STORIES: dict[type[dspy.Signature], dspy.Example] = {
    FrameComparison: dspy.Example(
        question="My old hob has given up. The shop has a gas one in the sale. The induction one looks nicer but costs "
        "more, and my sister says they are not the same to clean. What is different about them?",
        is_comparison=True,
        items_compared=Items(["gas hob", "induction hob"]),
        purpose="how they differ",
    ),
    ExtractKeywords: dspy.Example(
        question="Gran turns eighty in May and says she wants nothing. She used to paint, but her hands shake. Ideas?",
        keywords=Keywords(["gift ideas", "eightieth birthday", "grandmother", "shaking hands"]),
    ),
    DecomposeReason: dspy.Example(
        question="The plants in our office were fine all summer. Since the heating came on they get brown leaves, and "
        "the one by the lift has died. Any idea what is doing it?",
        sub_queries=SubQueries(
            [
                "Can dry air from heating turn the leaves of indoor plants brown?",
                "How does less daylight in winter harm indoor plants?",
                "Does too much water in winter turn the leaves of indoor plants brown?",
            ]
        ),
    ),
    DecomposeInstruction: dspy.Example(
        question="Back from Norway, and my phone says SIM not valid. I've restarted it twice and I need it for work "
        "tomorrow, what should I do",
        sub_queries=SubQueries(
            [
                "How do I check whether a SIM card is damaged or blocked?",
                "How do I reset the network settings of a phone that says SIM not valid?",
                "How do I get a replacement for a SIM card that is not valid?",
            ]
        ),
    ),
}
"""A second demonstration, for the stories in which people put their questions."""


def predictor(signature: type[dspy.Signature], *, stories: bool = True) -> dspy.Predict:
    """A `dspy.Predict` of a signature, with the demonstrations written for it, if any.

    Args:
        signature: The signature.
        stories: Whether a demonstration of `STORIES` is among them; the paper has one for each prompt.
    """
    predict = dspy.Predict(signature)
    kinds = (DEMONSTRATIONS, STORIES) if stories else (DEMONSTRATIONS,)
    predict.demos = [written[signature] for written in kinds if signature in written]
    return predict

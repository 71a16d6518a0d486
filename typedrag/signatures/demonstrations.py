"""Written examples of modules' inputs and outputs, as in the papers' prompts.

A small LM that is only told what a sub-query is explains instead of asking. Optimizers replace
these demonstrations by their own. Those of sub-questions show many at once, so that one counts as a few shots, as
in the paper (section 3.1, appendix A).
"""

import dspy

from typedrag.core.question_types import SubQuestionType
from typedrag.signatures import generation, hanrag, preqrag, richrag, sub_question_coverage, typed_rag
from typedrag.signatures.fields import add_keys

_DEBATE = dspy.Example(
    question="Is it right to keep wild animals in zoos?",
    is_debate=True,
    topic="keeping wild animals in zoos",
    sides=[
        {"perspective": "supporters", "sub_query": "How do zoos help to protect wild animals from extinction?"},
        {"perspective": "opponents", "sub_query": "How do wild animals suffer when they are kept in zoos?"},
        {"perspective": "reformers", "sub_query": "Which changes would make zoos right for wild animals?"},
    ],
)

_PREMISE = "My granny left me her old violin and I'd like to no how you care for the varnnish of such instruments?"

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
    "How far could soldiers march on a Roman road in a day?": {
        "fragment": "A legion could march about thirty kilometres a day on them",
        "answered": True,
    },
    "Who paid for the building of Roman roads?": {
        "fragment": "Roman roads were built for the army first",
        "answered": False,
    },
    "Why did Roman roads stay dry in the rain?": {
        "fragment": "the paving of stone and gravel let water run off to both sides",
        "answered": True,
    },
    "Which goods did merchants carry on Roman roads?": {"fragment": "Merchants used the same roads", "answered": False},
    "How do modern roads differ from Roman roads?": {
        "fragment": "modern routes in Italy and Britain follow their straight lines",
        "answered": False,
    },
    "How did Roman roads change where people lived?": {
        "fragment": "towns grew where two of them met",
        "answered": True,
    },
}

_WORSE = (
    dspy.Example(
        question="Why are manhole covers round?",
        right_answer="A round cover cannot fall through its own hole, fits whichever way it is turned, and rolls.",
        answers={
            "acceptable": "Mostly because a round one cannot drop into the hole, I believe.",
            "poor": "Because the streets were full of carriages, and wheels are round too.",
            "senseless": "My uncle keeps his coins in a jar, which is round, and he never counts them.",
        },
    ),
    dspy.Example(
        question="How do I get chewing gum off a wool coat?",
        right_answer="Freeze the coat for an hour, break the hard gum off, and lift the rest with a little vinegar.",
        answers={
            "acceptable": "Cold helps: once the gum is hard, you can pick most of it off.",
            "poor": "Gum sticks to wool because both have long fibres, so better buy another coat.",
            "senseless": "The tram was late again, and in the end we walked home along the river.",
        },
    ),
    dspy.Example(
        question="Is it worth mending an old bicycle?",
        right_answer="Often it is: if the frame is sound, brakes, tyres and a chain cost less than a bicycle as good.",
        answers={
            "acceptable": "Usually yes, as long as the frame is all right.",
            "poor": "Old bicycles were built in many countries, and some of them are in museums.",
            "senseless": "Two eggs and a pinch of salt, then stir until it is smooth.",
        },
    ),
)

DEMONSTRATIONS: dict[type[dspy.Signature], dspy.Example | tuple[dspy.Example, ...]] = {
    typed_rag.FrameComparison: dspy.Example(
        question="Do oil paints or watercolours suit a beginner better?",
        is_comparison=True,
        items_compared=["oil paints for beginners", "watercolours for beginners"],
        purpose="which is better",
    ),
    typed_rag.ExtractKeywords: dspy.Example(
        question="Which Greek islands would you recommend for a quiet week in spring?",
        keywords=["Greek islands", "quiet", "spring", "recommended"],
    ),
    typed_rag.ComparisonPlainly: dspy.Example(
        question="Do oil paints or watercolours suit a beginner better?",
        is_comparison=True,
        purpose="superiority",
        items_compared=["oil paints for beginners", "watercolours for beginners"],
    ),
    typed_rag.KeywordsPlainly: dspy.Example(
        question="Which Greek islands would you recommend for a quiet week in spring?",
        keywords=["Greek islands", "quiet", "spring"],
    ),
    typed_rag.DecomposeReason: dspy.Example(
        question="Why did so many knights stop wearing full armour?",
        sub_queries=[
            "Could firearms pierce the armour of knights?",
            "How much did full armour cost a knight?",
            "How did full armour limit how knights moved?",
            "How did changes in warfare make knights less useful?",
        ],
    ),
    typed_rag.DecomposeInstruction: dspy.Example(
        question="How do I put up a wooden fence?",
        sub_queries=[
            "How do I plan and measure a wooden fence?",
            "How deep do I set the posts of a wooden fence?",
            "How do I fix rails and boards to fence posts?",
            "How do I protect a wooden fence from the weather?",
        ],
    ),
    typed_rag.FrameDebate: _DEBATE,
    typed_rag.FrameSides: _DEBATE.without("is_debate"),
    richrag.ExploreSubAspects: dspy.Example(
        question="What should I know about keeping bees?",
        sub_aspects=[
            "equipment and costs",
            "place for the hives",
            "work through the year",
            "diseases and losses",
            "laws",
        ],
    ),
    richrag.DivideAnswer: dspy.Example(
        question="What should I know about keeping bees?",
        sentences={
            "1": "A hive, a veil and a smoker cost a few hundred euros.",
            "2": "Used hives are cheaper, but may carry spores.",
            "3": "In spring a colony is given room, so that it does not swarm.",
            "4": "Honey is taken in July, and sugar given in its place.",
            "5": "Mites kill most of the colonies that die in winter.",
        },
        parts=[
            {"sub_aspect": "equipment and costs", "begins": 1},
            {"sub_aspect": "work through the year", "begins": 3},
            {"sub_aspect": "diseases and losses", "begins": 5},
        ],
    ),
    richrag.VaryQuery: dspy.Example(
        question="How did the printing press change Europe?",
        queries=[
            "What effects did the printing press have on European society?",
            "How did printed books spread new ideas across Europe?",
            "How did the invention of printing change religion and science in Europe?",
        ],
    ),
    # one by one, as in the paper: two sub-questions of each type, and one that is answered and one that is not
    sub_question_coverage.TypePlainly: tuple(
        dspy.Example(question=_BEES, sub_questions={"q1": text}, types={"q1": type_})
        for each in SubQuestionType
        for text, type_ in [pair for pair in _ABOUT_BEES.items() if pair[1] is each][:2]
    ),
    sub_question_coverage.FindAnswerPlainly: tuple(
        dspy.Example(
            text=_ROMAN_ROADS,
            sub_questions={"q1": text},
            verdicts={"q1": verdict if verdict["answered"] else {"answered": False, "fragment": ""}},
        )
        for text, verdict in list(_ON_ROMAN_ROADS.items())[:4]
    ),
    sub_question_coverage.DecomposeIntoSubQuestions: dspy.Example(question=_BEES, sub_questions=list(_ABOUT_BEES)),
    sub_question_coverage.TypeSubQuestions: dspy.Example(
        question=_BEES, sub_questions=add_keys(_ABOUT_BEES), types=add_keys(_ABOUT_BEES.values())
    ),
    sub_question_coverage.FindAnswers: dspy.Example(
        text=_ROMAN_ROADS,
        sub_questions=add_keys(_ON_ROMAN_ROADS),
        verdicts=add_keys(_ON_ROMAN_ROADS.values()),
    ),
    sub_question_coverage.FindAnsweringSentences: dspy.Example(
        sub_questions=add_keys(_ON_ROMAN_ROADS),
        sentences={str(number): f"{text}." for number, text in enumerate(_ROMAN_ROADS.rstrip(".").split(". "), 1)},
        verdicts=add_keys((2, 0, 2, 0, 0, 3)),
    ),
    preqrag.RewriteForSparse: dspy.Example(question=_PREMISE, sparse_query="care for varnish of old violins"),
    preqrag.RewriteForDense: dspy.Example(
        question=_PREMISE, dense_query="How do you care for the varnish of an old violin?"
    ),
    preqrag.SplitQuestion: dspy.Example(  # a small LM tells two aspects apart unaided; a comparison it repeats twice
        question="What is the difference between a violin and a viola?",
        two_sub_questions=["What is a violin?", "What is a viola?"],
    ),
    generation.WriteWorseAnswers: _WORSE,
    hanrag.DecomposeCompound: dspy.Example(
        question="When did the potter Lucie Rie move to London, and what is she known for?",
        sub_queries=["When did the potter Lucie Rie move to London?", "What is the potter Lucie Rie known for?"],
    ),
    generation.ListNuggets: dspy.Example(
        question="Why did the Romans build such good roads?",
        passage=_ROMAN_ROADS,
        nuggets=[
            {"text": "The roads were built for the army first.", "importance": "vital"},
            {
                "text": "Soldiers could march about thirty kilometres a day on them in any weather.",
                "importance": "vital",
            },
            {"text": "Paving of stone and gravel let water run off.", "importance": "okay"},
            {"text": "Merchants used the roads too.", "importance": "okay"},
        ],
    ),
    hanrag.RefineQuestion: dspy.Example(
        question="Which river flows through the town where the inventor of the ballpoint pen was born?",
        solved=[{"question": "Who invented the ballpoint pen?", "answer": "László Bíró"}],
        query="In which town was László Bíró born?",
    ),
}

STORIES: dict[type[dspy.Signature], dspy.Example] = {
    typed_rag.FrameComparison: dspy.Example(
        question="My old hob has given up. The shop has a gas one in the sale. The induction one looks nicer but costs "
        "more, and my sister says they are not the same to clean. What is different about them?",
        is_comparison=True,
        items_compared=["gas hob", "induction hob"],
        purpose="how they differ",
    ),
    typed_rag.ExtractKeywords: dspy.Example(
        question="Gran turns eighty in May and says she wants nothing. She used to paint, but her hands shake. Ideas?",
        keywords=["gift ideas", "eightieth birthday", "grandmother", "shaking hands"],
    ),
    typed_rag.DecomposeReason: dspy.Example(
        question="The plants in our office were fine all summer. Since the heating came on they get brown leaves, and "
        "the one by the lift has died. Any idea what is doing it?",
        sub_queries=[
            "Can dry air from heating turn the leaves of indoor plants brown?",
            "How does less daylight in winter harm indoor plants?",
            "Does too much water in winter turn the leaves of indoor plants brown?",
        ],
    ),
    typed_rag.DecomposeInstruction: dspy.Example(
        question="Back from Norway, and my phone says SIM not valid. I've restarted it twice and I need it for work "
        "tomorrow, what should I do",
        sub_queries=[
            "How do I check whether a SIM card is damaged or blocked?",
            "How do I reset the network settings of a phone that says SIM not valid?",
            "How do I get a replacement for a SIM card that is not valid?",
        ],
    ),
}
"""A second demonstration, for the stories in which people put their questions."""


def predictor(signature: type[dspy.Signature]) -> dspy.Predict:
    """A `dspy.Predict` of a signature, with the demonstrations written for it, if any."""
    predict, written = dspy.Predict(signature), DEMONSTRATIONS.get(signature, ())
    first = [written] if isinstance(written, dspy.Example) else written
    predict.demos = [*first, *([STORIES[signature]] if signature in STORIES else [])]
    return predict

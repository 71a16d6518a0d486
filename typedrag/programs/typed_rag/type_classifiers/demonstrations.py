"""Questions of each type, written for the project: what `lm-neighbours` shows an LM by default."""

from __future__ import annotations

import dspy

from typedrag.question_types import QuestionType

_QUESTIONS: dict[QuestionType, tuple[str, ...]] = {
    QuestionType.EVIDENCE_BASED: (
        "What is a carbon tax?",
        "How does a refrigerator keep food cold?",
        "What causes tides in the ocean?",
        "What are the symptoms of iron deficiency?",
        "What does a notary do?",
        "How do bees find their way back to the hive?",
        "What effect does salt have on the boiling of water?",
        "What is meant by the tragedy of the commons?",
        "Explain how a transistor works",
        "What happened during the Irish famine?",
        "How are pearls formed?",
        "What is the role of the kidneys?",
    ),
    QuestionType.COMPARISON: (
        "What is the difference between a lease and a rental agreement?",
        "How do alligators differ from crocodiles?",
        "Is a gas stove or an induction stove better for cooking?",
        "cats vs dogs as pets for a small flat",
        "What do judaism and islam have in common?",
        "Which is healthier, butter or margarine?",
        "How does a diesel engine compare with a petrol engine?",
        "Are rabbits and hares the same animal?",
        "Is it cheaper to rent or to buy a house?",
        "What distinguishes a virus from a bacterium?",
    ),
    QuestionType.EXPERIENCE: (
        "What are the best books to learn chess from?",
        "Can anyone recommend a quiet campsite in Wales?",
        "What is it like to work as a night nurse?",
        "How did you get over your fear of flying?",
        "Has anybody tried living without a car?",
        "What should I wear to a winter wedding?",
        "What is your favourite way to cook aubergines?",
        "Should I tell my sister that I dislike her fiance?",
        "Any ideas for a cheap birthday present for my dad?",
        "Which laptop would you buy for a student?",
        "What do I do if my neighbour keeps borrowing my tools?",
    ),
    QuestionType.REASON: (
        "Why do cats purr?",
        "Why did the Roman Republic fall?",
        "Why is my bread always burnt underneath?",
        "How come the moon looks larger near the horizon?",
        "What made Venice so rich in the middle ages?",
        "Why are school buses yellow?",
        "What is the reason for leap years?",
        "Why would a company buy back its own shares?",
        "Why does my laptop get so hot?",
    ),
    QuestionType.INSTRUCTION: (
        "How do I remove rust from a bicycle chain?",
        "How to poach an egg without vinegar?",
        "What are the steps to register a trademark?",
        "How can I delete my browsing history?",
        "How do you tie a bow tie?",
        "What is the best way to clean a wool carpet?",
        "How can you calculate the area of a triangle from its sides?",
        "How should I store potatoes over winter?",
        "How does one apply for a passport?",
        "Where can I change the language of my phone?",
    ),
    QuestionType.DEBATE: (
        "Should museums return what was taken in colonial times?",
        "Is it wrong to eat meat?",
        "Do violent films make people violent?",
        "Does God exist?",
        "Is homework good for children?",
        "Are athletes paid too much?",
        "Can a machine ever be conscious?",
        "Is nuclear power worth its risks?",
        "Was the moon landing worth what it cost?",
        "Will robots take away our jobs?",
        "Who was the greatest composer of all time?",
    ),
    QuestionType.FACTOID: (
        "When was the first bicycle built?",
        "Who wrote the opera Carmen?",
        "How many bones are in a human hand?",
        "What is the capital of Mongolia?",
        "In which year did Iceland become a republic?",
        "How tall is the Eiffel Tower?",
        "What colour is a giraffe's tongue?",
        "Which river flows through Baghdad?",
        "Who won the first women's world cup in football?",
        "What is the name of the largest desert in Asia?",
        "How much does a litre of mercury weigh?",
        "Is Madagascar an island?",
    ),
    QuestionType.NOT_A_QUESTION: (
        "Good morning everyone",
        "thank you so much for your help",
        "I have been feeling tired since Monday.",
        "weather Oslo tomorrow",
        "Tell me a joke about lawyers",
        "Please close this account",
        "My brother's car broke down on the way to the airport.",
        "cheap flights lisbon",
        "lol what",
        "Translate this sentence into French",
        "The second season was much better.",
    ),
}

DEMONSTRATIONS = tuple(
    dspy.Example(question=question, question_type=question_type)
    for question_type, questions in _QUESTIONS.items()
    for question in questions
)

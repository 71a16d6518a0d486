"""Written examples for HANRAG's decomposer and refiner, one for each."""

from __future__ import annotations

import dspy

from typedrag.signatures.fields import NextQuestion, Parts, QuestionAnswer
from typedrag.signatures.hanrag import DecomposeCompound, RefineQuestion

HANRAG_DEMONSTRATIONS: dict[type[dspy.Signature], dspy.Example] = {
    DecomposeCompound: dspy.Example(
        question="When did the potter Lucie Rie move to London, and what is she known for?",
        sub_queries=Parts(["When did the potter Lucie Rie move to London?", "What is the potter Lucie Rie known for?"]),
    ),
    RefineQuestion: dspy.Example(
        question="Which river flows through the town where the inventor of the ballpoint pen was born?",
        solved=[QuestionAnswer(question="Who invented the ballpoint pen?", answer="László Bíró")],
        query=NextQuestion("In which town was László Bíró born?"),
    ),
}

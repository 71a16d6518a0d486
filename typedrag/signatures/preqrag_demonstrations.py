"""Written examples of PreQRAG's rewrites, one each."""

from __future__ import annotations

import dspy

from typedrag.signatures.fields import SearchQuery, TwoQuestions
from typedrag.signatures.preqrag import RewriteForDense, RewriteForSparse, SplitQuestion

_PREMISE = "My granny left me her old violin and I'd like to no how you care for the varnnish of such instruments?"

PREQRAG_DEMONSTRATIONS: dict[type[dspy.Signature], dspy.Example] = {
    RewriteForSparse: dspy.Example(question=_PREMISE, sparse_query=SearchQuery("care for varnish of old violins")),
    RewriteForDense: dspy.Example(
        question=_PREMISE, dense_query=SearchQuery("How do you care for the varnish of an old violin?")
    ),
    SplitQuestion: dspy.Example(
        question="How did the printing press change schools, and what did it do to the price of paper?",
        two_sub_questions=TwoQuestions(
            [
                "How did the printing press change schools?",
                "How did the printing press change the price of paper?",
            ]
        ),
    ),
}

"""Written examples of PreQRAG's rewrites, one for each."""

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
    SplitQuestion: dspy.Example(  # a small LM tells two aspects apart unaided; a comparison it repeats twice
        question="What is the difference between a violin and a viola?",
        two_sub_questions=TwoQuestions(["What is a violin?", "What is a viola?"]),
    ),
}

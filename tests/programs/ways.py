"""Options of programs for tests: Typed-RAG's ways to answer, of which those as published name a model of the hub."""

from typedrag.programs import Options, SubQueryOptions

_EACH = SubQueryOptions(combine="aggregate", search="sub-query")

EACH_ANSWERED = Options(
    reason=_EACH,
    instruction=_EACH,
    debate=_EACH,
    comparison_search="items",
    experience_search="keywords",
    rerank_everywhere=False,
    sift=False,
    score_cutoff=0,
    ungrounded=True,
).as_defaults()
"""Each sub-query is searched for and answered, and the answers are combined, all by our own prompts."""

PUBLISHED = Options.as_published().model_copy(update={"type_classifier": "linear"}).as_defaults()
"""As published, but for the classifier, which tests do not fetch."""

"""The decomposition of a question of each type (Typed-RAG, appendix A.4)."""

import dspy

from typedrag.signatures.fields import Items, Keywords, Purpose, Sides, SubQueries
from typedrag.signatures.roles import Role, plays


@plays(Role.SEARCHER, module="comparison-frame")
class FrameComparison(dspy.Signature):
    """Find out what a question compares. First decide whether it compares two or more things at
    all. If so, name each compared thing as a phrase that can be looked up by itself: take over from
    the question whatever tells which thing is meant, from other sentences too. Then name what the
    asker wants to learn. The question may be a few keywords, or the end of a story whose other
    details do not matter."""

    question: str = dspy.InputField()
    is_comparison: bool = dspy.OutputField(desc="false if the question compares nothing")
    items_compared: Items = dspy.OutputField(desc="one short phrase for each compared thing")
    purpose: Purpose = dspy.OutputField()


@plays(Role.SEARCHER, module="keyword-extractor")
class ExtractKeywords(dspy.Signature):
    """A question asks for advice or for what people have lived through. Name the topic it asks
    about, and the words that say what kind of experience is wanted, as keywords for a search
    engine. Keep to words of the question or their closest synonyms, and leave out what the asker
    tells of the way to the question."""

    question: str = dspy.InputField()
    keywords: Keywords = dspy.OutputField(desc="the topic first, then what is wanted of it")


@plays(Role.SEARCHER, module="reason-sub-queries")
class DecomposeReason(dspy.Signature):
    """A question asks why something is so. Write 2 to 5 short questions for a search engine, each
    after one possible cause or one side of the explanation, that together explain it. Write none
    where a search for the question itself finds all. Each names its subject in full, since the
    search engine does not see the original question, which may be a few keywords or the end of a
    story."""

    question: str = dspy.InputField()
    sub_queries: SubQueries = dspy.OutputField(desc="at most 15 words each, ending in a question mark")


@plays(Role.SEARCHER, module="instruction-sub-queries")
class DecomposeInstruction(dspy.Signature):
    """A question asks how to do something. Write 2 to 5 short questions for a search engine, each
    after one stage of the task, in the order in which the stages are done; if something does not
    work, the stages are what to check, what to mend and whom to turn to. Write none where the task
    has one stage only. Each names the task or the trouble in full and nothing else of the asker's
    story, since the search engine does not see the original question."""

    question: str = dspy.InputField()
    sub_queries: SubQueries = dspy.OutputField(desc="at most 15 words each, ending in a question mark")


@plays(Role.SEARCHER, module="debate-frame")
class FrameDebate(dspy.Signature):
    """Find out what people disagree on where they are asked a question. First decide whether it is
    a matter of opinion at all, on which there are opposing sides. If so, name the topic they
    disagree on and 2 to 5 sides that differ from each other, opposing ones among them. For each
    side write the question that its supporters would type into a search engine to find arguments
    for their view. Each question is one short sentence that names the topic in full."""

    question: str = dspy.InputField()
    is_debate: bool = dspy.OutputField(
        desc="false if the answer is a fact, an explanation or advice that hardly anyone would dispute"
    )
    topic: str = dspy.OutputField(desc="what the disagreement is about, in a few words")
    sides: Sides = dspy.OutputField()

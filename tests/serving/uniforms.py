"""What an LM might say on a question of the sample corpus, so that a page has something to show."""

from typing import Any

from tests.lm_server import Call

QUESTION = "Should schools require pupils to wear a uniform?"
FOR = "Which benefits do school uniforms bring pupils?"
AGAINST = "What speaks against school uniforms that pupils must wear?"
COST = "How much do school uniforms cost families?"

_SIDES = {
    FOR: (
        "Supporters",
        "Pupils in the same clothes are judged less by brands and family income, and teachers report less teasing. "
        "Mornings are quicker when nobody argues about what to wear.",
    ),
    AGAINST: (
        "Opponents",
        "Clothing is part of how young people find out who they are. Rules on hair, skirts or head coverings have hit "
        "girls and religious minorities hardest.",
    ),
    COST: (
        "Parents on a budget",
        "A full uniform with a blazer and logo may cost 200 to 400 euros for each child, and poor families have gone "
        "into debt for it.",
    ),
}
ANSWER = (
    "Supporters say that pupils who wear the same clothes are judged less by brands and family income, so that a child "
    "from a poor home need not compete with costly trainers. A uniform also gives a sense of belonging, and mornings "
    "are quicker when nobody argues about what to wear.\n\n"
    "Opponents reply that clothing is part of how young people find out who they are, and that rules on hair, skirts "
    "or head coverings hit girls and religious minorities hardest. Cost is argued both ways: a full uniform may cost "
    "200 to 400 euros for each child, yet parents may save on fashion for the rest of the year.\n\n"
    "Schools can meet both sides halfway. Plain supermarket clothes with a sew-on badge, second-hand stalls and grants "
    "keep complaints from parents few."
)
PLAIN = (
    "Many heads think that a uniform sets a tone of work, and teachers need not police short skirts or slogans. "
    "Research is mixed: large American studies found little or no effect on grades."
)
SUB_QUESTIONS = {
    "Do school uniforms reduce teasing about clothes?": "core",
    "How much does a school uniform cost a family?": "core",
    "Do uniforms limit how pupils express themselves?": "core",
    "Do school uniforms change the grades of pupils?": "core",
    "How can schools make uniforms cheaper for poor families?": "core",
    "When did schools first introduce uniforms?": "background",
    "Which countries require school uniforms by law?": "background",
    "Which companies make school uniforms?": "follow-up",
    "How do schools enforce rules on clothes?": "follow-up",
    "What do pupils think of their own uniform?": "follow-up",
}


def reply(call: Call) -> dict[str, Any] | None:
    """The fields of a reply; None leaves it to the server."""
    if "sides" in call.wanted:
        sides = [{"perspective": side, "sub_query": query} for query, (side, _) in _SIDES.items()]
        return {"is_debate": True, "topic": "school uniforms", "sides": sides}
    if "sub_questions" in call.wanted:
        return {"sub_questions": list(SUB_QUESTIONS)}
    if "types" in call.wanted:
        return {"types": {f"q{n}": kind for n, kind in enumerate(SUB_QUESTIONS.values(), 1)}}
    if "citations" in call.wanted:
        answer = _SIDES[call.question][1] if call.question in _SIDES else PLAIN
        return {"citations": [1, 2, 3, 4], "answered": True, "answer": answer}
    return {"answer": ANSWER} if call.wanted == ("answer",) else None

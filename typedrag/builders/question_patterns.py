"""The wording of each non-factoid type's questions (Bolotova et al. 2022, question patterns of the taxonomy).

Typed-RAG, section 4.3, filters by "the question patterns outlined in the NFQ taxonomy" and does not
list them. Here they are a table, with the words that people use for those of the
taxonomy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from typedrag.core.question_types import QuestionType

_BE, _DO = "is|are|was|were", "do|does|did"
_VERB = f"{_BE}|{_DO}|can|could|would|will|should|has|have|had"

PATTERNS: Mapping[QuestionType, tuple[str, ...]] = {
    QuestionType.EVIDENCE_BASED: (
        f"what {_BE}",
        "what's|how's",
        f"how {_VERB}",
        f"what {_DO} … mean|do|describe|refer",
        "what … meaning|definition|function|role|effect|effects|property|properties|feature|features|happens|happened",
        "definition|define|explain|describe",
    ),
    QuestionType.COMPARISON: (
        f"how {_BE} … to|from|than",
        f"how {_DO} … against|compare|differ",
        "what … over|between|common",
        "difference|differences|different|versus|vs|compare|compared",
        "pros and cons",
        "which|who … better|worse",
    ),
    QuestionType.EXPERIENCE: (
        "would|will|can|could you",
        "recommend|recommended|recommendations|suggest|suggestions|advice|tips",
        "how do you like|feel",
        "what … you|people think|like|prefer",
        "should i|we|you",
        "what … best|good|favorite|favourite",
    ),
    QuestionType.REASON: (
        "why",
        "how come",
        "what … reason|reasons|cause|causes|caused|purpose|makes|made|led",
    ),
    QuestionType.INSTRUCTION: (
        "how to",
        f"how {_VERB} i|you|we|one|people|someone",
        "what|which … process|procedure|method|steps|way|ways",
        "what to do",
        "what can|should i|you|we do",
    ),
    QuestionType.DEBATE: (
        f"{_DO} … exist",
        "can … be|become|succeed|successful",
        "should|ought",
        f"{_DO} you|people think|believe|agree",
        f"{_BE}|{_DO}|can … really|actually|truly|worth|right|wrong|good|bad|ethical|necessary|possible",
        "what … opinion|opinions|view|views",
    ),
}
"""The patterns of each type: words in a row, `|` between alternatives, `…` for any words or none.
They may be anywhere in a question."""


def types_by_pattern(question: str) -> tuple[QuestionType, ...]:
    """The types with a pattern that a question has; possibly several, or none.

    Example:
        >>> [t.value for t in types_by_pattern("How does judo fare against boxing?")]
        ['evidence-based', 'comparison']
        >>> types_by_pattern("Who wrote Carmen?")
        ()
    """
    words = " ".join(_WORD.findall(question.lower().replace("’", "'")))
    return tuple(t for t, patterns in PATTERNS.items() if any(_compiled(p).search(words) for p in patterns))


_WORD = re.compile(r"[\w']+")
_ANY_WORDS = r"(?:\S+ )*?"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern, for words with single spaces between them."""
    parts = [_ANY_WORDS if part == "…" else f"(?:{part}) " for part in pattern.split()]
    return re.compile(rf"(?<!\S){''.join(parts).removesuffix(' ')}(?!\S)")

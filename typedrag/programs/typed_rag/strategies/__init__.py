"""The strategies of question types: one a file, each as the paper's figure draws it."""

from typedrag.core.question_types import QuestionType
from typedrag.programs.typed_rag.strategies.comparison import Comparison
from typedrag.programs.typed_rag.strategies.debate import Debate
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.programs.typed_rag.strategies.experience import Experience
from typedrag.programs.typed_rag.strategies.instruction import Instruction
from typedrag.programs.typed_rag.strategies.reason import Reason
from typedrag.programs.typed_rag.strategies.remark import Remark
from typedrag.programs.typed_rag.strategies.strategy import Strategy

STRATEGIES: dict[QuestionType, type[Strategy]] = {
    QuestionType.EVIDENCE_BASED: EvidenceBased,
    QuestionType.COMPARISON: Comparison,
    QuestionType.EXPERIENCE: Experience,
    QuestionType.REASON: Reason,
    QuestionType.INSTRUCTION: Instruction,
    QuestionType.DEBATE: Debate,
    QuestionType.NOT_A_QUESTION: Remark,
}

__all__ = ["STRATEGIES", "Strategy"]

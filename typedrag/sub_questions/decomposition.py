"""Sub-questions that an answer should cover, with their types (sub-question coverage, section 3.1)."""

from collections.abc import Mapping, Sequence

import dspy

from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Step, Usage
from typedrag.lms.asking import allow_tokens, ask, with_settings
from typedrag.lms.trace import Stopwatch, add_step, run_concurrently
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import add_keys, require_keys, values
from typedrag.signatures.sub_question_coverage import (
    DecomposeIntoSubQuestions,
    DecomposePlainly,
    TypePlainly,
    TypeSubQuestions,
)
from typedrag.text.words import folded

_TOKENS_A_QUESTION = 50
SUB_QUESTIONS_PER_CALL = 20


class SubQuestionDecomposer(dspy.Module):
    """Writes the questions, about 20, that a full answer to a question would look into; `plain` asks by the paper's
    prompt, and uses all that is written."""

    def __init__(self, retries: int = 2, *, plain: bool = False) -> None:
        super().__init__()
        self._retries = retries
        self._plain = plain
        self.decompose = predictor(DecomposePlainly if plain else DecomposeIntoSubQuestions)

    def forward(self, question: str) -> dspy.Prediction:
        """The `sub_questions`, without repetitions unless they are `plain`."""
        decompose = with_settings(self.decompose, allow_tokens(20 * _TOKENS_A_QUESTION))
        reply = ask("decompose", decompose, retries=self._retries, question=question)
        texts, different = reply.prediction.sub_questions.root, dict[str, str]()
        for text in texts:
            different.setdefault(folded(text), text)
        texts = texts if self._plain else list(different.values())
        add_step(Step("decompose", question, "; ".join(texts), seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(sub_questions=texts)


class SubQuestionTyper(dspy.Module):
    """Types sub-questions as core, background or follow-up, `sub_questions_per_call` in one call; with 1 each is typed
    alone, as in the paper. `few_shot` puts examples of typed sub-questions into the prompt; `plain` asks by the paper's
    prompt.
    """

    def __init__(
        self,
        retries: int = 2,
        sub_questions_per_call: int = SUB_QUESTIONS_PER_CALL,
        *,
        few_shot: bool = True,
        plain: bool = False,
        threads: int = 8,
    ) -> None:
        super().__init__()
        self._retries = retries
        self._threads = threads
        self.sub_questions_per_call = sub_questions_per_call
        signature = TypePlainly if plain else TypeSubQuestions
        self.type = predictor(signature) if few_shot else dspy.Predict(signature)

    def forward(self, question: str, sub_questions: Sequence[str] | Mapping[str, str]) -> dspy.Prediction:
        """The `types`, one for each sub-question, which may have keys, as in demonstrations."""
        watch, size = Stopwatch(), self.sub_questions_per_call
        if isinstance(sub_questions, Mapping):
            sub_questions = list(sub_questions.values())

        def type_batch(batch: Sequence[str]) -> tuple[list[SubQuestionType], Usage]:
            inputs = {"question": question, "sub_questions": add_keys(batch)}
            signature = require_keys(self.type.signature, inputs["sub_questions"])
            reply = ask("type", self.type, retries=self._retries, signature=signature, **inputs)
            return values(reply.prediction.types), reply.usage

        batches = [sub_questions[start : start + size] for start in range(0, len(sub_questions), size)]
        typed = run_concurrently(type_batch, batches, self._threads)
        types = [type_ for batch_types, _ in typed for type_ in batch_types]
        usage = sum((usage for _, usage in typed), Usage())
        core = f"{types.count(SubQuestionType.CORE)} of {len(types)} sub-questions are core"
        add_step(Step("type sub-questions", question, core, seconds=watch.seconds, usage=usage))
        return dspy.Prediction(types=types)

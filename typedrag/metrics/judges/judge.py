"""The base of the judges that choose: of the two answers, or of the ranks."""

from collections.abc import Mapping
from typing import Any

import dspy

from typedrag.lms.asking import ask, logprob_settings, with_settings


class Judge(dspy.Module):
    """Chooses, and tells the probabilities of all choices if the server gives `token_probabilities`.

    Args:
        retries: How often to ask again for a reply that cannot be parsed.
        token_probabilities: Whether to ask for them. Some models of OpenAI refuse to give them.
    """

    def __init__(self, retries: int = 2, token_probabilities: bool = True) -> None:
        super().__init__()
        self._retries = retries
        self.token_probabilities = token_probabilities

    def choose(
        self, step: str, predict: dspy.Module, settings: Mapping[str, Any] | None = None, **inputs: Any
    ) -> dspy.Prediction:
        settings = settings or (logprob_settings() if self.token_probabilities else {})
        return ask(step, with_settings(predict, settings), retries=self._retries, **inputs).prediction

"""The make that asks the LM and takes what it says for no more than it has turned out to be worth."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import dspy
import numpy as np
from pydantic import BaseModel, ConfigDict, FiniteFloat, PositiveInt, ValidationError

from typedrag.errors import InputError
from typedrag.files.text_files import write_text
from typedrag.lms.asking import Reply
from typedrag.programs.artifact.state import fingerprint, state_of
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.type_classifiers.classifying import classified, likeliest, types_said
from typedrag.programs.typed_rag.type_classifiers.lm import LMTypeClassifier
from typedrag.programs.typed_rag.type_classifiers.weights import softmax
from typedrag.question_types import QuestionType

logger = logging.getLogger(__name__)

LEAST = 1e-4
"""What a type counts for that is not among the likeliest of which the LM's server tells."""


class Calibration(BaseModel):
    """From what an LM holds of each type to how probable it is: Dirichlet calibration (Kull et al. 2019, equation 10).

    The logarithms of the LM's probabilities go through a linear layer and a softmax, so that a type
    which the LM never names can be told from how it hesitates between others.

    Example:
        >>> weights = {"reason": {"reason": 1.0}, "debate": {"debate": 1.0}}
        >>> calibration = Calibration(lm="a/model", questions=10, bias={"reason": 0, "debate": 1.0986}, weights=weights)
        >>> {t: round(p, 2) for t, p in calibration.of({QuestionType.REASON: 0.5, QuestionType.DEBATE: 0.5}).items()}
        {<QuestionType.REASON: 'reason'>: 0.25, <QuestionType.DEBATE: 'debate'>: 0.75}
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    lm: str
    """That it was fitted to, as DSPy calls it."""
    questions: PositiveInt
    """That it was fitted on."""
    dataset: str = ""
    """Whose they are, with its subset."""
    predictor: str = ""
    """The fingerprint of the predictor that was asked."""
    bias: Mapping[QuestionType, FiniteFloat]
    """Of each type that the questions had."""
    weights: Mapping[QuestionType, Mapping[QuestionType, FiniteFloat]]
    """Of each of these types, those of the logarithms of what the LM holds of all types; what is not named is 0."""

    def of(self, said: Mapping[QuestionType, float]) -> dict[QuestionType, float]:
        """How probable each type is.

        Args:
            said: The LM's probabilities, summing to 1.
        """
        logs = np.log(np.maximum([said.get(t, 0.0) for t in QuestionType], LEAST))
        weights = [[self.weights.get(t, {}).get(other, 0.0) for other in QuestionType] for t in self.bias]
        logits = np.array(weights) @ logs + np.array(list(self.bias.values()))
        return dict(zip(self.bias, softmax(logits).tolist(), strict=True))

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        write_text(file, self.model_dump_json(indent=1) + "\n")


def read_calibration(file: Path) -> Calibration:
    """What `Calibration.save` wrote.

    Raises:
        InputError: If it cannot be read, or is none.
    """
    mend = "Write one: typedrag calibrate"
    try:
        return Calibration.model_validate_json(file.expanduser().read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}", mend) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{file} is no calibration of a type classifier: {first['msg']}", mend) from None


class CalibratedTypeClassifier(LMTypeClassifier):
    """Names the type that is likeliest by what the LM holds of all types, calibrated.

    Where the LM's server tells no probabilities, the type that it names stands.

    Args:
        options: See `Options`.
        calibration: Fitted to the LM that is asked.
    """

    def __init__(self, options: Options, calibration: Calibration) -> None:
        super().__init__(options)
        self._calibration = calibration

    def named(self, question: str, reply: Reply) -> dspy.Prediction:
        """The likeliest type. What ends in a question mark is a question."""
        if dspy.settings.lm.model != self._calibration.lm:
            _warn_once(f"is calibrated for {self._calibration.lm}, not for {dspy.settings.lm.model}")
        elif fingerprint(state_of(self)) != self._calibration.predictor:
            _warn_once("was calibrated as it asks uncompiled")
        said = types_said(reply)
        if not said:
            return super().named(question, reply)
        best, probability = likeliest(question, self._calibration.of(said))
        return classified(question, best, probability, reply.seconds, reply.usage)


@cache
def _warn_once(what: str) -> None:
    logger.warning("the type classifier %s", what)

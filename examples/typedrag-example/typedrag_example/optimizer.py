"""An optimizer of one's own."""

from typing import ClassVar

import dspy

from typedrag.optimizers.compile.prompt_optimizers.base import Compilation, Optimizer


class Styles(Optimizer):
    """Tries each style of answering on the validation examples and keeps the best: `--optimizer styles`."""

    name: ClassVar[str] = "styles"
    about: ClassVar[str] = "adds the sentence to the instructions that scores best"

    styles: tuple[str, ...] = ("Be brief.", "Explain step by step.")
    """Sentences to try at the end of each predictor's instructions."""

    def planned_runs(self, train: int, validation: int) -> int:
        """The base and each style, on each validation example."""
        return validation * (1 + len(self.styles))

    def compile(self, run: Compilation) -> dspy.Module:
        """The program with the best style, or unchanged if none is better."""
        best, score = run.student, run.scoring.base_mean
        for style in self.styles:
            styled = run.student.deepcopy()
            for predictor in styled.predictors():
                words = f"{predictor.signature.instructions} {style}"
                predictor.signature = predictor.signature.with_instructions(words)
            candidate = run.evaluate(styled, style)
            if candidate.score > score:
                best, score = styled, candidate.score
        return best

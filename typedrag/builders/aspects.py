"""Sub-aspects and sub-answers of questions whose long answers are known (RichRAG, appendix A).

Here an LM names where each part begins, so that the parts are the answer, whole and in its order, whatever LM it is.
"""

from collections.abc import Sequence
from itertools import chain, pairwise

import dspy

from typedrag.builders.builder import Built, OpenLM, usable
from typedrag.builders.settings import AspectsSettings
from typedrag.core.errors import InputError
from typedrag.datasets.dataset import load_dataset
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.metrics.overlap import best_references
from typedrag.runs.work import Stages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import AnswerPart, AnswerParts
from typedrag.signatures.richrag import DivideAnswer
from typedrag.text.sentences import sentences


class Aspects(AspectsSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        questions = self.draw()
        shown = load_dataset("file", self.demonstrations).examples if self.demonstrations else ()
        with use_lm(open_lm(None)):
            return self.divide(questions, stages, shown)

    def divide(
        self, examples: Sequence[dspy.Example], stages: Stages, demonstrations: Sequence[dspy.Example] = ()
    ) -> Built:
        """Divide the best reference of each question into `aspects` and `sub_answers`."""
        answers = {str(e.id): sentences(best[0]) for e in examples if (best := best_references(e))}
        if examples and not answers:
            raise InputError("no question has a long answer", "Name a dataset with references, such as wikipassageqa")
        built, predict = Built(), predictor(DivideAnswer)
        if demonstrations:
            predict.demos = [_demonstration(example) for example in demonstrations]
        divisible = [e for e in examples if len(answers.get(str(e.id), ())) > 1]
        if short := len(examples) - len(divisible):
            built.left_out["the answer has a single sentence"] = short

        def ask_for_parts(example: dspy.Example) -> tuple[list[str], list[int]]:
            shown = {str(number): text for number, text in enumerate(answers[str(example.id)], 1)}
            reply = ask("divide", predict, retries=self.retries, question=example.question, sentences=shown)
            parts = reply.prediction.parts.root
            return [" ".join(p.sub_aspect.split()) for p in parts], [p.begins for p in parts]

        for example, (aspects, begins) in usable(divisible, stages.run("questions", ask_for_parts, divisible), built):
            answer = answers[str(example.id)]
            bounds = [*begins, len(answer) + 1]
            if begins[0] != 1 or any(later <= earlier for earlier, later in pairwise(bounds)):
                built.left_out["the parts do not follow the order of the answer"] += 1
                continue
            if len({aspect.casefold() for aspect in aspects}) < len(aspects):
                built.left_out["two sub-aspects are the same"] += 1
                continue
            passage_ids = list(example.get("passage_ids") or ())
            row = {
                "id": str(example.id),
                **({"subset": example.subset} if example.get("subset") else {}),
                "question": example.question,
                "references": [{"text": best_references(example)[0], "label": 1}],
                **({"passage_ids": passage_ids} if passage_ids else {}),
                "aspects": aspects,
                "sub_answers": [" ".join(answer[first - 1 : after - 1]) for first, after in pairwise(bounds)],
            }
            built.rows.append(row)
        return built


def _demonstration(example: dspy.Example) -> dspy.Example:
    divided = [sentences(answer) for answer in example.get("sub_answers") or ()]
    begins = [1 + sum(map(len, divided[:place])) for place in range(len(divided))]
    try:
        named = zip(example.get("aspects") or (), begins, strict=True)
        parts = AnswerParts([AnswerPart(sub_aspect=aspect, begins=begin) for aspect, begin in named])
    except ValueError:  # of pydantic, too
        raise InputError(
            f"'{example.question}' shows no division of an answer",
            "Give it 2 to 7 aspects of at most 60 characters, and a sub-answer for each",
        ) from None
    shown = {str(number): text for number, text in enumerate(chain.from_iterable(divided), 1)}
    return dspy.Example(question=example.question, sentences=shown, parts=parts)

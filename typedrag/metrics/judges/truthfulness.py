"""Truthfulness after the CRAG benchmark (Yang et al. 2024, section 3.2): right 1, does not say 0, wrong -1."""

from collections.abc import Sequence
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.records import Answered, Passage
from typedrag.metrics.judges.grades import Equivalence
from typedrag.metrics.judges.support import open_support
from typedrag.metrics.metric import MOST_QUOTED, NO_SCORER_HINT, Metric, PredictorCall, Scored, listed, metric
from typedrag.metrics.overlap import good_references, is_short, says
from typedrag.signatures.judging import SupportVerdict
from typedrag.signatures.roles import Role
from typedrag.text.sentences import sentences

_BETTER_NOT = "To say that the collection does not say would have been better."


@metric
class Truthfulness(Metric):
    """Tells whether an answer is right, wrong, or says that it does not know.

    - If a gold answer is short, an answer is right if it includes it, with all its entities (`says`), else wrong.
      An answer to a yes-or-no question with no sentence that begins with either is judged as for long gold answers.
    - If gold answers are long, the judge of `equivalence` decides: right, half right (CRAG's acceptable), or wrong.
      Without the judge, support decides, with the gold answers as sources.
    - Without gold answers, support decides. The sources are the passages that the answer cites, or all that it was
      written from if it cites none, and the references that people labelled good. `right` is the share of the
      answer's sentences that they support, `wrong` the share that they contradict.

    An answer says that it does not know if its `answered` is `nothing`, or if it is blank. Answers from the LM's own
    knowledge are right or wrong like any other.

    Measures: `right`, `wrong`, `not_answered`, and `truthfulness`, which is right - wrong. The score is
    (truthfulness + 1) / 2. The details say what decided (`by`), and for support the verdict on each sentence.

    Args:
        make: What decides if words do not. `auto`: the judge of equivalence if there is a scorer, and support by
            embeddings. `embedding` and `nli:NAME`: support, without an LM. `lm`: the judge, and support by the LM.

    Raises:
        InputError: If there is no such make, or the make needs a scorer and has none.
    """

    name: ClassVar[str] = "truthfulness"
    measures = ("truthfulness", "right", "wrong", "not_answered")
    judged: ClassVar[bool] = True

    make: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        asks = self.scorer and self.make in ("auto", "lm")
        self._support = open_support("embedding" if self.make == "auto" else self.make)
        self._equivalence = Equivalence(self.scorer) if asks else None

    @classmethod
    def check_scorer(cls, scorer: object | None, **options: Any) -> None:
        if options.get("make") == "lm" and scorer is None:
            raise InputError("truthfulness by make 'lm' needs a scorer", NO_SCORER_HINT)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        golds = [answer for answer in example.get("answers") or () if answer.strip()]
        short = [gold for gold in golds if is_short(gold)]
        answered = Answered(prediction.get("answered") or Answered.PASSAGES)
        if answered is Answered.NOTHING or not sentences(prediction.answer):
            right_answer = f" A right answer says {_join_golds(golds)}." if golds else ""
            feedback = f"It says that it does not know, which is better than being wrong.{right_answer}"
            return _scored(0, 0, "answered", feedback, 1)
        wrong_by_gold = f"Wrong: a right answer says {_join_golds(short)}. {_BETTER_NOT}"
        if short and (right := says(prediction.answer, short)) is not None:
            feedback = f"Right: it says {_join_golds(short)}." if right else wrong_by_gold
            return _scored(right, not right, "gold", feedback)
        if golds and self._equivalence:
            graded = self._equivalence.score(example, prediction)
            wrong = graded.score == 0
            return _scored(graded.score, wrong, "equivalence", f"{graded.feedback}{f' {_BETTER_NOT}' * wrong}")
        if short:  # neither yes nor no
            return _scored(0, 1, "gold", wrong_by_gold)
        sources = golds
        if not sources:
            passages: Sequence[Passage] = prediction.get("passages") or ()
            cited = [passage for passage in passages if passage.id in (prediction.get("citations") or ())]
            sources = [text for p in cited or passages if (text := p.titled.strip())]
            sources += [text for text in good_references(example) if text.strip()]
        if not sources:
            raise NotMeasurable("the question has no gold answer and no good reference, and the answer no passage")
        return self._score_support(example.question, prediction.answer, sources)

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        short = [gold for gold in example.get("answers") or () if gold.strip() and is_short(gold)]
        if not short or scored.measures["right"] == 1:
            return scored.feedback if call.role.writes else ""
        gold = _join_golds(short)
        if call.role is Role.SEARCHER:
            in_passages = any(says(passage.text, short) for passage in prediction.get("passages") or ())
            return "" if in_passages else f"A right answer says {gold}; no passage found says it."
        if not call.role.writes:
            return ""
        if call.role is Role.TELLER:
            return scored.feedback
        known = any(says(source, short) for source in call.sources)
        return f"{scored.feedback} Its sources {'say' if known else 'do not say'} what is right."

    def _score_support(self, question: str, answer: str, sources: Sequence[str]) -> Scored:
        texts = sentences(answer)
        verdicts = self._support.verdicts(question, texts, sources)
        of_kind = {kind: [s for s, v in zip(texts, verdicts, strict=True) if v is kind] for kind in SupportVerdict}
        right, wrong = (
            len(of_kind[kind]) / len(texts) for kind in (SupportVerdict.SUPPORTED, SupportVerdict.CONTRADICTED)
        )
        messages = [f"Of {len(texts)} sentences {len(of_kind[SupportVerdict.SUPPORTED])} are supported."]
        messages += [f"Contradicted: {listed(s)}." for s in (of_kind[SupportVerdict.CONTRADICTED],) if s]
        messages += [f"Not supported: {listed(s)}." for s in (of_kind[SupportVerdict.NOT_STATED],) if s]
        messages += [_BETTER_NOT] * (wrong > right)
        pairs = [[sentence, verdict.value] for sentence, verdict in zip(texts, verdicts, strict=True)]
        return _scored(right, wrong, "support", " ".join(messages), sentences=pairs)


def _join_golds(golds: Sequence[str]) -> str:
    return " or ".join(golds[:MOST_QUOTED])


def _scored(right: float, wrong: float, by: str, text: str, not_answered: float = 0.0, **details: object) -> Scored:
    measures = {"truthfulness": right - wrong, "right": right, "wrong": wrong, "not_answered": not_answered}
    return Scored(
        (right - wrong + 1) / 2, text, {name: float(value) for name, value in measures.items()}, {"by": by, **details}
    )

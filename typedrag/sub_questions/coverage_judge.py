"""Judges of whether a text answers sub-questions, and by which fragment (sub-question coverage, section 3.2).

An LM quotes the fragment, as in the paper, or names a sentence: a number costs a few tokens, a quotation fifty, and a
small LM that quotes runs on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import dspy

from typedrag.core.errors import InputError
from typedrag.core.records import Step, Usage
from typedrag.lms.asking import allow_tokens, ask, with_settings
from typedrag.lms.trace import Stopwatch, add_step, run_concurrently
from typedrag.retrieval.local_models import LogisticModel
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import add_keys, require_keys, values
from typedrag.signatures.sub_question_coverage import FindAnsweringSentences, FindAnswerPlainly, FindAnswers
from typedrag.sub_questions.evidence import find_evidence, locate_fragment
from typedrag.text.sentences import sentences

_TOKENS_A_VERDICT = 90
_TOKENS_A_NUMBER = 12
_ASKED_AGAIN = {"rollout_id": 100, "temperature": 0.7}
"""Settings of a second call: past DSPy's cache, which would replay the reply, and past the retries' rollouts."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """A judge's verdict on one sub-question and a text: the words that answer it, and where they begin, as a share of
    the text's words. `invalid` if the judge, also when asked again, quoted words that are not in the text. The
    probability that it is answered is None from a judge that says only yes or no."""

    answered: bool
    fragment: str = ""
    position: float | None = None
    invalid: bool = False
    probability: float | None = None


class AnyCoverageJudge(dspy.Module):
    """Judges for each sub-question whether a text answers it. A call returns the `verdicts`, a `Coverage` for each
    sub-question."""

    asks_lm: ClassVar[bool] = True


class CoverageJudge(AnyCoverageJudge):
    """Judges by which of a text's words each sub-question is answered, `sub_questions_per_call` in one call; with 1
    each is judged alone, as in the paper. About words that are not in the text, not even nearly (`locate_fragment`),
    the LM is asked once more."""

    signature: ClassVar[type[dspy.Signature]] = FindAnswers

    def __init__(self, retries: int = 2, sub_questions_per_call: int = 10, threads: int = 8) -> None:
        super().__init__()
        self._retries = retries
        self._threads = threads
        self.sub_questions_per_call = sub_questions_per_call
        self.find = predictor(self.signature)

    def forward(self, text: str, sub_questions: Sequence[str] | Mapping[str, str]) -> dspy.Prediction:
        """The `verdicts`, a `Coverage` for each sub-question, which may have keys, as in demonstrations."""
        watch = Stopwatch()
        if isinstance(sub_questions, Mapping):
            sub_questions = list(sub_questions.values())
        size = self.sub_questions_per_call
        parts = [sub_questions[start : start + size] for start in range(0, len(sub_questions), size)]

        def judge(part: Sequence[str]) -> tuple[list[Coverage], Usage]:
            verdicts, usage = self._ask(text, part, {})
            if again := [i for i, verdict in enumerate(verdicts) if verdict.invalid]:
                others, more = self._ask(text, [part[i] for i in again], _ASKED_AGAIN)
                usage += more
                for i, verdict in zip(again, others, strict=True):
                    verdicts[i] = verdict
            return verdicts, usage

        judged = run_concurrently(judge, parts, self._threads)
        verdicts = [verdict for coverages, _ in judged for verdict in coverages]
        usage = sum((usage for _, usage in judged), Usage())
        add_step(Step("judge coverage", text, _count_answered(verdicts), seconds=watch.seconds, usage=usage))
        return dspy.Prediction(verdicts=verdicts)

    def _ask(self, text: str, sub_questions: Sequence[str], settings: dict[str, float]) -> tuple[list[Coverage], Usage]:
        keyed = add_keys(sub_questions)
        reply = ask(
            "judge coverage",
            with_settings(self.find, {**allow_tokens(len(sub_questions) * _TOKENS_A_VERDICT), **settings}),
            retries=self._retries,
            signature=require_keys(self.find.signature, keyed),
            text=text,
            sub_questions=keyed,
        )
        return [self.read(text, v.fragment, v.answered) for v in values(reply.prediction.verdicts)], reply.usage

    def read(self, text: str, fragment: str, answered: bool) -> Coverage:
        """The verdict on one sub-question: what is answered by words that are not in the text is `invalid`."""
        if not answered:
            return Coverage(False)
        place = locate_fragment(text, fragment)
        return Coverage(True, fragment, place.position) if place else Coverage(False, fragment, invalid=True)


class PlainCoverageJudge(CoverageJudge):
    """Judges by the paper's prompt, each sub-question alone, and takes a verdict as it is (table 6)."""

    signature = FindAnswerPlainly

    def __init__(self, retries: int = 2, threads: int = 8) -> None:
        super().__init__(retries, sub_questions_per_call=1, threads=threads)

    def read(self, text: str, fragment: str, answered: bool) -> Coverage:
        place = locate_fragment(text, fragment) if answered else None
        return Coverage(answered, fragment if answered else "", place.position if place else None)


class SentenceCoverageJudge(CoverageJudge):
    """Judges which sentence of a text answers each sub-question. Sub-questions come first in the prompt, so that a
    server which caches the beginning of prompts reads them once for all answers to a question."""

    signature = FindAnsweringSentences

    def _ask(self, text: str, sub_questions: Sequence[str], settings: dict[str, float]) -> tuple[list[Coverage], Usage]:
        answer_sentences, keyed = sentences(text), add_keys(sub_questions)
        numbers = Literal[tuple(range(len(answer_sentences) + 1))]  # type: ignore[valid-type]
        reply = ask(
            "judge coverage",
            with_settings(self.find, {**allow_tokens(len(sub_questions) * _TOKENS_A_NUMBER), **settings}),
            retries=self._retries,
            signature=require_keys(self.find.signature, keyed, numbers),
            sub_questions=keyed,
            sentences={str(number): sentence for number, sentence in enumerate(answer_sentences, 1)},
        )
        verdicts = values(reply.prediction.verdicts)
        return [self.read(text, answer_sentences[n - 1] if n else "", n > 0) for n in verdicts], reply.usage


def _count_answered(verdicts: Sequence[Coverage]) -> str:
    return f"{sum(v.answered for v in verdicts)} of {len(verdicts)} sub-questions answered"


Cite = Literal["similarity", "cascade", "sentences", "words", "plain"]
DEFAULT_CITE: Cite = "similarity"
WEIGHTS = Path(__file__).with_name("coverage_weights.json")
UNSURE = 0.15
"""The distance from 0.5 within which a cascade takes a probability for unsure."""


class SimilarityCoverageJudge(AnyCoverageJudge):
    """Judges, without an LM, how likely a text answers each sub-question: see `Evidence`. The fragment is the two
    sentences in a row that are nearest in meaning."""

    asks_lm: ClassVar[bool] = False

    def __init__(self, weights: LogisticModel | None = None) -> None:
        super().__init__()
        self.weights = weights or LogisticModel.load(WEIGHTS)

    def forward(self, text: str, sub_questions: Sequence[str]) -> dspy.Prediction:
        watch = Stopwatch()
        verdicts = [Coverage(False, probability=0.0) for _ in sub_questions]
        for i, evidence in enumerate(find_evidence(text, tuple(sub_questions)) if text.strip() else ()):
            probability = self.weights.probability(evidence.features)
            verdicts[i] = Coverage(False, probability=probability)
            if probability >= 0.5:
                place = locate_fragment(text, evidence.fragment)
                position = place.position if place else None
                verdicts[i] = Coverage(True, evidence.fragment, position, probability=probability)
        add_step(Step("judge coverage", text, _count_answered(verdicts), seconds=watch.seconds))
        return dspy.Prediction(verdicts=verdicts)


class CascadeCoverageJudge(AnyCoverageJudge):
    """Asks the LM, which quotes words, only about the sub-questions whose probability by similarity is less than
    `unsure` from 0.5."""

    def __init__(self, sub_questions_per_call: int = 10, unsure: float = UNSURE) -> None:
        super().__init__()
        self.first = SimilarityCoverageJudge()
        self.second = CoverageJudge(sub_questions_per_call=sub_questions_per_call)
        self._unsure = unsure

    def forward(self, text: str, sub_questions: Sequence[str]) -> dspy.Prediction:
        """The `verdicts`, a `Coverage` for each; where the LM is asked, a probability is halfway to its."""
        verdicts: list[Coverage] = self.first(text=text, sub_questions=sub_questions).verdicts
        unsure = [i for i, v in enumerate(verdicts) if text.strip() and abs((v.probability or 0) - 0.5) < self._unsure]
        replies = self.second(text=text, sub_questions=[sub_questions[i] for i in unsure]).verdicts if unsure else []
        for i, verdict in zip(unsure, replies, strict=True):
            verdicts[i] = replace(verdict, probability=((verdicts[i].probability or 0) + verdict.answered) / 2)
        return dspy.Prediction(verdicts=verdicts)


def asks_lm(cite: str) -> bool:
    return cite != "similarity"


def build_coverage_judge(cite: Cite = DEFAULT_CITE, sub_questions_per_call: int = 10) -> AnyCoverageJudge:
    match cite:
        case "similarity":
            return SimilarityCoverageJudge()
        case "cascade":
            return CascadeCoverageJudge(sub_questions_per_call)
        case "sentences":
            return SentenceCoverageJudge(sub_questions_per_call=sub_questions_per_call)
        case "words":
            return CoverageJudge(sub_questions_per_call=sub_questions_per_call)
        case "plain":
            return PlainCoverageJudge()
    raise InputError(f"coverage cannot cite '{cite}'", f"Use {' or '.join(get_args(Cite))}")

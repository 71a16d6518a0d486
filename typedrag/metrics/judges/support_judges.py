"""Whether sources support an answer's sentences, by an NLI model or an LM; and any make by its spec."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import dspy

from typedrag.errors import InputError, Unavailable
from typedrag.lms.asking import ask
from typedrag.lms.call_settings import room_for, with_settings
from typedrag.metrics.judges.judgments import Judgments
from typedrag.metrics.judges.support import EmbeddingSupport, Support
from typedrag.retrieval.local_models import loading, locate_model
from typedrag.signatures import JudgeSupport, predictor
from typedrag.signatures.keyed import exactly, keyed, values
from typedrag.signatures.support import SupportVerdict
from typedrag.texts.words import first_words

FORMS = "embedding, nli:NAME, lm"
_SOURCE_WORDS = 200
_MOST_SOURCES = 10
"""That an LM reads; the first are those that the answer cites."""
_TOKENS_A_VERDICT = 12

_lock = threading.Lock()  # the tokenizers of transformers cannot be used by two threads at once


def open_support(spec: str, judgments: Judgments) -> Support:
    """The make that a spec names; models are loaded when they are first asked.

    Args:
        spec: `embedding`; `nli:NAME`, a cross-encoder that tells entailment, such as
            `nli:cross-encoder/nli-deberta-v3-small`, or a folder of one; or `lm`, the LM in use.
        judgments: Where the LM's are stored.

    Raises:
        InputError: If it names none.
    """
    kind, _, name = spec.partition(":")
    if spec == "embedding":
        return EmbeddingSupport()
    if kind == "nli" and name:
        return NLISupport(name)
    if spec == "lm":
        return LMSupport(judgments)
    raise InputError(f"support cannot be told by '{spec}'", f"Write one of: {FORMS}")


class NLISupport:
    """Goes by a model of natural language inference, source by source.

    What one source entails is supported; what none entails and one contradicts is contradicted.

    Args:
        name: A folder, or a name of the Hugging Face hub.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """See `Support.verdicts`."""
        with _lock:
            model, labels = _nli_model(self.name)
            pairs = [(source, sentence) for sentence, source in product(sentences, sources)]
            likeliest = model.predict(pairs, show_progress_bar=False).argmax(axis=1).tolist() if pairs else []
        told = [labels.get(place, SupportVerdict.NOT_STATED) for place in likeliest]
        of_sentences = [told[start : start + len(sources)] for start in range(0, len(told), len(sources))]
        return [
            next((verdict for verdict in SupportVerdict if verdict in of_one), SupportVerdict.NOT_STATED)
            for of_one in of_sentences
        ]


@cache
def _nli_model(name: str) -> tuple[Any, Mapping[int, SupportVerdict]]:
    """A model, and which of its outputs say that a sentence is supported or contradicted."""
    with loading(f"the model '{name}'", error=Unavailable):
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(locate_model(name), trust_remote_code=False)
    told = {place: str(label).lower() for place, label in model.config.id2label.items()}
    labels = {
        **{place: SupportVerdict.SUPPORTED for place, label in told.items() if label.startswith("entail")},
        **{place: SupportVerdict.CONTRADICTED for place, label in told.items() if label.startswith("contradict")},
    }
    if len(labels) != 2:
        raise InputError(
            f"the model '{name}' tells no entailment and contradiction: its labels are {', '.join(told.values())}",
            "Give an NLI model",
        )
    return model, labels


class SupportJudge(dspy.Module):
    """Says what sources say of each sentence of an answer, in one call.

    Args:
        retries: How often a reply that cannot be parsed is asked for again.
    """

    def __init__(self, retries: int = 2) -> None:
        super().__init__()
        self._retries = retries
        self.check = predictor(JudgeSupport)

    def forward(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> dspy.Prediction:
        """The `verdicts`, one a sentence.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be reached.
        """
        reply = ask(
            "judge support",
            with_settings(self.check, room_for(len(sentences) * _TOKENS_A_VERDICT)),
            retries=self._retries,
            signature=exactly(self.check.signature, keyed(sentences)),
            sources=list(sources),
            question=question,
            sentences=keyed(sentences),
        ).prediction
        return dspy.Prediction(verdicts=[SupportVerdict(v) for v in values(reply.verdicts)])


class LMSupport:
    """Asks the LM in use.

    Args:
        judgments: Where its verdicts are stored.
        judge: By default a new one.
    """

    def __init__(self, judgments: Judgments, judge: SupportJudge | None = None) -> None:
        self.judgments = judgments
        self.judge = judge or SupportJudge()

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """See `Support.verdicts`."""
        read = [first_words(source, _SOURCE_WORDS) for source in sources[:_MOST_SOURCES]]
        inputs = {"question": question, "sentences": list(sentences), "sources": read}
        stored = self.judgments.get_or_make(
            self.judge, inputs, lambda: {"verdicts": [v.value for v in self.judge(**inputs).verdicts]}
        )
        return [SupportVerdict(verdict) for verdict in stored["verdicts"]]

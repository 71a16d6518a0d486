"""Support of an answer's sentences by sources, by an NLI model or an LM; and any make by its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import dspy

from typedrag.core.errors import InputError, Unavailable
from typedrag.lms.asking import allow_tokens, ask, with_settings
from typedrag.metrics.judges.support import EmbeddingSupport, Support
from typedrag.retrieval.local_models import loading, local_model, locate_model
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import add_keys, require_keys, values
from typedrag.signatures.judging import JudgeSupport, SupportVerdict
from typedrag.text.words import first_words

FORMS = "embedding, nli:NAME, lm"
_SOURCE_WORDS = 200
_MOST_SOURCES = 10
"""The most sources that an LM reads; those that the answer cites come first."""
_TOKENS_A_VERDICT = 12


def open_support(spec: str) -> Support:
    """The make of support that a spec names; models are loaded on first use.

    Args:
        spec: `embedding`; `nli:NAME`, a cross-encoder for entailment, such as
            `nli:cross-encoder/nli-deberta-v3-small`, or a folder of one; or `lm`, the LM in use.
    """
    kind, _, name = spec.partition(":")
    if spec == "embedding":
        return EmbeddingSupport()
    if kind == "nli" and name:
        return NLISupport(name)
    if spec == "lm":
        return LMSupport()
    raise InputError(f"support cannot be told by '{spec}'", f"Write one of: {FORMS}")


class NLISupport:
    """Judges by a model of natural language inference, source by source.

    A sentence is supported if one source entails it; otherwise contradicted if one contradicts it.

    Args:
        name: A folder, or a name of the Hugging Face hub.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """See `Support.verdicts`."""
        with _nli_model(self.name) as (model, labels):
            pairs = [(source, sentence) for sentence, source in product(sentences, sources)]
            likeliest = model.predict(pairs, show_progress_bar=False).argmax(axis=1).tolist() if pairs else []
        by_pair = [labels.get(place, SupportVerdict.NOT_STATED) for place in likeliest]
        of_sentences = [by_pair[start : start + len(sources)] for start in range(0, len(by_pair), len(sources))]
        return [
            next((verdict for verdict in SupportVerdict if verdict in of_one), SupportVerdict.NOT_STATED)
            for of_one in of_sentences
        ]


@local_model
def _nli_model(name: str) -> tuple[Any, Mapping[int, SupportVerdict]]:
    """A model, and the verdicts of those of its outputs that mean entailment or contradiction."""
    with loading(f"the model '{name}'", error=Unavailable):
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(locate_model(name), trust_remote_code=False)
    names = {place: str(label).lower() for place, label in model.config.id2label.items()}
    labels = {
        **{place: SupportVerdict.SUPPORTED for place, label in names.items() if label.startswith("entail")},
        **{place: SupportVerdict.CONTRADICTED for place, label in names.items() if label.startswith("contradict")},
    }
    if len(labels) != 2:
        raise InputError(
            f"the model '{name}' tells no entailment and contradiction: its labels are {', '.join(names.values())}",
            "Give an NLI model",
        )
    return model, labels


class SupportJudge(dspy.Module):
    """Judges the support of all sentences of an answer by sources, in one call.

    Args:
        retries: How often to ask again for a reply that cannot be parsed.
    """

    def __init__(self, retries: int = 2) -> None:
        super().__init__()
        self._retries = retries
        self.check = predictor(JudgeSupport)

    def forward(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> dspy.Prediction:
        """A prediction with the `verdicts`, one for each sentence."""
        reply = ask(
            "judge support",
            with_settings(self.check, allow_tokens(len(sentences) * _TOKENS_A_VERDICT)),
            retries=self._retries,
            signature=require_keys(self.check.signature, add_keys(sentences)),
            sources=list(sources),
            question=question,
            sentences=add_keys(sentences),
        ).prediction
        return dspy.Prediction(verdicts=[SupportVerdict(v) for v in values(reply.verdicts)])


class LMSupport:
    """Judges by the LM in use.

    Args:
        judge: The judge; by default a new one.
    """

    def __init__(self, judge: SupportJudge | None = None) -> None:
        self.judge = judge or SupportJudge()

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """See `Support.verdicts`."""
        read = [first_words(source, _SOURCE_WORDS) for source in sources[:_MOST_SOURCES]]
        verdicts: list[SupportVerdict] = self.judge(question=question, sentences=sentences, sources=read).verdicts
        return verdicts

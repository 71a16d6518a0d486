"""Type classifiers: modules that name the type of a question. The option `type_classifier` says which is used.

Each is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with `question_type` and
`probability`, 0 to 1, or None if it is not known. Models are loaded at the first question.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import numpy as np
from numpy.typing import NDArray

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, LMUnavailable, StepFailed
from typedrag.core.question_types import TYPE_CLASSIFIERS, QuestionType, parse_question_type
from typedrag.core.records import Step, Usage
from typedrag.core.registry import Spec
from typedrag.lms.asking import ask, label_probabilities, logprob_settings, with_settings
from typedrag.lms.models import find_model
from typedrag.lms.trace import Stopwatch, add_step
from typedrag.programs.options import Options
from typedrag.retrieval.local_models import loading, local_model
from typedrag.signatures.typed_rag import ClassifyQuestion
from typedrag.text.language import is_english

WEIGHTS = Path(__file__).with_name("linear.npz")  # the weights of `LinearTypeClassifier`, see `LinearWeights`
ENCODER = "all-minilm-l6-v2"
EMBEDDING_WEIGHTS = Path(__file__).with_name("embedding.npz")
"""Arrays: `types`, `temperature`, `head` [types, dimensions + 1, the last for the bias], and what is added to MiniLM's
weights: to a vector `NAME.change`, to a matrix the product of `NAME.up` [out, rank] and `NAME.down` [rank, in]."""
MOST_TOKENS = 128
_FEW_WORDS = 2  # words in ASCII whose language nobody can tell: "lol" is taken for Dutch
NOT_ENGLISH = "the question is not in English, which is all that the type classifier reads"


def build_type_classifier(options: Options) -> dspy.Module:
    """The type classifier that the options name; one trained on English passes other languages to the LM."""
    match TYPE_CLASSIFIERS.parse(options.type_classifier):
        case Spec("linear"):
            return ByLanguageTypeClassifier(LinearTypeClassifier(), options)
        case Spec("embedding"):
            return ByLanguageTypeClassifier(EmbeddingTypeClassifier(), options)
        case Spec("hub", name):
            return HubTypeClassifier(name)
        case Spec("oracle"):
            return OracleTypeClassifier()
        case _:
            return LMTypeClassifier(options)


class ProbabilityClassifier(dspy.Module):
    """Names a question's type by probabilities of all types, without an LM."""

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type that it knows, summing to 1; each classifier overrides this."""
        raise NotImplementedError

    def forward(self, question: str) -> dspy.Prediction:
        watch = Stopwatch()
        best, probability = max(self.probabilities(question).items(), key=lambda pair: pair[1])
        return record_type(question, best, probability, watch.seconds)


def record_type(
    question: str,
    question_type: QuestionType,
    probability: float | None = None,
    seconds: float = 0.0,
    usage: Usage | None = None,
    *,
    source: str = "",
) -> dspy.Prediction:
    """The prediction of a type classifier, or of somebody else (`source`) who knows the type; recorded as a step."""
    sure = f" (by {source})" if source else "" if probability is None else f" ({probability:.2f})"
    add_step(Step("classify", question, f"{question_type}{sure}", seconds=seconds, usage=usage or Usage()))
    return dspy.Prediction(question_type=question_type, probability=probability)


class LMTypeClassifier(dspy.Module):
    """Names a question's type by asking the LM.

    The probability is the LM's own for the type among all types, if its server gives it.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = options.retries

    def forward(self, question: str) -> dspy.Prediction:
        predictor = with_settings(self.classify, logprob_settings())
        reply = ask("classify", predictor, retries=self._retries, question=question)
        question_type = reply.prediction.question_type
        types = label_probabilities(reply.prediction.get("logprobs"), question_type, list(QuestionType))
        return record_type(question, question_type, types[question_type] if types else None, reply.seconds, reply.usage)


class OracleTypeClassifier(dspy.Module):
    """Names the type that a question's dataset labels."""

    def forward(self, question: str) -> dspy.Prediction:
        if not (labelled := call_context().labels.get("question_type")):
            raise InputError(
                "the type classifier is an oracle, but the question has no labelled type",
                "Evaluate it on a dataset with a field question_type",
            )
        return record_type(question, parse_question_type(labelled), source="the dataset")


class ByLanguageTypeClassifier(ProbabilityClassifier):
    """Names the type of an English question by a classifier that reads only English; asks the LM about others."""

    def __init__(self, english: ProbabilityClassifier, options: Options) -> None:
        super().__init__()
        self.english = english
        self._options = options

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        return self.english.probabilities(question)

    def forward(self, question: str) -> dspy.Prediction:
        too_short_to_tell = question.isascii() and len(question.split()) <= _FEW_WORDS
        if too_short_to_tell or is_english(question):
            return self.english(question=question)
        if dspy.settings.lm is None:
            raise StepFailed("classify", f"{NOT_ENGLISH}, and there is no LM to ask for its type")
        add_step(Step("language", question, f"{NOT_ENGLISH}: the LM names its type"))
        # not an attribute, so that programs keep the predictors they were compiled and saved with
        return LMTypeClassifier(self._options)(question=question)


class LinearWeights(NamedTuple):
    """A logistic regression over TF-IDF weighted n-grams: those of words in the order of the first rows of `idf` and
    `coefficients`, then those of characters."""

    words: NDArray[np.str_]
    characters: NDArray[np.str_]
    idf: NDArray[np.float32]  # [n-grams]
    coefficients: NDArray[np.float32]  # [n-grams, types]
    intercept: NDArray[np.float32]  # [types]
    temperature: NDArray[np.float32]  # [] The divisor of logits that calibrates the probabilities
    types: NDArray[np.str_]  # question types, in the order of the columns

    @classmethod
    def load(cls, path: Path) -> LinearWeights:
        return cls(**load_arrays(path))

    def save(self, path: Path) -> None:
        save_arrays(path, self._asdict())


_START, _END = "\u2402", "\u2403"
_TOKEN = re.compile(rf"\b\w+\b|[?!{_START}{_END}]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


class LinearTypeClassifier(ProbabilityClassifier):
    """Names a question's type without an LM, by the model shipped in `linear.npz`.

    It is trained on NF-CATS (Bolotova et al. 2022, MIT licence, notice in `NOTICE`) by
    `scripts/train_type_classifier.py`, which prints its scores.
    """

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        weights, words, characters = _load_linear()
        word_rows, word_tfidf = words(question)
        character_rows, character_tfidf = characters(question)
        rows = np.concatenate([word_rows, character_rows + len(weights.words)])
        tfidf = np.concatenate([word_tfidf, character_tfidf])
        odds = softmax((tfidf @ weights.coefficients[rows] + weights.intercept) / weights.temperature)
        return {QuestionType(t): odd for t, odd in zip(weights.types, odds.tolist(), strict=True)}


@cache
def _load_linear() -> tuple[LinearWeights, TfIdf, TfIdf]:
    weights = LinearWeights.load(WEIGHTS)
    split = len(weights.words)
    words = TfIdf(word_ngrams, weights.words, weights.idf[:split])
    return weights, words, TfIdf(character_ngrams, weights.characters, weights.idf[split:])


def word_ngrams(question: str) -> list[str]:
    """N-grams of one to three words, with the marks ? and !, and with marks of each sentence's begin and end.

    The first words of a question tell more about its type than the places of the others, also at the end of a story.

    Example:
        >>> [n for n in word_ngrams("Why so?") if " " not in n]
        ['␂', 'why', 'so', '?', '␃']
    """
    sentences = (_TOKEN.findall(f"{_START} {text} {_END}") for text in _SENTENCE_END.split(question.lower()))
    return [" ".join(s[i : i + n]) for s in sentences for n in (1, 2, 3) for i in range(len(s) - n + 1)]


def character_ngrams(question: str) -> list[str]:
    """N-grams of two to four characters within words, with a blank at either end of a word.

    Example:
        >>> character_ngrams("Why")
        [' w', 'wh', 'hy', 'y ', ' wh', 'why', 'hy ', ' why', 'why ']
    """
    words = [f" {word} " for word in question.lower().split()]
    return [word[i : i + n] for word in words for n in (2, 3, 4) for i in range(len(word) - n + 1)]


class TfIdf:
    """Weighs the n-grams of a text that are in a vocabulary: sublinear frequency times idf, scaled to length 1, as
    scikit-learn's `TfidfVectorizer` does."""

    def __init__(
        self, analyzer: Callable[[str], list[str]], vocabulary: NDArray[np.str_], idf: NDArray[np.float32]
    ) -> None:
        self._analyzer = analyzer
        self._rows = {term: row for row, term in enumerate(vocabulary.tolist())}
        self._idf = idf

    def __call__(self, text: str) -> tuple[NDArray[np.intp], NDArray[np.floating[Any]]]:
        """The places in the vocabulary of the n-grams of a text, and their weights."""
        counts = Counter(row for term in self._analyzer(text) if (row := self._rows.get(term)) is not None)
        rows = np.fromiter(counts, np.intp, len(counts))
        weights = (1 + np.log(np.fromiter(counts.values(), np.float64, len(counts)))) * self._idf[rows]
        return rows, weights / (np.linalg.norm(weights) or 1)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `save_arrays` wrote, with real numbers at single precision."""
    with np.load(path, allow_pickle=False) as arrays:
        return {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in arrays.items()}


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, with real numbers at half precision."""
    small: dict[str, Any] = {n: a.astype(np.float16) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    np.savez_compressed(path, **small)


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The softmax over the last axis.

    Example:
        >>> softmax(np.log([1.0, 3.0])).round(2).tolist()
        [0.25, 0.75]
    """
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


class EmbeddingTypeClassifier(ProbabilityClassifier):
    """Names a question's type by MiniLM with the low-rank changes shipped in `embedding.npz`, trained like
    `LinearTypeClassifier`."""

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        with _load_embedding() as (tokenizer, network, arrays):
            logits = np.append(mean_embedding(tokenizer, network, [question])[0].numpy(), 1) @ arrays["head"].T
        types = map(QuestionType, arrays["types"])
        return dict(zip(types, softmax(logits / arrays["temperature"]).tolist(), strict=True))


@local_model
def _load_embedding() -> tuple[Any, Any, dict[str, NDArray[Any]]]:
    tokenizer, network = load_encoder()
    import torch

    arrays = load_arrays(EMBEDDING_WEIGHTS)
    weights = network.state_dict()  # the network's own, changed in place
    for key, change in arrays.items():
        name, _, kind = key.rpartition(".")
        if kind == "change":
            weights[name] += torch.from_numpy(change)
        elif kind == "up":
            weights[name] += torch.from_numpy(change @ arrays[f"{name}.down"])
    return tokenizer, network.eval(), arrays


def load_encoder() -> tuple[Any, Any]:
    place = find_model(ENCODER).require(LMUnavailable)
    hint = f"Delete {place}, and fetch it again: typedrag models fetch {ENCODER}"
    with loading(f"the model '{ENCODER}'", hint, LMUnavailable):
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        return tokenizer, AutoModel.from_pretrained(place, trust_remote_code=False)


def mean_embedding(tokenizer: Any, network: Any, questions: list[str]) -> Any:
    """The means of the questions' tokens in the last layer: a tensor [questions, dimensions]."""
    import torch

    tokens = tokenizer(questions, return_tensors="pt", padding=True, truncation=True, max_length=MOST_TOKENS)
    mask = tokens["attention_mask"][:, :, None]
    with torch.set_grad_enabled(network.training):
        return (network(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)


class HubTypeClassifier(ProbabilityClassifier):
    """Names a question's type by a sequence classifier of the hub, such as `Lurunchik/nf-cats`.

    Its labels are names of question types, in upper or lower case. The name may also be that of a folder.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        with _load_hub_model(self.name) as (network, tokenizer, longest, types):
            import torch

            tokens = tokenizer(question, return_tensors="pt", truncation=True, max_length=longest)
            with torch.inference_mode():
                logits = network(**tokens).logits[0]
        return dict(zip(types, logits.softmax(-1).tolist(), strict=True))


@local_model
def _load_hub_model(name: str) -> tuple[Any, Any, int, tuple[QuestionType, ...]]:
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "5")  # else a hub out of reach is tried for minutes
    folder = Path(name).expanduser()
    place = str(folder) if folder.is_dir() else name
    hint = "Check the name and the network, give a folder, or use the type classifier linear"
    with loading(f"the type classifier '{name}'", hint, LMUnavailable):
        from transformers import AutoConfig, AutoTokenizer

        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        labels = [label for _, label in sorted(config.id2label.items())]
        try:
            types = tuple(QuestionType(label) for label in labels)
        except ValueError:
            raise InputError(
                f"'{name}' is no classifier of question types: its labels are {', '.join(labels)}",
                f"Labels must be among: {', '.join(QuestionType)}",
            ) from None
        network, tokenizer_name = _network(name, place)
        tokenizer_name = place if folder.is_dir() else tokenizer_name
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_name, trust_remote_code=False)
    # the positions that RoBERTa never uses, which others can spare
    longest = getattr(config, "max_position_embeddings", 512) - 2
    return network.eval(), tokenizer, min(tokenizer.model_max_length, longest), types


def _network(name: str, place: str) -> tuple[Any, str]:
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    from typedrag.programs.typed_rag.nf_cats import TOKENIZER, NFCats

    architectures: list[tuple[Any, str]] = [(AutoModelForSequenceClassification, name), (NFCats, TOKENIZER)]
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would list the weights that are missing
    try:
        for architecture, tokenizer_name in architectures:
            network, info = architecture.from_pretrained(place, output_loading_info=True, trust_remote_code=False)
            if not info["missing_keys"]:  # otherwise they are random numbers
                return network, tokenizer_name
    finally:
        logging.set_verbosity(verbosity)
    raise InputError(f"'{name}' holds no trained classifier", "Name a model for text classification")

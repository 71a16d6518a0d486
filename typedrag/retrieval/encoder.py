"""Embeddings of queries and passages: by a sentence-transformers model with the prompts that it needs, or by an API."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import RetrievalError, first_line
from typedrag.core.records import Passage
from typedrag.core.redaction import make_redactor
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.local_models import LocalModel, loading, locate_model
from typedrag.text.words import NORMAL_FORM, normal_form

E5_PROMPTS = ("query: ", "passage: ")
"""The prompts of E5's training (Wang et al. 2022, section 3.2); most E5 models do not name them in their files."""
NAMED = "TYPEDRAG_ENCODER"  # the environment variable by which a user names the model of an index's dense part
API = "api:"  # the prefix of encoders that are an API, as in `api:text-embedding-ada-002`
API_BASE = "TYPEDRAG_ENCODER_API_BASE"
"""The environment variable with the address of an OpenAI-compatible server, if it is not a provider's own."""
API_KEY = "TYPEDRAG_ENCODER_API_KEY"
"""The environment variable with that server's key, if it asks for one; providers' keys have names of their own."""

Embeddings = NDArray[np.float32]  # [texts, dimensions]


class Encoder(NoDeepcopy):
    """A sentence-transformers model. Safe to use from many threads, which take turns.

    Texts are embedded in their normal form, unless it is for an index whose embeddings are not: `normal_form` says.

    Args:
        name: A model that `typedrag models` knows, a folder, or a name on the Hugging Face hub.
        query_prompt: Put before each query; by default the prompt of the model's own configuration, else
            E5's prefix for an E5 model, else nothing.
        passage_prompt: The same for passages.
        fetch: If False, the model is not fetched from the hub, and pickled weights are refused. For names that
            come from somebody whom the user does not know.
    """

    def __init__(
        self, name: str, *, query_prompt: str | None = None, passage_prompt: str | None = None, fetch: bool = True
    ) -> None:
        self.name, self.normal_form = name, NORMAL_FORM
        place = locate_model(name)
        hint = "Check the name and the network, or give a folder"
        if not fetch:
            hint = f"It is not fetched unless you name it yourself: set {NAMED}, or use --retriever bm25"

        def load() -> Any:
            from sentence_transformers import SentenceTransformer

            weights = {} if fetch else {"use_safetensors": True}
            return SentenceTransformer(place, trust_remote_code=False, local_files_only=not fetch, model_kwargs=weights)

        self._model = LocalModel(load)
        with loading(f"embedding model '{name}'", hint), self._model as model:
            queries, passages = default_prompts(name, model.prompts)
            self.normalised = model.similarity_fn_name != "dot"
        self.query_prompt = queries if query_prompt is None else query_prompt
        self.passage_prompt = passages if passage_prompt is None else passage_prompt

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        return self._encode("encode_query", list(queries), self.query_prompt)

    def encode_passages(self, passages: Sequence[Passage]) -> Embeddings:
        """The embeddings of passages with their titles, in their order; of long passages, of the beginning."""
        return self._encode("encode_document", [p.titled for p in passages], self.passage_prompt)

    def count_cut(self, passages: Sequence[Passage]) -> int:
        """The number of passages that have more tokens than the model reads, so that only the beginning is embedded."""
        with self._model as model:
            most = model.max_seq_length or math.inf
            texts = [text for p in passages if len(text := self.passage_prompt + p.titled) > most - 2]
            tokens = model.tokenizer(texts, truncation=False, verbose=False)["input_ids"] if texts else []
        return sum(len(row) > most for row in tokens)

    def _encode(self, method: str, texts: list[str], prompt: str) -> Embeddings:
        texts = list(map(normal_form, texts)) if self.normal_form else texts
        try:
            with self._model as model:
                encode = getattr(model, method)
                rows = encode(texts, prompt=prompt, normalize_embeddings=self.normalised, show_progress_bar=False)
        except Exception as error:  # torch and tokenizers raise errors of many kinds
            raise RetrievalError(
                f"embedding model '{self.name}' cannot embed: {first_line(error)}", "Is there memory enough?"
            ) from error
        return np.ascontiguousarray(rows, dtype=np.float32)


class APIEncoder(Encoder):
    """A model of embeddings behind an API, asked by `dspy.Embedder`. Safe to use from many threads.

    Its embeddings are scaled to length 1, so that inner products are cosines. Its name is `api:` and LiteLLM's name of
    the model; one without a provider, such as `api:text-embedding-ada-002`, is asked for by OpenAI's protocol. There
    are no default prompts. Without `fetch`, nothing is sent to the API, which then cannot be used.
    """

    def __init__(
        self, name: str, *, query_prompt: str | None = None, passage_prompt: str | None = None, fetch: bool = True
    ) -> None:
        if not fetch:
            raise RetrievalError(
                f"the index is searched by {name}, and your questions would be sent there",
                f"They are not unless you name it yourself: set {NAMED}, or use --retriever bm25",
            )
        import dspy

        self.name, self.normal_form = name, NORMAL_FORM
        self.query_prompt, self.passage_prompt = query_prompt or "", passage_prompt or ""
        self.normalised = True
        model = name.removeprefix(API)
        address = os.environ.get(API_BASE)
        key = os.environ.get(API_KEY) or "EMPTY"
        # small servers know no other encoding
        own = {"api_base": address, "api_key": key, "encoding_format": "float"} if address else {}
        self._embed = dspy.Embedder(
            model if "/" in model else f"openai/{model}",
            batch_size=100,
            caching=False,
            timeout=60,
            num_retries=3,
            **own,
        )

    def count_cut(self, passages: Sequence[Passage]) -> int:
        """Zero, as nobody but the API knows."""
        return 0

    def _encode(self, method: str, texts: list[str], prompt: str) -> Embeddings:
        texts = list(map(normal_form, texts)) if self.normal_form else texts
        try:
            rows = self._embed([prompt + text for text in texts])
        except Exception as error:  # LiteLLM raises errors of many kinds, which may hold a part of the key
            reason = make_redactor([])(first_line(error))
            raise RetrievalError(
                f"{self.name} gives no embeddings: {reason}", f"Check its name, its key and {API_BASE}"
            ) from error
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.ascontiguousarray(rows / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def open_encoder(
    name: str, *, query_prompt: str | None = None, passage_prompt: str | None = None, fetch: bool = True
) -> Encoder:
    """The encoder of a name: an API's with `api:` before it, else a model on this machine; see both."""
    kind = APIEncoder if name.startswith(API) else Encoder
    return kind(name, query_prompt=query_prompt, passage_prompt=passage_prompt, fetch=fetch)


def default_prompts(name: str, configured: Mapping[str, str]) -> tuple[str, str]:
    """The default prompts of queries and of passages, from a model's name and the prompts of its own configuration.

    Example:
        >>> default_prompts("intfloat/e5-base-v2", {"query": "", "document": ""})
        ('query: ', 'passage: ')
        >>> default_prompts("some/e5-instruct", {"query": "Instruct: find it\\nQuery: ", "document": ""})
        ('Instruct: find it\\nQuery: ', '')
        >>> default_prompts("all-minilm-l6-v2", {"query": "", "document": ""})
        ('', '')
    """
    of_queries = configured.get("query") or ""
    names = ("document", "passage", "corpus")
    of_passages = next((configured[name] for name in names if configured.get(name)), "")
    parts = re.split(r"[^a-z0-9]+", name.rstrip("/").rpartition("/")[2].lower())
    if "e5" in parts and "instruct" not in parts and not of_queries and not of_passages:
        return E5_PROMPTS
    return of_queries, of_passages

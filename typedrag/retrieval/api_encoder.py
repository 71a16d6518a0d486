"""Embeddings by an API: OpenAI's, another provider's that LiteLLM knows, or a server of one's own."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from typedrag.errors import RetrievalError, first_line
from typedrag.records import Passage
from typedrag.redaction import redactor_for
from typedrag.retrieval.encoder import NAMED, Embeddings, Encoder

API = "api:"
"""The prefix of encoders that are an API, as in `api:text-embedding-ada-002`."""
ADDRESS = "TYPEDRAG_ENCODER_API_BASE"
"""The environment variable with the address of an OpenAI-compatible server, if it is not a provider's own."""
KEY = "TYPEDRAG_ENCODER_API_KEY"
"""The environment variable with that server's key, if it asks for one; providers' keys have names of their own."""
_BATCH = 100
_SECONDS, _RETRIES = 60, 3


class APIEncoder(Encoder):
    """A model of embeddings behind an API, asked by `dspy.Embedder`. Safe to use from many threads.

    Its embeddings are scaled to length 1, so that inner products are cosines.

    Args:
        name: `api:` and LiteLLM's name of the model; one without a provider, such as `api:text-embedding-ada-002`, is
            asked for by OpenAI's protocol.
        query_prompt: Put before each query; by default nothing.
        passage_prompt: The same for passages.
        fetch: If False, nothing is sent to the API, which then cannot be used. For names that come from somebody
            whom the user does not know.

    Raises:
        RetrievalError: If it may not be asked.
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

        self.name = name
        self.query_prompt, self.passage_prompt = query_prompt or "", passage_prompt or ""
        self.normalised = True
        model = name.removeprefix(API)
        address = os.environ.get(ADDRESS)
        key = os.environ.get(KEY) or "EMPTY"
        # small servers know no other encoding
        own = {"api_base": address, "api_key": key, "encoding_format": "float"} if address else {}
        self._embed = dspy.Embedder(
            model if "/" in model else f"openai/{model}",
            batch_size=_BATCH,
            caching=False,
            timeout=_SECONDS,
            num_retries=_RETRIES,
            **own,
        )

    def encode_queries(self, queries: Sequence[str]) -> Embeddings:
        """The embeddings of queries, in their order."""
        return self._rows([self.query_prompt + query for query in queries])

    def encode_passages(self, passages: Sequence[Passage]) -> Embeddings:
        """The embeddings of passages with their titles, in their order."""
        return self._rows([self.passage_prompt + p.titled for p in passages])

    def _rows(self, texts: Sequence[str]) -> Embeddings:
        try:
            rows = self._embed(list(texts))
        except Exception as error:  # LiteLLM raises errors of many kinds, which may hold a part of the key
            reason = redactor_for([])(first_line(error))
            raise RetrievalError(
                f"{self.name} gives no embeddings: {reason}", f"Check its name, its key and {ADDRESS}"
            ) from error
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.ascontiguousarray(rows / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def open_encoder(
    name: str, *, query_prompt: str | None = None, passage_prompt: str | None = None, fetch: bool = True
) -> Encoder:
    """The encoder of a name: an API's with `api:` before it, else a model on this machine; see both.

    Raises:
        RetrievalError: If it cannot be loaded, or may not be asked.
    """
    kind = APIEncoder if name.startswith(API) else Encoder
    return kind(name, query_prompt=query_prompt, passage_prompt=passage_prompt, fetch=fetch)

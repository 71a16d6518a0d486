"""The manifest of an index's dense part: its model and its passages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from typedrag.errors import RetrievalError
from typedrag.lms.models import MODELS
from typedrag.retrieval.encoder import NAMED, Encoder, open_encoder
from typedrag.retrieval.index.workshop import DENSE, opened, read_manifest_file, refusal

FORMAT = 1
NEWEST_FORMAT = 2
"""The format of a part with an approximate index, which a typedrag that knows none would search slowly."""
_BUILD = "typedrag index build … --out DIR --dense MODEL"
_CLOSED = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class EncoderSettings(BaseModel):
    """The settings that embeddings depend on."""

    model_config = _CLOSED

    model: str
    """Its name as given: one that `typedrag models` knows, a folder, a name on the hub, or an API's with `api:`."""
    dimensions: int
    """The length of an embedding."""
    query_prompt: str
    """Put before each query."""
    passage_prompt: str
    """Put before each passage."""
    normalised: bool
    """True if embeddings have length 1, so that their inner product is their cosine."""

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderSettings:
        """The settings of an encoder."""
        return cls(
            model=encoder.name,
            dimensions=encoder.encode_queries(["?"]).shape[1],
            query_prompt=encoder.query_prompt,
            passage_prompt=encoder.passage_prompt,
            normalised=encoder.normalised,
        )

    def encoder(self, model: str | None = None) -> Encoder:
        """The encoder with these settings.

        An index may be a stranger's: the model that it names is fetched, or asked if it is an API, only if the user
        names it too.

        Args:
            model: The model as the user names it; by default `TYPEDRAG_ENCODER`, unless the model comes with typedrag.

        Raises:
            RetrievalError: If the encoder cannot be loaded.
        """
        if self.model not in MODELS:
            model = model or os.environ.get(NAMED)
        return open_encoder(
            model or self.model,
            query_prompt=self.query_prompt,
            passage_prompt=self.passage_prompt,
            fetch=bool(model),
        )


class DenseManifest(BaseModel):
    """The contents of a dense part, and how it was built."""

    model_config = _CLOSED

    format: int = FORMAT
    """Raised with each change that an older typedrag cannot read."""
    sources: tuple[str, ...] = ()
    """The files and folders that it was built from, as they were named."""
    fingerprint: str = ""
    """The fingerprint of its passages: the same as that of its index, see `index.Manifest`."""
    passages: int = 0
    """The number of passages: 0 until the build has finished. Further rows belong to an unfinished addition."""
    encoder: EncoderSettings
    """The settings of the encoder that embedded them."""
    approximate: str = ""
    """FAISS's factory string of the approximate index; left out where all passages are compared."""
    built_at: str = ""
    """Time of the end of the build, UTC."""
    seconds: float = 0.0
    """Wall time of the build, or of its last part if it was continued."""
    versions: dict[str, str] = {}
    """The versions of typedrag, sentence-transformers, torch and FAISS."""

    @model_serializer(mode="wrap")
    def _without_exact(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        if not self.approximate:  # as in manifests of older versions
            del values["approximate"]
        return values


def has_dense(index: Path) -> bool:
    """True if an index has a dense part, finished or not."""
    return (index / DENSE / "manifest.json").is_file()


def read_dense_manifest(index: Path) -> DenseManifest:
    """The manifest of a finished dense part.

    Raises:
        RetrievalError: If there is none, its build did not finish, or its format is newer.
    """
    return opened(index, lambda: _read_manifest(index))


def _read_manifest(index: Path) -> DenseManifest:
    if not has_dense(index):
        raise refusal(index) or RetrievalError(f"index {index} has no dense part", f"Build it: {_BUILD}")
    manifest = read_any_manifest(index)
    if not manifest.passages:
        raise RetrievalError(
            f"the build of the dense part of {index} did not finish", f"Continue it: {_BUILD} --resume"
        )
    return manifest


def read_any_manifest(index: Path) -> DenseManifest:
    """The manifest of a dense part, also of an unfinished one.

    Raises:
        RetrievalError: If it cannot be read or its format is newer.
    """
    what, mend = f"the dense part of {index}", f"Build it again: {_BUILD} --force"
    return read_manifest_file(index / DENSE / "manifest.json", DenseManifest, NEWEST_FORMAT, what, mend)

"""What the dense part of an index says of itself: by which model, of how many passages."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from typedrag.errors import RetrievalError
from typedrag.lms.models import MODELS
from typedrag.retrieval.encoder import NAMED, Encoder
from typedrag.retrieval.index.workshop import DENSE, opened, read_manifest_file, refusal

FORMAT = 1
_BUILD = "typedrag index build … --out DIR --dense MODEL"
_CLOSED = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class EncoderSettings(BaseModel):
    """What embeddings depend on."""

    model_config = _CLOSED

    model: str
    """As it was named: one that `typedrag models` knows, a folder, or a name of the hub."""
    dimensions: int
    """Of an embedding."""
    query_prompt: str
    """Put before each query."""
    passage_prompt: str
    """Put before each passage."""
    normalised: bool
    """Whether embeddings have length 1, so that their inner product is their cosine."""

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderSettings:
        """Those of an encoder."""
        return cls(
            model=encoder.name,
            dimensions=encoder.encode_queries(["?"]).shape[1],
            query_prompt=encoder.query_prompt,
            passage_prompt=encoder.passage_prompt,
            normalised=encoder.normalised,
        )

    def encoder(self, model: str | None = None) -> Encoder:
        """The encoder that these are of.

        An index may be a stranger's: what it names is not fetched unless the user names it as well.

        Args:
            model: The model as the user names it; by default as `TYPEDRAG_ENCODER` does, unless the one
                that built the part comes with typedrag.

        Raises:
            RetrievalError: If it cannot be loaded.
        """
        if self.model not in MODELS:
            model = model or os.environ.get(NAMED)
        return Encoder(
            model or self.model,
            query_prompt=self.query_prompt,
            passage_prompt=self.passage_prompt,
            fetch=bool(model),
        )


class DenseManifest(BaseModel):
    """What a dense part holds and how it was built."""

    model_config = _CLOSED

    format: int = FORMAT
    """Raised when an older typedrag could no longer read it."""
    sources: tuple[str, ...] = ()
    """The files and folders it was built from, as they were named."""
    fingerprint: str = ""
    """Of its passages: the same as that of the index that it is part of, see `index.Manifest`."""
    passages: int = 0
    """How many it holds: 0 until its build has finished. Rows beyond are of an addition that has not."""
    encoder: EncoderSettings
    """What they were embedded by."""
    built_at: str = ""
    """Time of the end of the build, UTC."""
    seconds: float = 0.0
    """Wall time of the build, or of its last part if it was continued."""
    versions: dict[str, str] = {}
    """Of typedrag, sentence-transformers, torch and FAISS."""


def has_dense(index: Path) -> bool:
    """Whether an index has a dense part, finished or not."""
    return (index / DENSE / "manifest.json").is_file()


def read_dense_manifest(index: Path) -> DenseManifest:
    """The manifest of a finished dense part.

    Raises:
        RetrievalError: If there is none, its build did not finish, or it is of a newer format.
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
    """The same, also of one that is being built.

    Raises:
        RetrievalError: If it cannot be read or is of a newer format.
    """
    what, mend = f"the dense part of {index}", f"Build it again: {_BUILD} --force"
    return read_manifest_file(index / DENSE / "manifest.json", DenseManifest, FORMAT, what, mend)

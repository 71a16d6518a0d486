"""The address of an index in Milvus, and of how it is searched: `milvus:SERVER/COLLECTION?search=…&filter=…`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from typedrag.errors import InputError
from typedrag.redaction import without_keys

TOKEN = "MILVUS_TOKEN"
"""The variable that holds the key by which a server lets this process in: a token, or `USER:PASSWORD`."""
FORM = "milvus:http://HOST:PORT/COLLECTION"
_SCHEME = "milvus:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SETTINGS = ("search", "filter")


def is_milvus(spec: str) -> bool:
    """True if a retriever's spec names a collection of Milvus."""
    return spec.startswith(_SCHEME)


@dataclass(frozen=True)
class MilvusAddress:
    """A collection, and how it is searched.

    Attributes:
        server: As Milvus's client takes it: `http://HOST:PORT`, `https://…`, either with `/DATABASE`, or a file of
            Milvus Lite, whose name ends with `.db`.
        collection: Its name.
        search: `bm25`, `dense`, `hybrid[:WEIGHT]` or `auto`.
        filter: An expression of Milvus over the metadata of passages, such as `year >= 2020`; empty for none.
    """

    server: str
    collection: str
    search: str = "auto"
    filter: str = ""

    @classmethod
    def parse(cls, spec: str) -> MilvusAddress:
        """The address that a spec writes.

        Raises:
            InputError: If it has another form, or says a key.

        Example:
            >>> MilvusAddress.parse("milvus:http://localhost:19530/wiki?search=bm25&filter=year >= 2020")
            MilvusAddress(server='http://localhost:19530', collection='wiki', search='bm25', filter='year >= 2020')
        """
        shown = without_keys(spec)
        place, _, query = spec.removeprefix(_SCHEME).partition("?")
        server, _, collection = place.rpartition("/")
        if not is_milvus(spec) or not _NAME.fullmatch(collection):
            raise InputError(f"'{shown}' names no collection of Milvus", f"Write it like {FORM}")
        if not (_is_url(server) if "://" in server else server.endswith(".db")):
            raise InputError(
                f"'{shown}' names no server of Milvus", f"Write it like {FORM}; its key belongs into {TOKEN}"
            )
        settings = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := settings.keys() - set(_SETTINGS):
            raise InputError(f"'{shown}' sets {', '.join(sorted(unknown))}", "What can be set is search and filter")
        return cls(server, collection, **settings)

    @property
    def place(self) -> str:
        """The address without settings."""
        return f"{_SCHEME}{self.server}/{self.collection}"

    @property
    def is_file(self) -> bool:
        """True if it is a file of Milvus Lite."""
        return "://" not in self.server


def _is_url(server: str) -> bool:
    try:
        url = urlsplit(server)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and "@" not in url.netloc
    except ValueError:
        return False

from __future__ import annotations

import pytest

from typedrag.errors import InputError
from typedrag.retrieval import check_retriever
from typedrag.retrieval.milvus.address import MilvusAddress
from typedrag.retrieval.opening import brings_index, server_of

SPEC = "milvus:https://me.example:19530/mine/wiki?search=hybrid:0.3&filter=year >= 2020 and lang == 'en'"


def test_an_address_says_where_and_how():
    address = MilvusAddress.parse(SPEC)
    assert address == MilvusAddress(
        "https://me.example:19530/mine", "wiki", "hybrid:0.3", "year >= 2020 and lang == 'en'"
    )
    assert address.place == "milvus:https://me.example:19530/mine/wiki"
    assert check_retriever(SPEC) == 0.3
    assert brings_index(SPEC) and server_of(SPEC) == "https://me.example:19530/mine"
    assert MilvusAddress.parse("milvus:a/b.db/wiki?filter=a%20%3D%3D%20'%26'").filter == "a == '&'"
    assert server_of("milvus:a/b.db/wiki") == "" and check_retriever("milvus:a/b.db/wiki") is None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("milvus:", "no collection"),
        ("milvus:http://host:1", "no collection"),
        ("milvus:http://host:1/two-words", "no collection"),
        ("milvus:wiki", "no server"),
        ("milvus:folder/wiki", "no server"),
        ("milvus:ftp://host/wiki", "no server"),
        ("milvus:http://host:x/wiki", "no server"),
        ("milvus:http://me:secret-word@host:1/wiki", "a key|its key"),
        ("milvus:http://host:1/wiki?token=secret-word", "sets token"),
        ("milvus:http://host:1/wiki?search=bm26", "no retriever"),
        ("milvus:http://host:1/wiki?search=hybrid:2", "weight of 2"),
        ("milvus:http://host:1/wiki?search=http://other", "how Milvus searches"),
        ("milvus:http://host:1/wiki?search=gold", "how Milvus searches"),
    ],
)
def test_what_is_no_address_is_refused_without_showing_a_key(spec, problem):
    with pytest.raises(InputError) as refused:
        check_retriever(spec)
    assert problem.split("|")[-1] in f"{refused.value} "
    assert "secret-word" not in str(refused.value)

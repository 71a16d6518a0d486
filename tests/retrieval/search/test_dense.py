"""Dense retrieval for real: MiniLM over the sample corpus, and a quick encoder for what a build survives."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.retrieval.encoders import WORDS, minilm, save_encoder
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.datasets import sample_questions
from typedrag.retrieval import DenseRetriever, Encoder, append_index, build_index, embed_index, read_dense_manifest
from typedrag.retrieval.index import dense_part
from typedrag.retrieval.index import passages as stream
from typedrag.retrieval.index.dense_part import DENSE, read_embeddings
from typedrag.retrieval.index.generations import current_generation

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
    held = passages(40) if held is None else held
    return build_index(held, out, sources=["test"], bm25=False, encoder=encoder, **settings).dense


def ids(found: list[Passage]) -> list[str]:
    return [p.id for p in found]


def everything(out: Path) -> list[list[Passage]]:
    return DenseRetriever(out).search(WORDS, 1_000)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(stream, "_BATCH", 8)
    monkeypatch.setattr(dense_part, "_ROWS", 8)


# searching


def test_the_sample_questions_find_their_passages(dense):
    found = dense.search(QUESTIONS, 5)
    recalls = [
        len(set(q.passage_ids) & set(ids(hits))) / min(5, len(q.passage_ids))
        for q, hits in zip(sample_questions(), found, strict=True)
    ]
    assert len(recalls) == 24 and sum(recalls) / len(recalls) >= 0.9


def test_it_finds_what_numpy_finds(dense, both_parts):
    manifest = dense.manifest
    matrix = np.array(read_embeddings(current_generation(both_parts), manifest.passages, manifest.encoder.dimensions))
    held = list(dense.passages())
    assert (dense.passage(held[3].id), dense.passage("none")) == (held[3], None)
    scores = minilm().encode_queries(QUESTIONS) @ matrix.T
    for row, found in zip(scores, dense.search(QUESTIONS, 10), strict=True):
        best = np.argsort(-row, kind="stable")[:10]
        assert [p.score for p in found] == pytest.approx(row[best].tolist(), abs=2e-5)
        assert set(ids(found)) == {held[i].id for i in best}
        assert all(held[i].text == next(p.text for p in found if p.id == held[i].id) for i in best)


# building and adding


def test_what_was_added_answers_as_if_it_had_been_built_so(tmp_path, tiny):
    build(tmp_path / "whole", tiny)
    build(tmp_path / "parts", tiny, passages(25))
    with pytest.raises(InputError, match="1 passages are in the index already, such as 'p25'"):
        append_index(passages(2, start=25), tmp_path / "parts", sources=["more"])
    manifest = append_index(passages(15, start=26), tmp_path / "parts", sources=["more"], force=True).dense
    assert (manifest.passages, manifest.sources) == (40, ("test", "more"))
    assert manifest.fingerprint != read_dense_manifest(tmp_path / "whole").fingerprint  # it says how it came about
    for added, whole in zip(everything(tmp_path / "parts"), everything(tmp_path / "whole"), strict=True):
        assert ids(added) == ids(whole)
        assert [p.score for p in added] == pytest.approx([p.score for p in whole], abs=2e-5)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda held: [Passage("p1", "changed"), *held[1:]], "passage p1 of .* has changed since it was embedded"),
        (lambda held: held[:10], "holds 16 passages, 6 of which are in no source"),
        (lambda held: [*held, held[3]], "passage 41 has the id 'p4' of one before it"),
        (lambda held: [], "no passage was found in test"),
    ],
)
@pytest.mark.usefixtures("small_batches")
def test_a_build_is_not_continued_with_other_passages(tmp_path, tiny, change, problem):
    with pytest.raises(Killed):
        build(tmp_path / "idx", tiny, broken(passages(40)))
    with pytest.raises(InputError, match=problem):
        build(tmp_path / "idx", tiny, change(passages(40)), resume=True)
    assert build(tmp_path / "idx", tiny, resume=True).passages == 40


def test_another_model_s_index_is_refused(tmp_path, tiny, tiny_model):
    build(tmp_path / "idx", tiny)
    other = save_encoder(tmp_path / "other", seed=8)
    said = r"was built with .*, whose embeddings are not those of .*other.* Use the same model"
    with pytest.raises(InputError, match=said):
        DenseRetriever(tmp_path / "idx", model=other)
    build_index(passages(40), tmp_path / "both", sources=["test"], encoder=tiny)
    with pytest.raises(InputError, match=said):
        embed_index(tmp_path / "both", Encoder(other))
    with pytest.raises(InputError, match=r"and other settings: passage_prompt '', now 'passage '"):
        embed_index(tmp_path / "both", Encoder(tiny_model, passage_prompt="passage "))
    with pytest.raises(InputError, match="dimensions 16, now 384"):
        embed_index(tmp_path / "both", minilm())
    assert embed_index(tmp_path / "both", Encoder(other), force=True).dense.encoder.model == other


class Killed(Exception):
    """Ends a build where a signal would."""


def broken(held: list[Passage]):
    yield from held[:16]
    raise Killed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "the manifest of the dense part of .* cannot be read"),
        ('{"format": 99}', r"is of a newer format \(99\)\. Update typedrag"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path, tiny, text, problem):
    build(tmp_path / "idx", tiny)
    (tmp_path / "idx/gen-1" / DENSE / "manifest.json").write_text(text)
    with pytest.raises(RetrievalError, match=problem):
        DenseRetriever(tmp_path / "idx")


def test_a_part_that_lacks_rows_is_refused(tmp_path, tiny):
    build(tmp_path / "idx", tiny)
    file = tmp_path / "idx/gen-1" / DENSE / "passages.jsonl"
    os.truncate(file, file.stat().st_size - 3)
    with pytest.raises(RetrievalError, match="holds 39 passages, its manifest says 40"):
        DenseRetriever(tmp_path / "idx")
    os.truncate(tmp_path / "idx/gen-1" / DENSE / "embeddings.f32", 100)
    with pytest.raises(RetrievalError, match="cannot be opened"):
        DenseRetriever(tmp_path / "idx")


def test_an_index_without_a_dense_part_says_how_to_build_one(sample_index):
    with pytest.raises(RetrievalError, match=r"has no dense part\. Build it: typedrag index build .*--dense MODEL"):
        DenseRetriever(sample_index)


def hostile(folder: Path) -> str:
    """A model whose folder brings code that says when it runs."""
    model = Path(save_encoder(folder))
    (model / "hostile.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\nclass Module: pass\n")
    parts = json.loads((model / "modules.json").read_text())
    parts[0]["type"] = "hostile.Module"
    (model / "modules.json").write_text(json.dumps(parts))
    return str(model)


def name_in_manifest(index: Path, model: str) -> None:
    path = index / "gen-1/dense/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["encoder"]["model"] = model
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("named_by_user", [False, True])
def test_no_code_of_a_model_s_folder_is_run(tmp_path, tiny, named_by_user):
    build(tmp_path / "idx", tiny)
    model = hostile(tmp_path / "idx/gen-1/dense/brought")
    name_in_manifest(tmp_path / "idx", model)
    with pytest.raises(RetrievalError, match="cannot be loaded"):
        DenseRetriever(tmp_path / "idx", model=model if named_by_user else None)
    assert not (tmp_path / "idx/gen-1/dense/brought/ran").exists()


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


@pytest.mark.usefixtures("small_batches")
def test_a_row_that_was_torn_is_embedded_again(tmp_path, tiny):
    with pytest.raises(Killed):
        build(tmp_path / "idx", tiny, broken(passages(40)))
    with (tmp_path / "idx/gen-1" / DENSE / "embeddings.f32").open("ab") as file:
        file.write(b"torn")
    build(tmp_path / "idx", tiny, resume=True)
    build(tmp_path / "whole", tiny)
    assert [ids(found) for found in everything(tmp_path / "idx")] == [
        ids(found) for found in everything(tmp_path / "whole")
    ]


def test_a_model_that_has_moved_is_named(tmp_path, tiny_model):
    import shutil

    moved = shutil.copytree(tiny_model, tmp_path / "moved")
    build(tmp_path / "idx", Encoder(str(moved)))
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(RetrievalError, match="cannot be loaded"):
        DenseRetriever(tmp_path / "idx")
    assert len(DenseRetriever(tmp_path / "idx", model=str(tmp_path / "elsewhere")).search(["bread"], 3)[0]) == 3

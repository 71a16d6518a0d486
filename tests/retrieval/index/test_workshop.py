"""Two processes at one index, and kills at moments that tests must choose."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from tests.retrieval.encoders import save_encoder
from tests.retrieval.index.test_index import WORDS, append, build, everything, passages
from typedrag.cli.progress import counting
from typedrag.errors import InputError, RetrievalError
from typedrag.files.locks import alone_in
from typedrag.records import Passage
from typedrag.retrieval import (
    BM25Retriever,
    Encoder,
    HybridRetriever,
    append_parts,
    build_index,
    build_parts,
    open_retriever,
    read_manifest,
)
from typedrag.retrieval.index import dense_index, index, workshop


def answers(out: Path) -> list[list[Passage]]:
    return open_retriever("auto", out).search(WORDS, 100)


def listing(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*"))


# two processes


def test_who_finds_another_at_work_touches_nothing_and_says_so(tmp_path):
    out, more = tmp_path / "idx", passages(20)[10:]
    build(out)
    before = listing(out)
    with alone_in(out):
        for work in (
            lambda: append(out, more),
            lambda: append(out, more, resume=True),
            lambda: append(out, more, force=True),
            lambda: build(out, force=True),
            lambda: build(out, resume=True),
        ):
            with pytest.raises(InputError, match=r"^another process is writing .*idx\. Wait for it"):
                work()
        assert listing(out) == [".lock", *before]
        assert read_manifest(out).passages == 10 and answers(out)
    assert listing(out) == before


def test_a_build_by_another_process_is_waited_for_and_not_to_be_continued(tmp_path):
    out = tmp_path / "idx"
    (out / "building").mkdir(parents=True)
    with alone_in(out), pytest.raises(RetrievalError, match=r"is being built by another process\. Wait for it$"):
        open_retriever("bm25", out)
    with pytest.raises(RetrievalError, match=r"did not finish\. Continue it with: typedrag index build"):
        open_retriever("bm25", out)


def test_an_index_is_searched_as_it_was_until_what_is_added_is_all_there(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_BATCH", 10)
    monkeypatch.setattr(index, "_COMMIT_ROWS", 20)
    out = tmp_path / "idx"
    build(out, passages(50))
    held, before = BM25Retriever(out), everything(out)

    def watched():
        for number, passage in enumerate(passages(100)[50:]):
            if number % 20 == 5:  # some are committed to Lucene by then
                assert everything(out) == before and read_manifest(out).passages == 50
            yield passage

    assert append(out, watched()).passages == 100
    assert len(everything(out)[0]) > len(before[0])
    assert held.search(WORDS, 10_000) == before  # who has it open goes on with what it opened


def test_an_index_is_searched_as_it_was_until_another_takes_its_place(tmp_path):
    out = tmp_path / "idx"
    build(out, passages(50))
    before = everything(out)

    def watched():
        yield from passages(9)
        assert everything(out) == before

    build(out, watched(), force=True)
    assert read_manifest(out).passages == 9
    assert everything(out) != before


def test_whoever_opens_while_parts_change_places_sees_one_moment(tmp_path):
    out = tmp_path / "idx"
    build(out, passages(10))
    ended, faults = threading.Event(), []

    def reading():
        while not ended.is_set():
            try:
                opened = open_retriever("bm25", out)
                assert opened.search(["bread"], 100)[0][0].title == f"of {opened.manifest.passages}"
            except Exception as fault:
                faults.append(fault)

    build(out, [Passage(f"p{n}", "bread", "of 10") for n in range(10)], force=True)
    reader = threading.Thread(target=reading)
    reader.start()
    for count in (11, 10, 11, 10, 11, 10):
        build(out, [Passage(f"p{n}", "bread", f"of {count}") for n in range(count)], force=True)
    ended.set()
    reader.join()
    assert not faults


# killed


class Killed(BaseException):
    """Ends a process where a signal would."""


def kill_at(monkeypatch, step: int) -> list[int]:
    """Let the step-th change of a name fail."""
    steps = [0]

    def killing(change):
        def changed(self, *given, **settings):
            steps[0] += 1
            if steps[0] == step:
                raise Killed
            return change(self, *given, **settings)

        return changed

    for name in ("rename", "unlink", "rmdir"):
        monkeypatch.setattr(Path, name, killing(getattr(Path, name)))
    return steps


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Encoder:
    return Encoder(save_encoder(tmp_path_factory.mktemp("encoder")))


def test_a_kill_while_parts_change_places_leaves_one_index_or_the_other(tmp_path, model, monkeypatch):
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"id": p.id, "text": p.text, "title": p.title}) + "\n" for p in passages(12)))
    old, new = tmp_path / "old", tmp_path / "new"
    build(new, passages(5))
    build_parts([source], old, counting, encoder=model)
    publish, wanted, kills = workshop._publish, {"old": answers(old), "new": answers(new)}, []
    for step in range(1, 30):
        out = shutil.copytree(old, tmp_path / f"killed-{step}")

        def publish_and_die(*places, step=step):
            with monkeypatch.context() as patch:
                kill_at(patch, step)
                publish(*places)

        with monkeypatch.context() as patch:
            patch.setattr(workshop, "_publish", publish_and_die)
            try:
                build_index(passages(5), out, sources=["test"], force=True)
            except Killed:
                kills.append(step)
        [which] = [name for name, expected in wanted.items() if answers(out) == expected]
        assert which == ("old" if step == 1 else "new")
        if kills[-1:] != [step]:
            assert sorted(path.name for path in out.iterdir()) == ["lucene", "manifest.json"]
            break
    assert len(kills) >= 6


@pytest.mark.parametrize("when", ["after BM25's part", "amid the dense part", "before the parts change places"])
def test_an_addition_to_both_parts_that_was_killed_is_continued(tmp_path, model, monkeypatch, when):
    first, more, out = tmp_path / "first.jsonl", tmp_path / "more.jsonl", tmp_path / "idx"
    for file, held in ((first, passages(15)), (more, passages(30)[15:])):
        file.write_text("".join(json.dumps({"id": p.id, "text": p.text, "title": p.title}) + "\n" for p in held))
    build_parts([first], out, counting, encoder=model)
    monkeypatch.setattr(dense_index, "_ROWS", 5)
    before, encode, calls = answers(out), Encoder.encode_passages, []

    def dying(self, given):
        calls.append(len(given))
        if len(given) > 1 and (when == "after BM25's part" or len(calls) > 2):
            raise Killed
        return encode(self, given)

    with monkeypatch.context() as patch:
        if when == "before the parts change places":
            patch.setattr(workshop, "_publish", lambda *_: (_ for _ in ()).throw(Killed))
        else:
            patch.setattr(Encoder, "encode_passages", dying)
        with pytest.raises(Killed):
            append_parts([more], out, counting)
    assert answers(out) == before
    with pytest.raises(InputError, match="begun and not finished"):
        append_parts([more], out, counting)
    append_parts([more], out, counting, resume=True)
    opened = open_retriever("hybrid", out)
    assert isinstance(opened, HybridRetriever)
    for part in (opened.sparse, opened.dense):
        assert sorted(p.id for p in part.passages()) == sorted(p.id for p in passages(30))

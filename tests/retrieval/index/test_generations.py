"""Generations of an index: two processes, names, and kills at moments that tests must choose."""

import shutil
import threading
from pathlib import Path

import pytest

from tests.retrieval.encoders import save_encoder
from tests.retrieval.index.test_index import WORDS, append, build, everything, passages
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.files.locks import lock_folder
from typedrag.retrieval import (
    BM25Retriever,
    Encoder,
    append_index,
    build_index,
    embed_index,
    open_retriever,
    read_manifest,
)
from typedrag.retrieval.index import dense_part, generations


def answers(out: Path) -> list[list[Passage]]:
    return open_retriever("auto", out).search(WORDS, 100)


def listing(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*"))


# two processes


def test_who_finds_another_at_work_touches_nothing_and_says_so(tmp_path):
    out, more = tmp_path / "idx", passages(20)[10:]
    build(out)
    before = listing(out)
    with lock_folder(out):
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


def test_a_first_build_by_another_process_is_waited_for(tmp_path):
    out, met = tmp_path / "idx", []

    def watched():
        yield passages(10)[0]
        with pytest.raises(RetrievalError) as refusal:
            open_retriever("bm25", out)
        met.append(str(refusal.value))
        yield from passages(10)[1:]

    build(out, watched())
    assert met[0].endswith("is being built by another process. Wait for it")


def test_an_index_is_searched_as_it_was_until_another_generation_is_whole(tmp_path):
    out = tmp_path / "idx"
    build(out, passages(50))
    held, before = BM25Retriever(out), everything(out)

    def watched(those):
        for passage in those:
            assert everything(out) == before and read_manifest(out).passages == 50
            yield passage

    append(out, watched(passages(60)[50:]))
    assert len(everything(out)[0]) > len(before[0])
    assert held.search(WORDS, 10_000) == before  # who has it open goes on with what it opened
    before = everything(out)
    build(out, (p for p in passages(9)), force=True)
    assert read_manifest(out).passages == 9 and everything(out) != before
    assert sorted(p.name for p in out.iterdir()) == ["current", "gen-3"]


# names and folders


@pytest.mark.parametrize("name", ["gen-1", "with space", "日本 é", "current", "building", "a/b/"])
def test_any_folder_can_be_an_index(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in (Path(name), Path(f"{tmp_path}/{name}-2/")):
        build(out)
        append(out, passages(12)[10:])
        assert read_manifest(out).passages == 12 and answers(out)
    Path("link").symlink_to(name)
    build(Path("link"), passages(5), force=True)
    assert read_manifest(Path(name)).passages == 5


@pytest.mark.parametrize("name", ["thesis.txt", "manifest.json", "gen-1/thesis.txt", "current"])
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_index_is_never_touched(tmp_path, name, force):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"name": "mine"}')
    with pytest.raises(InputError, match="holds something that is no index"):
        build(tmp_path, force=force)
    with pytest.raises(RetrievalError, match="is no index"):
        read_manifest(tmp_path)
    assert (tmp_path / name).read_text() == '{"name": "mine"}'


def test_other_files_of_an_index_s_folder_are_left(tmp_path):
    build(tmp_path / "idx")
    for name in ("NOTES", "gen-7/mine"):
        (tmp_path / "idx" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "idx" / name).write_text("mine")
    build(tmp_path / "idx", force=True)
    append(tmp_path / "idx", passages(12)[10:])
    assert listing(tmp_path / "idx")[0] == "NOTES" and (tmp_path / "idx/gen-7/mine").exists()
    assert read_manifest(tmp_path / "idx").passages == 12


def test_a_file_in_the_index_s_place_is_refused(tmp_path):
    (tmp_path / "idx").write_text("a file")
    with pytest.raises(InputError, match="idx is a file"):
        build(tmp_path / "idx", force=True)
    with pytest.raises(InputError, match="inner: Not a directory"):
        build(tmp_path / "idx" / "inner")


# killed


class Killed(BaseException):
    """Ends a process where a signal would."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Encoder:
    return Encoder(save_encoder(tmp_path_factory.mktemp("encoder")))


def test_a_kill_at_any_change_of_a_name_leaves_one_index_or_the_other(tmp_path, model, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    build(new, passages(5))
    build_index(passages(12), old, sources=["test"], encoder=model)
    wanted, kills = {"old": answers(old), "new": answers(new)}, []
    for step in range(1, 40):
        out, steps = shutil.copytree(old, tmp_path / f"killed-{step}"), [0]

        def killing(change, step=step, steps=steps):
            def changed(self, *given, **settings):
                steps[0] += self.name != ".lock"  # which the system releases after a kill
                if self.name != ".lock" and steps[0] >= step:  # nothing is changed after a kill
                    raise Killed
                return change(self, *given, **settings)

            return changed

        with monkeypatch.context() as patch:
            for name in ("rename", "replace", "unlink", "rmdir"):
                patch.setattr(Path, name, killing(getattr(Path, name)))
            patch.setattr(generations.shutil, "rmtree", killing(shutil.rmtree))
            try:
                build(out, passages(5), force=True)
            except Killed:
                kills.append(step)
        [which] = [name for name, expected in wanted.items() if answers(out) == expected]
        build(out, passages(5), force=True)
        assert answers(out) == wanted["new"]
        assert [p.name for p in out.iterdir() if p.name not in ("current", ".lock")] == [read_generation(out)]
        if kills[-1:] != [step]:
            assert which == "new"
            break
    assert len(kills) >= 4


def read_generation(out: Path) -> str:
    return (out / "current").read_text().strip()


@pytest.mark.parametrize("when", ["before anything is embedded", "amid the embeddings", "before it counts"])
@pytest.mark.parametrize("work", ["build", "append", "embed"])
def test_embeddings_of_an_interrupted_work_are_kept(tmp_path, model, monkeypatch, work, when):
    out, encode, calls = tmp_path / "idx", Encoder.encode_passages, []
    works = {
        "build": lambda **how: build_index(passages(30), out, sources=["test"], encoder=model, **how),
        "append": lambda **how: append_index(passages(30)[15:], out, sources=["more"], **how),
        "embed": lambda **how: embed_index(out, model),
    }
    if work != "build":
        encoder = model if work == "append" else None
        build_index(passages(15 if work == "append" else 30), out, sources=["test"], encoder=encoder)
        before = answers(out)
    monkeypatch.setattr(dense_part, "_ROWS", 5)

    def dying(self, given):
        calls.append([p.id for p in given])
        if len(given) > 1 and (when == "before anything is embedded" or sum(map(len, calls)) > 12):
            raise Killed
        return encode(self, given)

    with monkeypatch.context() as patch:
        if when == "before it counts":
            patch.setattr(generations, "write_text", lambda *_: (_ for _ in ()).throw(Killed))
        else:
            patch.setattr(Encoder, "encode_passages", dying)
        with pytest.raises(Killed):
            works[work]()
    if work == "build":
        with pytest.raises(RetrievalError, match=r"did not finish\. Continue it with: typedrag index build .*--resume"):
            answers(out)
    else:
        assert answers(out) == before
    if work != "build" and (work, when) != ("embed", "before anything is embedded"):
        with pytest.raises(InputError, match=r"begun and not finished\. Continue it with --resume, or give it up with"):
            append_index(passages(40)[35:], out, sources=["another"])
        with pytest.raises(InputError, match=r"another (kind|sources).*Continue it as it was begun"):
            append_index(passages(40)[35:], out, sources=["another"], resume=True)
    embedded = []

    def counting(self, given):
        embedded.extend(p.id for p in given)
        return encode(self, given)

    monkeypatch.setattr(Encoder, "encode_passages", counting)
    works[work](resume=True)
    missing = {"before anything is embedded": 30, "amid the embeddings": 20, "before it counts": 0}[when]
    missing -= 15 if work == "append" and missing else 0
    assert missing - 5 <= len(set(embedded)) <= missing + 1  # the first is looked at to know the model by
    hybrid = open_retriever("hybrid", out)
    for part in (hybrid.sparse, hybrid.dense):
        assert sorted(p.id for p in part.passages()) == sorted(p.id for p in passages(30))
    works[work](resume=True)  # there is nothing left to do


def test_work_that_is_given_up_is_forgotten(tmp_path, model, monkeypatch):
    out = tmp_path / "idx"
    build_index(passages(15), out, sources=["test"], encoder=model)
    with monkeypatch.context() as patch:
        patch.setattr(dense_part, "_ROWS", 5)
        patch.setattr(generations, "write_text", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            append_index(passages(30)[15:], out, sources=["more"])
    append_index(passages(40)[35:], out, sources=["another"], force=True)
    hybrid = open_retriever("hybrid", out)
    for part in (hybrid.sparse, hybrid.dense):
        assert sorted(p.id for p in part.passages()) == sorted(p.id for p in [*passages(15), *passages(40)[35:]])


def test_whoever_opens_while_generations_change_sees_one_of_them(tmp_path):
    out = tmp_path / "idx"
    ended, faults = threading.Event(), []

    def reading():
        while not ended.is_set():
            try:
                opened = open_retriever("bm25", out)
                assert opened.search(["bread"], 100)[0][0].title == f"of {opened.manifest.passages}"
            except Exception as fault:
                faults.append(fault)

    build(out, [Passage(f"p{n}", "bread", "of 10") for n in range(10)])
    reader = threading.Thread(target=reading)
    reader.start()
    for count in (11, 10, 11, 10, 11, 10):
        build(out, [Passage(f"p{n}", "bread", f"of {count}") for n in range(count)], force=True)
    ended.set()
    reader.join()
    assert not faults

import json
import os
from pathlib import Path

import pytest

from typedrag.core.errors import InputError
from typedrag.programs import artifact as json_folder
from typedrag.programs.artifact import has_file, read_json, write_files

PARTS = {"head.json": {"format": 1}, "state.json": {"a": [1, None, "Größe"]}}


def listing(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def test_a_folder_of_the_kind_is_replaced_and_leaves_nothing(tmp_path):
    folder = tmp_path / "b"
    (tmp_path / "b").mkdir()
    write_files(folder, {**PARTS, "old.json": 1})
    with pytest.raises(InputError, match="holds something else"):
        write_files(folder, PARTS)  # a part that this kind of folder does not have
    (folder / "old.json").unlink()
    (folder / "state.json").write_text("torn {")
    write_files(folder, PARTS)
    assert {name: read_json(folder, name, "x") for name in PARTS} == PARTS
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize(
    "held",
    [
        {"notes.txt": "mine"},
        {"head.json": '{"format": 1}', "notes.txt": "mine"},
        {"head.json": "[1]"},
        {"head.json": "3"},
        {"head.json": "not JSON"},
        {"state.json": "{}"},
        {"head.json": '{"format": 1}', "deep/notes.txt": "mine"},
    ],
)
def test_a_folder_that_holds_anything_else_is_left_alone(tmp_path, held):
    folder = tmp_path / "b"
    for name, text in held.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = listing(tmp_path)
    with pytest.raises(InputError, match="holds something else than a compiled program"):
        write_files(folder, PARTS)
    assert listing(tmp_path) == before
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        write_files(file, PARTS)
    with pytest.raises(InputError, match="cannot be written"):
        write_files(file / "below", PARTS)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("failing", ["fsync", "rename", "rename new"])
def test_a_fault_leaves_what_was_there(tmp_path, monkeypatch, failing):
    folder = tmp_path / "b"
    write_files(folder, PARTS)
    rename = Path.rename

    def fail(*arguments):
        if failing == "rename new" and not arguments[0].name.endswith(".part"):
            return rename(*arguments)
        raise OSError(28, "No space left on device")

    target = (os, "fsync") if failing == "fsync" else (Path, "rename")
    with monkeypatch.context() as patch:
        patch.setattr(*target, fail)
        with pytest.raises(InputError, match="cannot be written"):
            write_files(folder, {**PARTS, "state.json": "new"})
    assert {name: read_json(folder, name, "x") for name in PARTS} == PARTS
    assert names(tmp_path) == ["b"]


def test_half_of_a_surrogate_pair_is_no_reason_to_lose_a_program(tmp_path):
    write_files(tmp_path / "b", {"head.json": {"a\ud83d": "\ud83d", "b": "\ud83d\ude00"}})
    assert read_json(tmp_path / "b", "head.json", "x") == {"a\ufffd": "\ufffd", "b": "😀"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "is not JSON"),
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"cos\nsystem\n(S'x'\ntR.", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[" * 5000 + b"]" * 5000, "is not JSON"),
        (b"9" * 10_000, "is not JSON"),
        (b'"\\ud800"', "is not JSON"),
        (b"NaN", "is not JSON"),
    ],
)
def test_a_stranger_s_file_is_refused_in_a_line(tmp_path, data, said):
    (tmp_path / "head.json").write_bytes(data)
    with pytest.raises(InputError, match=said) as refused:
        read_json(tmp_path, "head.json", "the program")
    assert str(refused.value).startswith("the program: head.json")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_too_large_a_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(json_folder, "MOST_BYTES", 1000)
    (tmp_path / "head.json").write_text(json.dumps("x" * 998))
    assert read_json(tmp_path, "head.json", "x") == "x" * 998
    (tmp_path / "head.json").write_text(json.dumps("x" * 999))
    with pytest.raises(InputError, match="has more than"):
        read_json(tmp_path, "head.json", "x")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="lacks its part"):
        read_json(tmp_path, "endless.json", "x")


def test_what_is_no_file_is_a_missing_part(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("pipe.json", "folder.json", "none.json", "x" * 5000, "a\0b"):
        assert not has_file(tmp_path, name)
        with pytest.raises(InputError, match="lacks its part"):
            read_json(tmp_path, name, "x")


def test_all_texts_are_redacted(tmp_path):
    write_files(
        tmp_path / "b", {"head.json": {"k-secret": ["secret", {"x": "a secret"}]}}, lambda t: t.replace("secret", "…")
    )
    assert read_json(tmp_path / "b", "head.json", "x") == {"k-…": ["…", {"x": "a …"}]}


def test_a_link_stays_a_link(tmp_path):
    write_files(tmp_path / "real", PARTS)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_files(tmp_path / "link", {**PARTS, "state.json": 2})
    assert (tmp_path / "link").is_symlink()
    assert read_json(tmp_path / "real", "state.json", "x") == 2

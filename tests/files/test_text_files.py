"""Files on a disk that is full: what was there stays."""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from typedrag.core.errors import InputError, StorageFull, path_error
from typedrag.files.text_files import write_text
from typedrag.runs import Result, RunFolder


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Let the system refuse to write beyond so many bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_cannot_be_written_whole_stays_as_it_was_and_is_named(tmp_path):
    file = tmp_path / "results.json"
    write_text(file, "before")
    with no_file_above(1_000), pytest.raises(OSError, match="File too large") as refused:
        write_text(file, "after " * 1_000)
    assert refused.value.filename == str(file) and isinstance(path_error(file, refused.value), StorageFull)
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_of_two_writers_at_once_one_file_is_whole(tmp_path):
    file = tmp_path / "page.md"
    texts = [letter * 1_000_000 for letter in "ab"]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            list(pool.map(lambda text: write_text(file, text), texts))
            assert file.read_text() in texts
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_is_none_is_bad_input(tmp_path):
    with pytest.raises(OSError, match="No such file") as refused:
        write_text(tmp_path / "nosuch" / "page.md", "")
    assert isinstance(path_error("page.md", refused.value), InputError)


def test_a_run_on_a_full_disk_keeps_what_it_has_and_goes_on_where_there_is_room(tmp_path):
    how = {"kind": "evaluation", "items": {"q0": {}, "q1": {}}}
    with RunFolder.open(tmp_path / "run", {}, resume=False, **how) as run:
        run.store.add(Result("q0", "answers", "first"))
        with no_file_above(100_000), pytest.raises(StorageFull, match=r"run\.sqlite cannot be written: .*--resume"):
            run.store.add(Result("q1", "answers", "x" * 1_000_000))
    with RunFolder.open(tmp_path / "run", {}, resume=True, **how) as run:
        run.store.add(Result("q1", "answers", "second"))
        assert [result.value for result in run.store.read().results] == ["first", "second"]

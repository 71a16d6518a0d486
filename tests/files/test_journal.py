import pytest

from typedrag.core.errors import InputError
from typedrag.files.text_files import Journal


def test_what_a_kill_cut_off_is_passed_over_and_gives_way_to_the_next_line(tmp_path):
    path = tmp_path / "journal"
    path.write_text('{"n": 1}\n{"n": 2')
    journal = Journal(path)
    assert list(journal) == [{"n": 1}]
    assert path.read_text() == '{"n": 1}\n{"n": 2'  # who only reads changes nothing
    journal.append({"n": "ä"})
    journal.append({"n": 4})
    assert path.read_text("utf-8") == '{"n": 1}\n{"n": "ä"}\n{"n": 4}\n'
    assert list(Journal(path)) == [{"n": 1}, {"n": "ä"}, {"n": 4}]


def test_a_file_that_is_no_journal_is_named_with_its_line(tmp_path):
    (tmp_path / "journal").write_text('{"n": 1}\nnotes\n')
    with pytest.raises(InputError, match=r"journal, line 2 is not as it was written"):
        list(Journal(tmp_path / "journal"))


def test_keys_are_not_written(tmp_path):
    Journal(tmp_path / "journal", lambda line: line.replace("sk-1", "[hidden]")).append({"why": "sk-1"})
    assert list(Journal(tmp_path / "journal")) == [{"why": "[hidden]"}]

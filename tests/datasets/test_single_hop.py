import pytest

from tests.builders.native import publish
from tests.datasets.files import write_jsonl
from typedrag.core.errors import InputError
from typedrag.datasets.open_domain import SingleHop, read_single_hop


def plain(single: SingleHop) -> tuple:
    return single.question, single.answer, single.entity


def test_every_layout_is_read(tmp_path):
    files = publish(tmp_path)
    assert [plain(s) for s in read_single_hop(files["nq"])] == [("where is leeds", "England", "")]
    assert [plain(s) for s in read_single_hop(files["commonsense"])] == [("Where would you sit down?", "", "")]
    [dpr] = read_single_hop(files["dpr"])
    assert plain(dpr) == ("who built the eiffel tower", "Gustave Eiffel", "")
    assert [p.id for p in dpr.relevant] == ["7"] and [p.id for p in dpr.noise] == ["9"]
    squad = list(read_single_hop(files["squad"]))
    assert [s.entity for s in squad] == ["Forth Bridge"] * 3 + ["Steel"]
    assert squad[0].relevant == squad[2].relevant != squad[3].relevant


def test_a_row_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"own.jsonl, line 1 cannot be used: question"):
        list(read_single_hop(write_jsonl(tmp_path / "own.jsonl", {"query": "Why?"})))

from __future__ import annotations

import pytest

from tests.contract.write import PARTS, make_part, part_file


@pytest.mark.parametrize("part", PARTS)
def test_what_users_rely_on_is_as_it_was(part):
    same = make_part(part) == part_file(part).read_text("utf-8")
    assert same, f"the contract has changed: run python -m tests.contract.write {part} and look at the diff"

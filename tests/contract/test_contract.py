import difflib
import itertools

import pytest

from tests.contract.write import PARTS, make_part, part_file

LINES = 40
"""How many of a difference are shown."""


@pytest.mark.parametrize("part", PARTS)
def test_what_users_rely_on_is_as_it_was(part):
    before, now = part_file(part).read_text("utf-8").splitlines(), make_part(part).splitlines()
    difference = "\n".join(itertools.islice(difflib.unified_diff(before, now, lineterm="", n=1), LINES))
    hint = f"the contract has changed: run python -m tests.contract.write {part} and look at the diff"
    assert not difference, f"{hint}\n{difference}"

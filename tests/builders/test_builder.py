from __future__ import annotations

from typedrag.builders.builder import part_by_hash


def test_parts_have_their_shares():
    parts = [part_by_hash(f"question {n}", 0, validation=0.2, test=0.1) for n in range(2000)]
    assert abs(parts.count("validation") / 2000 - 0.2) < 0.03 and abs(parts.count("test") / 2000 - 0.1) < 0.03
    assert part_by_hash("x", 0, validation=0, test=0) == "train"

from __future__ import annotations

import pytest

from typedrag.metrics.defects import contradictions

POWER = "What is the difference between nuclear power and wind power?"
LIVING = "What are the differences between living in the city and living in the country?"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Nuclear power is safer than wind power. Wind power is safer than nuclear power.", ""),
        ("Nuclear power is generally safer and cleaner. It is steady. Wind power is safer.", POWER),
        ("The city is more expensive and crowded, while the country is more expensive and less crowded.", LIVING),
        ("The city is more expensive. Living is loud there. The city is less expensive.", ""),
        ("Nuclear power is cheaper than wind power. Wind power is cheaper because it has no fuel.", POWER),
        ("Nuclear power produces more waste. Wind power produces more waste.", POWER),
        ("Yeast makes the dough rise. Yeast does not make the dough rise.", ""),
        ("You can eat the leaves. You cannot eat the leaves.", ""),
        ("The tower is 300 metres high. It was built by Eiffel. The tower is 324 metres high.", ""),
        ("Heat flows from cold to hot. Heat flows from hot to cold.", ""),
        ("核能比风能更安全。风能比核能更安全。", ""),
        ("这座塔高300米。这座塔高324米。", ""),
        ("这种蘑菇有毒。这种蘑菇没有毒。", ""),
        ("Die Hefe macht das Brot locker. Die Hefe macht das Brot nicht locker.", ""),
        ("Дрожжи делают тесто пышным. Дрожжи не делают тесто пышным.", ""),
        ("खमीर गैस बनाता है। खमीर गैस नहीं बनाता है।", ""),
    ],
)
def test_sentences_that_exclude_each_other(text: str, question: str) -> None:
    ((first, second),) = contradictions(text, question)
    assert text.startswith(first) and text.endswith(second)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("", ""),
        ("Nuclear power is safer than wind power. Wind power is less safe than nuclear power.", POWER),
        ("Nuclear power is safer in winter. Wind power is safer in summer.", POWER),
        ("Nuclear power is cheaper than coal. Wind power is cheaper than coal.", POWER),
        ("Cats are cheaper. Hamsters are cheaper.", "Which makes the better pet, a cat or a dog?"),
        ("Nuclear power is safer than wind power. Nuclear power is safer than wind power.", POWER),
        ("Green tea is made from leaves. Black tea is made from leaves.", "What do green tea and black tea share?"),
        ("Cats and dogs make good pets. Dogs and cats make good pets.", ""),
        ("猫和狗都很可爱。狗和猫都很可爱。", ""),
        ("Is yeast alive in the dough? Yeast is not alive in the dough.", ""),
        ("1. Fill 2 cups with water. 2. Fill 2 cups with water.", ""),
        ("In 1990 he won the prize. In 1994 he won the prize.", ""),
        ("It takes 8 to 15 years. It takes 10 to 12 years.", ""),
        ("Nuclear power is water. Wind power is water.", POWER),
    ],
)
def test_sentences_that_may_both_be_true(text: str, question: str) -> None:
    assert contradictions(text, question) == []

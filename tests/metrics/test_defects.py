import dspy
import pytest

from typedrag.core.errors import InputError, Unavailable
from typedrag.core.records import CUT_OFF, Passage
from typedrag.metrics import build_metric
from typedrag.metrics.defects import contradictions
from typedrag.signatures.judging import SupportVerdict

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


QUESTION = "Is nuclear power or wind power safer?"
PASSAGES = (
    Passage("power-1", "Nuclear power makes electricity from the heat of split uranium."),
    Passage("power-2", "Wind farms may kill birds and bats."),
    Passage("cats-1", "Cats wash themselves."),
)


GOOD = "Wind farms kill birds. Uranium is split for heat."
TWICE = f"{GOOD} Uranium is split for heat."
BOTH = "Nuclear power is safer. Wind power is safer."
EXCLUDED = "It says «Nuclear power is safer.» and «Wind power is safer.», which exclude each other."
ITSELF = "Nuclear power is safer, while wind power is safer."


@pytest.mark.parametrize(
    ("answer", "citations", "fallback", "found", "feedback"),
    [
        (GOOD, ("power-1", "power-2"), "", [0, 0, 0, 0], ""),
        (TWICE, ("power-1",), "", [1, 0, 0, 0], "It says again: «Uranium is split for heat.»."),
        (BOTH, (), "", [0, 1, 0, 0], EXCLUDED),
        (ITSELF, (), "", [0, 1, 0, 0], f"It contradicts itself in «{ITSELF}»."),
        (GOOD, ("power-2", "cats-1"), "", [0, 0, 1, 0], "It cites, and uses nothing of: cats-1."),
        ("The sun is hot.", ("cats-1",), "", [0, 0, 1, 0], "It cites, and uses nothing of: cats-1."),
        ("Windräder töten Vögel und Fledermäuse.", ("power-2",), "", [0, 0, 0, 0], ""),
        (GOOD, (), f"step 'answer': {CUT_OFF}, 512; and so on", [0, 0, 0, 1], "A reply was cut off before its end."),
        (GOOD, (), "step 'decompose' failed", [0, 0, 0, 0], ""),
    ],
)
def test_faults_are_counted(answer, citations, fallback, found, feedback) -> None:
    prediction = dspy.Prediction(answer=answer, citations=citations, passages=PASSAGES, fallback=fallback)
    scored = build_metric("defects")(dspy.Example(question=QUESTION), prediction)
    names = ["repeated_sentences", "contradictions", "unused_citations", "cut_off"]
    assert scored.measures == dict(zip(names, found, strict=True))
    assert (scored.score, scored.feedback) == (1 / (1 + sum(found)), feedback)


def test_a_model_may_tell_contradictions() -> None:
    class Grudging:
        """Says that what follows is excluded by the sentence with an elephant."""

        def verdicts(self, question, sentences, sources):
            excluded = SupportVerdict.CONTRADICTED if "elephant" in sources[0] else SupportVerdict.NOT_STATED
            return [excluded] * len(sentences)

    text = "Cats purr. An elephant is large. An elephant is tiny. Dogs bark."
    large, tiny, dogs = "An elephant is large.", "An elephant is tiny.", "Dogs bark."
    assert contradictions(text, support=Grudging()) == [(large, tiny), (large, dogs)]
    assert contradictions("", support=Grudging()) == []


def test_who_tells_contradictions_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match="'lm' is no way to find contradictions"):
        build_metric("defects", make="lm")
    nowhere = build_metric("defects", make=f"nli:{tmp_path / 'nowhere'}")
    with pytest.raises(Unavailable, match="nowhere"):
        nowhere(dspy.Example(question=QUESTION), dspy.Prediction(answer=BOTH))

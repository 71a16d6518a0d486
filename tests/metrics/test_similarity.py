from collections import Counter
from itertools import pairwise
from pathlib import Path

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.tokenizers import DefaultTokenizer

from typedrag.core.errors import InputError, RetrievalError, TypedRAGError
from typedrag.core.records import Reference
from typedrag.lms import models
from typedrag.metrics import build_metric
from typedrag.metrics.similarity import KINDS, BERTScore, _Tokenizer, bertscore, com_rouge, cosine, rouge


@pytest.fixture(scope="module", autouse=True)
def minilm() -> Path:
    """A small model that can be had offline, as a folder."""
    return models.fetch("all-minilm-l6-v2")


def test_it_is_the_cosine_of_the_models_embeddings() -> None:
    from sentence_transformers import SentenceTransformer

    one, other = "Why do leaves turn red?", "Because chlorophyll breaks down in autumn."
    model = SentenceTransformer(str(models.MODELS["all-minilm-l6-v2"].path))
    expected = float(model.similarity(model.encode(one), model.encode(other))[0, 0])
    assert cosine(one, other) == pytest.approx(expected, abs=1e-4)
    assert cosine(one, other) == pytest.approx(cosine(other, one), abs=1e-4)


def test_answers_to_the_question_and_good_ones_are_nearer() -> None:
    example = dspy.Example(
        question="Why do leaves turn red in autumn?",
        references=(
            Reference("Trees stop making green chlorophyll, so other pigments show.", 3),
            Reference("Red pigments are made anew in autumn.", 3),
            Reference("The bank raised its rates.", 0),
        ),
    )
    metric = build_metric("similarity")
    good = metric(example, dspy.Prediction(answer="Leaves lose chlorophyll, and red pigments show."))
    bad = metric(example, dspy.Prediction(answer="The bank raised its rates."))
    assert good.score > bad.score + 0.3
    assert good.measures["reference"] > bad.measures["reference"] + 0.3
    assert good.measures["reference"] == pytest.approx(good.score)


@pytest.mark.parametrize(("name", "error"), [("similarity", RetrievalError), ("bertscore", TypedRAGError)])
def test_a_model_that_is_not_there_is_named(name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="nowhere"):
        build_metric(name, model="/nowhere")(dspy.Example(question="Why?", answers=("a",)), dspy.Prediction(answer="b"))


ENGLISH = "Don't re-used snake_cases, 3 'ties' SKIES: (agreed) 4th".split()
words = st.lists(st.sampled_from(["sky", "sun", "red", "leaf", "day"]), min_size=1, max_size=12)


def _lcs(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return 0
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(words, words)
def test_rouge_is_what_its_definition_says(text: list[str], reference: list[str]) -> None:
    pairs = [Counter(pairwise(side)) for side in (text, reference)]
    common, longest = (pairs[0] & pairs[1]).total(), _lcs(text, reference)
    both = " ".join(text), " ".join(reference)
    recall, precision, f = rouge(*both, "recall"), rouge(*both, "precision"), rouge(*both)
    assert recall["rougeL"] == pytest.approx(longest / len(reference))
    assert precision["rougeL"] == pytest.approx(longest / len(text))
    assert f["rougeL"] == pytest.approx(2 * longest / (len(text) + len(reference)))
    assert recall["rouge2"] == pytest.approx(common / max(len(reference) - 1, 1))
    assert precision["rouge2"] == pytest.approx(common / max(len(text) - 1, 1))


@given(words, st.lists(words, min_size=1, max_size=4), st.randoms())
def test_com_rouge_is_bounded_whatever_the_order(text: list[str], answers: list[list[str]], random) -> None:
    said, wanted = " ".join(text), [" ".join(a) for a in answers]
    values = com_rouge(said, wanted)
    assert values == pytest.approx(com_rouge(said, random.sample(wanted, len(wanted))))
    alone = [rouge(said, a, "recall") for a in wanted]
    for kind in KINDS:
        assert min(a[kind] for a in alone) - 1e-9 <= values[kind] <= max(a[kind] for a in alone) + 1e-9


def test_the_longer_sub_answer_counts_more() -> None:
    short, long = "red leaves fall", "the days grow shorter in late autumn now and then"
    assert com_rouge(short, [short, long])["rouge2"] == pytest.approx(3 / 13)
    assert com_rouge(long, [short, long])["rouge2"] == pytest.approx(10 / 13)
    assert com_rouge(f"{short} {long}", [short, long]) == {"rouge2": 1, "rougeL": 1}
    with pytest.raises(ValueError, match="no sub-answer"):
        com_rouge("text", [" "])


def test_the_best_reference_counts_for_each_kind_by_itself() -> None:
    text = "red leaves fall slowly"
    one, other = "red leaves seldom slowly", "leaves fall today"
    found = build_metric("rouge")(dspy.Example(answers=(one, other)), dspy.Prediction(answer=text)).measures
    assert found == {k: max(rouge(text, one)[k], rouge(text, other)[k]) for k in KINDS}


@given(st.lists(st.sampled_from(ENGLISH) | st.text(st.characters(max_codepoint=127))), st.booleans())
def test_what_is_a_word_in_english_is_so_still(parts: list[str], stemmer: bool) -> None:
    text = " ".join(parts)
    assert _Tokenizer(stemmer).tokenize(text) == DefaultTokenizer(stemmer).tokenize(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Небо — синее, 2 раза!", ["небо", "синее", "2", "раза"]),
        ("Cafe\N{COMBINING ACUTE ACCENT} «GRÖẞE» 5 m² ❤️", ["café", "größe", "5", "m2"]),
        ("السماء زرقاء، اليوم", ["السماء", "زرقاء", "اليوم"]),
        ("हिन्दी में।", ["हिन्दी", "में"]),
        ("天空是蓝色。BBC台3", ["天", "空", "是", "蓝", "色", "bbc", "台", "3"]),
        ("スープは", ["ス", "ー", "プ", "は"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("하늘은 파랗다", ["하늘은", "파랗다"]),
    ],
)
def test_words_are_of_any_script(text: str, expected: list[str]) -> None:
    assert _Tokenizer(stemmer=False).tokenize(text) == expected
    assert rouge(text, text) == {"rouge2": 1, "rougeL": 1}


def test_stemming_makes_forms_of_a_word_equal() -> None:
    assert rouge("leaves falling", "leaf falls") == {"rouge2": 0, "rougeL": 0}
    assert rouge("trees falling", "tree falls", stemmer=True) == {"rouge2": 1, "rougeL": 1}


def test_the_metrics() -> None:
    example = dspy.Example(
        question="q?",
        references=(Reference("leaves turn red in autumn", 3), Reference("no idea", 0)),
        sub_answers=("leaves turn red", "days grow shorter"),
    )
    answer = dspy.Prediction(answer="Leaves turn red in autumn.")
    plain = build_metric("rouge")(example, answer)
    assert plain.score == 1 and plain.measures == {"rouge2": 1, "rougeL": 1}
    com = build_metric("com-rouge")(example, answer)
    assert com.measures == {"rouge2": 0.5, "rougeL": 0.5} and com.score == 0.5
    assert "days grow shorter" in com.feedback


def test_alike_texts_score_higher(minilm: Path) -> None:
    reference = ["In autumn leaves turn red and yellow."]
    same = bertscore(reference[0], reference, str(minilm))
    near = bertscore("Foliage becomes red or yellow in the fall.", reference, str(minilm))
    far = bertscore("The bank raised its interest rates twice.", reference, str(minilm))
    assert same == pytest.approx({"precision": 1, "recall": 1, "f1": 1}, abs=1e-4)
    assert 1 > near["f1"] > far["f1"] + 0.1


def test_it_is_greedy_matching_of_tokens(minilm: Path) -> None:
    """Against the definition of Zhang et al. (2020), computed with the model itself."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()

    def embed(text: str) -> np.ndarray:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        return states / np.linalg.norm(states, axis=1, keepdims=True)

    text, reference = "leaves turn red", "in autumn the leaves of trees are red"
    cosines = embed(text) @ embed(reference).T
    # bert-score lets tokens match the marks of begin and end, which do not count themselves
    precision, recall = cosines.max(axis=1)[1:-1].mean(), cosines.max(axis=0)[1:-1].mean()
    expected = {"precision": precision, "recall": recall, "f1": 2 * precision * recall / (precision + recall)}
    assert bertscore(text, [reference], str(minilm)) == pytest.approx(expected, abs=1e-4)


def test_the_metric_takes_the_best_of_the_gold_answers(minilm: Path) -> None:
    example = dspy.Example(answers=("The bank raised its rates.", "Leaves turn red."))
    scored = build_metric("bertscore", model="all-minilm-l6-v2")(example, dspy.Prediction(answer="Leaves turn red."))
    assert scored.score == pytest.approx(1, abs=1e-4) and tuple(scored.measures) == BERTScore.measures


@pytest.mark.parametrize(
    ("text", "rouge2", "rouge_l"),
    [
        ("a b a b", 1 / 2, 2 / 3),  # of the reference's ab and bc, and of a, b and c; each counts once
        ("A B C", 0, 0),  # case counts
        ("a b, c", 0, 2 / 3),  # "b," is another word
        ("c. a b", 1 / 2, 1),  # a sentence ends at each period, and ROUGE-L takes what any of them shares
        (". .", 0, 0),
    ],
)
def test_the_package_rouge_counts_by_its_own_rules(text, rouge2, rouge_l):
    assert rouge(text, "a b c", "recall", package="rouge") == pytest.approx({"rouge2": rouge2, "rougeL": rouge_l})


def test_the_metrics_count_by_the_package_that_is_named():
    example = dspy.Example(answers=("a b c",), sub_answers=("a b c", "d e f g h"))
    answer = dspy.Prediction(answer="a b a b")
    assert build_metric("rouge")(example, answer).measures == pytest.approx({"rouge2": 0.4, "rougeL": 4 / 7})
    named = build_metric("rouge", package="rouge")(example, answer)
    assert named.measures == pytest.approx({"rouge2": 0.5, "rougeL": 0.8})
    com = build_metric("com-rouge", package="rouge")(example, answer)
    assert com.measures == pytest.approx({"rouge2": 3 / 16, "rougeL": 1 / 4})
    with pytest.raises(InputError, match="no stemmer"):
        build_metric("rouge", package="rouge", stemmer=True)
    with pytest.raises(InputError, match="package"):
        build_metric("rouge", package="sacrerouge")

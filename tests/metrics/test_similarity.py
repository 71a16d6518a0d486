from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest

from typedrag.core.errors import RetrievalError
from typedrag.core.records import Reference
from typedrag.lms import models
from typedrag.metrics import build_metric
from typedrag.metrics.similarity import cosine


@pytest.fixture(scope="module", autouse=True)
def _minilm() -> None:
    models.fetch("all-minilm-l6-v2")


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


def test_without_references_there_is_no_measure_of_them() -> None:
    scored = build_metric("similarity")(dspy.Example(question="Why?"), dspy.Prediction(answer=""))
    assert scored.score == 0 and scored.measures == {"question": 0}


def test_many_threads_share_one_model() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: cosine("red leaves", f"leaf {i % 2}"), range(16)))
    assert found[::2] == [found[0]] * 8 and found[1::2] == [found[1]] * 8


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(RetrievalError, match="nowhere"):
        build_metric("similarity", model="/nowhere")(dspy.Example(question="Why?"), dspy.Prediction(answer="So."))

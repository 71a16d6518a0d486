from math import exp

import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.core.errors import InputError, RetrievalError
from typedrag.lms import models
from typedrag.lms.lm import use_lm
from typedrag.retrieval import rerankers
from typedrag.retrieval.local_models import LogisticModel, local_model
from typedrag.signatures.sub_question_coverage import FindAnswers
from typedrag.sub_questions.coverage_judge import (
    WEIGHTS,
    CascadeCoverageJudge,
    CoverageJudge,
    SentenceCoverageJudge,
    SimilarityCoverageJudge,
    build_coverage_judge,
)
from typedrag.sub_questions.evidence import FEATURES, Evidence, find_evidence, find_kind

TEXT = (
    "Shakespeare wrote his plays in London. He coined around 1,700 words that are still used. "
    "His sonnets speak of love and of death."
)
COVERED = "How many words did Shakespeare coin?"
OPEN = "How do theater companies stage the plays today?"


@pytest.fixture(scope="module", autouse=True)
def _minilm() -> None:
    models.fetch("all-minilm-l6-v2")


def test_similarity_tells_what_is_covered_and_where_without_an_lm():
    covered, left_open = SimilarityCoverageJudge()(text=TEXT, sub_questions=[COVERED, OPEN]).verdicts
    assert covered.answered and covered.probability > 0.5 and not covered.invalid
    assert "coined around 1,700 words" in covered.fragment
    assert covered.position in (1 / 23, 7 / 23)  # the fragment begins with the first or with the second sentence
    assert not left_open.answered and left_open.fragment == "" and left_open.position is None
    assert left_open.probability < 0.5


def test_evidence_is_of_the_nearest_sentences_and_of_shared_words():
    [found] = find_evidence("Yeast makes gas. Cats purr. The bank raised its rates.", ("Which gas does yeast make?",))
    assert found.fragment == "Yeast makes gas. Cats purr."
    assert found.sentence > found.two_sentences > found.text > 0
    assert found.words == 1 and found.kind == 0
    [alone] = find_evidence("Yeast makes gas", ("Who keeps a cat?",))
    assert (alone.fragment, alone.words, alone.kind) == ("Yeast makes gas", 0, -1)
    assert alone.sentence == pytest.approx(alone.two_sentences, abs=1e-6)


@pytest.mark.parametrize(
    ("asked", "text", "kind"),
    [
        ("How long do nutrients last?", "For several months.", 1),
        ("How long do nutrients last?", "They do not last.", -1),
        ("When was it built?", "It was built in 1890.", 1),
        ("When was it built?", "Masons built it.", -1),
        ("Who built it?", "It was built by Anna Roebling.", 1),
        ("Who built it?", "Masons built it.", -1),
        ("Why does bread rise?", "It rises due to gas.", 1),
        ("Why does bread rise?", "It rises.", -1),
        ("What is yeast?", "In 1890 Anna had 3, because.", 0),
    ],
)
def test_the_kind_that_is_asked_for(asked, text, kind):
    assert find_kind(asked, text) == kind


def test_a_cascade_asks_the_lm_only_where_similarity_is_unsure():
    sure, unsure = (v.probability for v in SimilarityCoverageJudge()(text=TEXT, sub_questions=[OPEN, COVERED]).verdicts)
    lm, engine = scripted_judge(
        {FindAnswers: {"verdicts": {"q1": {"fragment": "His sonnets speak of love", "answered": True}}}}
    )
    between = (abs(sure - 0.5) + abs(unsure - 0.5)) / 2
    asked, kept = (COVERED, OPEN) if abs(unsure - 0.5) < between else (OPEN, COVERED)
    with use_lm(lm):
        first, second = CascadeCoverageJudge(unsure=between)(text=TEXT, sub_questions=[asked, kept]).verdicts
    assert len(engine.prompts) == 1 and asked in engine.prompts[0][1] and kept not in engine.prompts[0][1]
    assert first.answered and first.fragment == "His sonnets speak of love"
    of_similarity = unsure if asked is COVERED else sure
    assert first.probability == pytest.approx((of_similarity + 1) / 2)
    assert second.answered == (kept is COVERED)


def test_ways_of_citing():
    kinds = {c: type(build_coverage_judge(c)) for c in ("similarity", "cascade", "sentences", "words")}
    assert list(kinds.values()) == [
        SimilarityCoverageJudge,
        CascadeCoverageJudge,
        SentenceCoverageJudge,
        CoverageJudge,
    ]
    assert isinstance(build_coverage_judge(), SimilarityCoverageJudge)
    with pytest.raises(InputError, match="cannot cite 'pages'"):
        build_coverage_judge("pages")


def test_without_the_model_it_is_said_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path))
    monkeypatch.setattr(rerankers, "_shared", local_model(rerankers.open_reranker))
    with pytest.raises(RetrievalError, match="typedrag models fetch all-minilm-l6-v2"):
        SimilarityCoverageJudge()(text=TEXT, sub_questions=[COVERED])


def test_the_probability_is_the_logistic_of_the_weighed_evidence():
    weights = LogisticModel(intercept=-2.0, weights={**dict.fromkeys(FEATURES, 0.0), "words": 3.0, "kind": 0.5})
    evidence = Evidence("", sentence=0.9, two_sentences=0.9, text=0.9, words=0.5, kind=1.0)
    assert weights.probability(evidence.features) == pytest.approx(1 / (1 + exp(-(-2 + 1.5 + 0.5))))
    assert set(LogisticModel.load(WEIGHTS).weights) == set(FEATURES)

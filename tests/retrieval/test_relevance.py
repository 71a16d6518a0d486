import copy

import pytest

from tests.retrieval.berts import save_bert
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.records import Passage, fallbacks, total_usage
from typedrag.lms import models
from typedrag.lms.trace import collect_steps, limit_calls, reserve_calls
from typedrag.retrieval.local_models import LogisticModel
from typedrag.retrieval.relevance_filter import (
    CascadeFilter,
    Features,
    LMFilter,
    RelevanceFilter,
    ScoreFilter,
    SetFilter,
    build_relevance_filter,
    compute_features,
)

PASSAGES = [Passage(f"p{n}", f"number {n} of five", score=5.0 - n) for n in range(5)]
QUESTION = "Why does bread rise?"


class Known(RelevanceFilter):
    """Knows its probabilities by the number of the passage."""

    def __init__(self, *probabilities: float | None, threshold: float = 0.2) -> None:
        super().__init__(threshold)
        self.known = probabilities

    def probabilities(self, query, passages):
        return [*self.known]


def lm_filter(words: int = 100) -> LMFilter:
    return LMFilter(0.2, passage_words=words, retries=0)


def ids(passages) -> list[str]:
    return [p.id for p in passages]


def verdicts(*relevant: bool) -> dict:
    return {s.JudgePassages: {"relevant": {f"p{n}": verdict for n, verdict in enumerate(relevant, 1)}}}


def test_what_is_less_probable_than_the_threshold_does_not_pass_and_the_step_says_so():
    with collect_steps() as steps:
        kept = Known(0.9, 0.19, 0.2, None, 0.0).relevant(QUESTION, PASSAGES)
    assert kept == [PASSAGES[0], PASSAGES[2], PASSAGES[3]]
    [step] = steps
    assert (step.name, step.input, step.output) == ("relevance", QUESTION, "3 of 5 passages")
    assert step.passage_ids == ("p0", "p2", "p3")
    assert step.dropped == (
        "passage p1 (not relevant: 0.19, below 0.2)",
        "passage p4 (not relevant: 0.00, below 0.2)",
    )


def test_the_lm_judges_all_passages_in_one_call():
    with scripted(verdicts(True, False, False, True, False)) as engine, collect_steps() as steps:
        kept = lm_filter(words=2).relevant(QUESTION, PASSAGES)
    assert ids(kept) == ["p0", "p3"]
    [(name, prompt)] = engine.prompts
    assert name == "JudgePassages" and QUESTION in prompt
    assert "number 4" in prompt and "of five" not in prompt
    assert total_usage(steps).lm_calls == 1 and ids(steps[0].steps[0:0]) == []
    assert [inner.output for inner in steps[0].steps] == ["2 of 5 of use"]


def test_a_reply_without_a_verdict_on_each_passage_is_none_and_all_pass():
    with scripted(verdicts(False, False)), collect_steps() as steps:
        assert lm_filter().relevant(QUESTION, PASSAGES) == PASSAGES
    assert fallbacks(steps).endswith("no passage is dropped")


def test_the_lm_is_not_asked_with_the_call_that_the_answer_takes():
    with scripted(verdicts(False, False, False, False, False)) as engine, limit_calls(2), reserve_calls(1):
        assert lm_filter().relevant(QUESTION, PASSAGES) == PASSAGES
    assert engine.prompts == []


def test_a_cascade_asks_the_lm_about_unsure_passages_alone():
    gate = CascadeFilter(Known(0.9, 0.1, 0.2, 0.8, None), lm_filter())
    with scripted(verdicts(False, True, False)) as engine, collect_steps() as steps:
        kept = gate.relevant(QUESTION, PASSAGES)
    assert ids(kept) == ["p0", "p3"]
    [(_, prompt)] = engine.prompts
    assert [f"number {n}" in prompt for n in range(5)] == [False, False, True, True, True]
    assert len(steps) == 1 and total_usage(steps).lm_calls == 1


@pytest.mark.parametrize(("threshold", "judged"), [(0.5, [1, 2]), (0.7, [1, 2, 3])])
def test_a_cascade_asks_the_lm_by_a_high_threshold_too(threshold, judged):
    gate = CascadeFilter(Known(0.9, 0.45, 0.55, 0.65, 0.1, threshold=threshold), lm_filter())
    with scripted(verdicts(*(True for _ in judged))) as engine:
        kept = gate.relevant(QUESTION, PASSAGES)
    assert [n for n in range(5) if f"number {n}" in engine.prompts[0][1]] == judged
    assert ids(kept) == ["p0", "p1", "p2", *(["p3"] if threshold <= 0.65 or 3 in judged else [])]


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("cross") / "bert", labels=1)


def test_a_cross_encoder_passes_what_it_finds_probable(cross_encoder):
    import torch
    from sentence_transformers import CrossEncoder

    passages = [Passage(f"p{n}", text) for n, text in enumerate(["bread dough", "cat dog", "moon sun", "flour salt"])]
    pairs = [("yeast oven", p.text) for p in passages]
    scores = CrossEncoder(cross_encoder).predict(pairs, activation_fn=torch.nn.Identity())
    expected = torch.sigmoid(torch.as_tensor(scores)).tolist()
    threshold = sum(sorted(expected)[1:3]) / 2
    gate = build_relevance_filter(f"cross-encoder:{cross_encoder}", threshold, passage_words=100, retries=0)
    assert gate.probabilities("yeast oven", passages) == pytest.approx(expected, abs=1e-5)
    assert ids(gate.relevant("yeast oven", passages)) == [
        p.id for p, e in zip(passages, expected, strict=True) if e > threshold
    ]
    assert ids(copy.deepcopy(gate).relevant("yeast oven", passages)) == ids(gate.relevant("yeast oven", passages))


@pytest.fixture
def encoded():
    """Skips where MiniLM is not on this machine."""
    if not models.MODELS["all-minilm-l6-v2"].present:
        pytest.skip("needs MiniLM: typedrag models fetch all-minilm-l6-v2")


BREAD = Passage(
    "bread", "Yeast feeds on the sugars of the dough and gives off carbon dioxide, whose bubbles make it rise."
)
CATS = Passage("cats", "Cats sleep for most of the day, and hunt at dawn and in the evening when mice are about.")


@pytest.mark.usefixtures("encoded")
def test_score_knows_what_a_question_is_about():
    gate = ScoreFilter(0.2)
    near, far = gate.probabilities(QUESTION, [BREAD, CATS])
    assert near > 0.4 > 0.05 > far
    assert gate.relevant(QUESTION, [CATS, BREAD]) == [BREAD]
    assert copy.deepcopy(gate).probabilities(QUESTION, [CATS, BREAD, CATS]) == pytest.approx([far, near, far])


@pytest.mark.usefixtures("encoded")
def test_a_set_passes_whole_if_its_best_passage_does():
    gate = SetFilter(0.2)
    assert gate.relevant(QUESTION, [CATS, BREAD]) == [CATS, BREAD]
    assert gate.relevant(QUESTION, [CATS, CATS]) == []
    assert SetFilter(0.9).relevant("Warum geht das Brot beim Backen auf?", [CATS]) == [CATS]


@pytest.mark.usefixtures("encoded")
def test_a_passage_of_a_few_words_is_less_probable_than_its_cosine_says():
    [short] = compute_features(QUESTION, [Passage("s", QUESTION)])
    assert short.cosine == pytest.approx(1) and short.log_words == pytest.approx(1.609, abs=1e-3)
    [endless] = compute_features(QUESTION, [Passage("s", "bread " * 900)])
    assert endless.log_words == pytest.approx(5.303, abs=1e-3)  # ln 201
    weights = LogisticModel(intercept=-3, weights={"cosine": 4, "log_words": 0.5})
    assert weights.probability(Features(0.5, 2.0)._asdict()) == 0.5


def test_score_knows_nothing_of_questions_in_other_languages():
    with collect_steps() as steps:
        assert ScoreFilter(0.9).relevant("Warum geht das Brot beim Backen auf?", [CATS]) == [CATS]
    assert "not in English" in steps[0].steps[0].output

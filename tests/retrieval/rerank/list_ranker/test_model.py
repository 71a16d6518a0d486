"""The network against slow references, one place and one passage at a time."""

import math

import pytest
import torch
from torch.nn import functional

from tests.retrieval.rerank.list_ranker.tiny import KINDS, PASSAGES, save_start, tiny_ranker
from typedrag.retrieval.list_network import NOTHING, Candidates, States
from typedrag.retrieval.list_ranker import start_list_ranker

TEXTS = [p.text for p in PASSAGES[:6]]
ASPECTS = [("oven",), (), ("oven", "salt"), (), ("salt",), ()]


@pytest.fixture(scope="module", params=KINDS)
def ranker(request, tmp_path_factory):
    return tiny_ranker(tmp_path_factory.mktemp(request.param) / "start", request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["cosine", "dot"])
def any_ranker(request, tmp_path_factory):
    return tiny_ranker(tmp_path_factory.mktemp("any") / "start", "t5", normalize=request.param, temperature=0.5)


def states_of(ranker) -> States:
    return ranker.encode(Candidates("about bread", TEXTS, ASPECTS))


def slow_log_probability(ranker, states: States, ranking: list[int], *, repeat: bool = False) -> float:
    """Place by place: the decoder over what was chosen so far, then a softmax in plain Python over what is left."""
    model, total = ranker.model, 0.0
    for place, chosen in enumerate(ranking):
        inputs = [states.questions[0]]
        inputs += [states.questions[0] + model.chosen(states.candidates[0, n]) for n in ranking[:place]]
        with torch.no_grad():
            hidden = model.decoder(torch.stack(inputs)[None], states.candidates, states.there)[0, -1]
        scores = {}
        for n in range(states.candidates.shape[1]):
            if repeat or n not in ranking[:place]:
                h, e = hidden.double(), states.candidates[0, n].double()
                if model.settings.normalize:
                    h, e = h / h.norm(), e / e.norm()
                scores[n] = float(h @ e) / model.settings.temperature
        largest = max(scores.values())
        everything = math.fsum(math.exp(s - largest) for s in scores.values())
        total += scores[chosen] - largest - math.log(everything)
    return total


@pytest.mark.parametrize("repeat", [False, True])
def test_log_probabilities_are_those_of_a_slow_reference(ranker, repeat):
    states = states_of(ranker)
    lists = [[2, 0, 5, 1], [5, 4, 3, 2], [0, 1, 2, NOTHING]] + ([[3, 3, 3, 0]] if repeat else [])
    for ranking in lists:
        [fast] = ranker.model.log_probabilities(states, torch.tensor([ranking]), repeat=repeat).tolist()
        slow = slow_log_probability(ranker, states, [n for n in ranking if n != NOTHING], repeat=repeat)
        assert fast == pytest.approx(slow, abs=2e-4)


def test_the_head_is_a_cosine_or_the_plain_product(any_ranker):
    states = states_of(any_ranker)
    [fast] = any_ranker.model.log_probabilities(states, torch.tensor([[1, 4, 0]])).tolist()
    assert fast == pytest.approx(slow_log_probability(any_ranker, states, [1, 4, 0]), abs=2e-4)


def test_the_probabilities_of_all_lists_of_a_length_sum_to_one(ranker):
    states = states_of(ranker)
    pairs = [[a, b] for a in range(6) for b in range(6) if a != b]
    total = sum(ranker.model.log_probabilities(states, torch.tensor([pair])).exp().item() for pair in pairs)
    assert total == pytest.approx(1, abs=1e-4)
    repeated = ranker.model.log_probabilities(states, torch.tensor([[2, 2]]))
    assert repeated.item() == -math.inf


def test_the_list_is_written_greedily_and_without_repetition(ranker):
    states = states_of(ranker)
    [written] = ranker.model.write(states, 4).tolist()
    assert len(set(written)) == 4
    so_far: list[int] = []
    for n in written:
        best = max(
            (m for m in range(6) if m not in so_far),
            key=lambda m: slow_log_probability(ranker, states, [*so_far, m]),
        )
        assert n == best
        so_far.append(n)
    for k in (1, 2, 3):
        assert ranker.model.write(states, k).tolist() == [written[:k]]
    assert sorted(ranker.model.write(states, 99)[0].tolist()) == list(range(6))


def test_lists_are_drawn_by_their_probabilities(ranker):
    states = states_of(ranker)
    many = States(states.questions.repeat(400, 1), states.candidates.repeat(400, 1, 1), states.there.repeat(400, 1))
    drawn, again = (ranker.model.write(many, 1, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(drawn, again)
    for n in range(6):
        expected = math.exp(slow_log_probability(ranker, states, [n]))
        assert (drawn == n).float().mean().item() == pytest.approx(expected, abs=0.1)


def test_pools_beside_each_other_change_nothing(ranker):
    texts = [TEXTS, TEXTS[:3]]
    alone = [ranker.encode(Candidates("about bread", t)) for t in texts]
    sizes = [len(t) for t in texts]
    together = ranker.model.gather(torch.cat([torch.cat([s.questions, s.candidates[0]]) for s in alone]), sizes)
    lists = torch.tensor([[4, 0, 1], [2, 0, NOTHING]])
    both = ranker.model.log_probabilities(together, lists).tolist()
    assert both[0] == pytest.approx(ranker.model.log_probabilities(alone[0], lists[:1]).item(), abs=1e-4)
    assert both[1] == pytest.approx(ranker.model.log_probabilities(alone[1], lists[1:, :2]).item(), abs=1e-4)
    written = ranker.model.write(together, 5).tolist()
    assert written[0] == ranker.model.write(alone[0], 5)[0].tolist()
    assert written[1] == [*ranker.model.write(alone[1], 5)[0].tolist(), NOTHING, NOTHING]


def test_the_order_of_the_candidates_does_not_matter(ranker):
    backwards = ranker.encode(Candidates("about bread", TEXTS[::-1], ASPECTS[::-1]))
    for ranking in ([2, 0, 5, 1], [4, 3, 2, 1]):
        there = ranker.model.log_probabilities(states_of(ranker), torch.tensor([ranking])).item()
        turned = ranker.model.log_probabilities(backwards, torch.tensor([[5 - n for n in ranking]])).item()
        assert turned == pytest.approx(there, abs=1e-4)


def test_an_untrained_ranker_of_an_encoder_ranks_by_the_cosine_of_its_embeddings(tmp_path):
    ranker = start_list_ranker(save_start(tmp_path, "encoder"))
    tokenizer, encoder = ranker.tokenizer, ranker.model.encoder

    def embedded(text: str) -> torch.Tensor:
        words = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[tokenizer.cls_token_id, *words, tokenizer.sep_token_id]])
        return encoder(input_ids=ids).last_hidden_state[0].mean(dim=0)

    with torch.no_grad():
        cosines = torch.stack(
            [functional.cosine_similarity(embedded("about bread"), embedded(t), dim=0) for t in TEXTS]
        )
    states = ranker.encode(Candidates("about bread", TEXTS, ASPECTS))
    scores = ranker.model.scores(states, torch.tensor([[0]]))[0, 0] * ranker.settings.temperature
    assert scores.tolist() == pytest.approx(cosines.tolist(), abs=1e-5)
    assert ranker.model.write(states, 6)[0].tolist() == cosines.argsort(descending=True).tolist()

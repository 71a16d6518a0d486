"""Small trainings: what they are to show they show within seconds."""

import math

import pytest
import torch

from tests.optimizers.list_ranker.topics import ndcg, new_ranker, random_ndcg, topic_pools
from tests.retrieval.rerank.list_ranker.tiny import tiny_ranker
from typedrag.core.errors import InputError
from typedrag.optimizers.list_ranker.config import TrainingSettings
from typedrag.optimizers.list_ranker.measures import pool_measures, ranker_candidates, utility_table
from typedrag.optimizers.list_ranker.preferences import Preference, Rewarded, sample_lists
from typedrag.optimizers.list_ranker.training import (
    PreferenceDataset,
    SilverDataset,
    freeze,
    new_parameters,
    train_list_ranker,
)

POOLS = topic_pools(64)
TEST = topic_pools(24, seed=1)
FAST = TrainingSettings(epochs=3, learning_rate=1e-2, batch=8, at_once=4)


def test_training_lowers_the_loss_and_beats_random_order_on_held_out_pools(tmp_path):
    ranker, told = new_ranker(), []
    outcome = train_list_ranker(ranker, SilverDataset(POOLS, 32, 10), tmp_path, FAST, on_step=told.append)
    losses = outcome.losses
    assert len(losses) == 24 and told[-1].step == told[-1].steps == 24 and not outcome.stopped
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert ndcg(ranker, TEST) > random_ndcg(TEST) + 0.15
    assert not ranker.model.training


def test_the_best_of_the_saved_weights_are_kept(tmp_path):
    ranker = new_ranker()
    outcome = train_list_ranker(ranker, SilverDataset(POOLS[:32], 32, 10), tmp_path, FAST, validation=TEST[:8])
    assert set(outcome.validated) == {0, 4, 8, 12}
    assert outcome.validated[outcome.best_step] == max(outcome.validated.values())
    assert ndcg(ranker, TEST[:8]) == pytest.approx(outcome.validated[outcome.best_step], abs=1e-6)


def test_pools_with_sub_answers_are_validated_by_what_their_lists_cover(tmp_path):
    pools = [p.model_copy(update={"sub_answers": [p.passages[0].text, p.passages[5].text]}) for p in TEST[:2]]
    ranker = new_ranker()
    rankings = [ranker.write(ranker_candidates(pool), 10) for pool in pools]
    measures = [pool_measures(p, ranking, utility_table(p)) for p, ranking in zip(pools, rankings, strict=True)]
    once = FAST.model_copy(update={"epochs": 1.0})
    outcome = train_list_ranker(ranker, SilverDataset(POOLS[:8], 32, 10), tmp_path, once, validation=pools)
    assert outcome.validated[0] == pytest.approx(sum(m["ncom"] for m in measures) / 2)
    assert outcome.validated[0] != pytest.approx(sum(m["ndcg"] for m in measures) / 2)


def test_where_training_makes_nothing_better_the_start_is_kept(tmp_path):
    ranker = new_ranker()
    train_list_ranker(ranker, SilverDataset(POOLS, 32, 10), tmp_path / "good", FAST)
    before = {name: value.clone() for name, value in ranker.model.state_dict().items()}
    ruinous = FAST.model_copy(update={"learning_rate": 10.0, "epochs": 1.0})
    dataset = SilverDataset(POOLS[:8], 32, 10)
    outcome = train_list_ranker(ranker, dataset, tmp_path / "ruinous", ruinous, validation=TEST[:8])
    assert outcome.best_step == 0 and set(outcome.validated) == {0, 1}
    after = ranker.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert ndcg(ranker, TEST[:8]) == pytest.approx(outcome.validated[0], abs=1e-6)


def test_out_of_time_it_stops_and_can_be_continued(tmp_path):
    settings = FAST.model_copy(update={"minutes": 1e-6})
    stopped = train_list_ranker(new_ranker(), SilverDataset(POOLS[:16], 32, 10), tmp_path, settings)
    assert stopped.stopped and len(stopped.losses) == 1
    torn = tmp_path / "checkpoint-5"  # as a kill leaves it: the Trainer's state comes last
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half of")
    done = train_list_ranker(new_ranker(), SilverDataset(POOLS[:16], 32, 10), tmp_path, FAST, resume=True)
    assert not done.stopped and len(done.losses) == 6


@pytest.mark.parametrize("bf16", [False, True])
def test_preferences_make_the_better_list_likelier(tmp_path, bf16):
    ranker = new_ranker()
    preferences = []
    for pool in POOLS[:16]:
        good = tuple(n for n, p in enumerate(pool.passages) if p.label)
        bad = tuple(n for n, p in enumerate(pool.passages) if not p.label)[: len(good)]
        preferences.append(Preference(pool, Rewarded(good, 1.0), Rewarded(bad, 0.0)))
    dataset = PreferenceDataset(preferences, ranker, candidates=6, seed=0, bf16=bf16)
    assert all(len(example.chosen) == 6 and len(example.reference) == 2 for example in dataset)
    outcome = train_list_ranker(ranker, dataset, tmp_path, FAST.model_copy(update={"bf16": bf16}))
    assert outcome.losses[0] == pytest.approx(math.log(2), abs=1e-3)  # it is still its own reference
    assert outcome.losses[-1] < outcome.losses[0]
    after = torch.tensor([example.reference for example in PreferenceDataset(preferences, ranker, 6, 0)])
    before = torch.tensor([example.reference for example in dataset])
    assert ((after[:, 0] - after[:, 1]) > (before[:, 0] - before[:, 1])).float().mean() > 0.8


def test_a_pair_is_learned_over_the_pool_that_its_lists_were_written_for():
    ranker = new_ranker()
    [pool] = topic_pools(1, passages=40)
    greedy, sampled = sample_lists(ranker, pool, k=3, samples=1, seed=0)
    pair = Preference(pool, Rewarded(greedy, 1.0), Rewarded(sampled, 0.0))
    [example] = PreferenceDataset([pair], ranker, FAST.candidates, seed=0)
    assert example.chosen == tuple(range(40)) and example.lists == (greedy, sampled)
    states = ranker.encode(ranker_candidates(pool))
    said = [ranker.model.log_probabilities(states, torch.tensor([one])).item() for one in example.lists]
    assert example.reference == pytest.approx(said, abs=1e-4)


def test_candidates_are_drawn_anew_with_some_that_are_worth_something(tmp_path):
    [pool] = topic_pools(1, passages=12)
    dataset = SilverDataset([pool], candidates=6, length=10)
    drawn = [dataset[0] for _ in range(8)]
    assert len({example.chosen for example in drawn}) > 1
    for example in drawn:
        assert len(example.chosen) == 6
        [silver] = example.lists
        assert {pool.passages[example.chosen[n]].label for n in silver} == {1}
        assert sum(pool.passages[n].label for n in example.chosen) >= 3
    assert SilverDataset([pool], candidates=50, length=2)[0].chosen == tuple(range(12))
    assert len(SilverDataset([pool], candidates=50, length=10, full=True)[0].lists[0]) == 10
    assert len(SilverDataset([pool], candidates=50, length=2)[0].lists[0]) <= 2


@pytest.mark.parametrize("kind", ["encoder", "t5", "bart"])
def test_frozen_layers_stay_as_they_are(kind, tmp_path):
    ranker = tiny_ranker(tmp_path / "start", kind)
    before = {name: tensor.clone() for name, tensor in ranker.model.state_dict().items()}
    settings = FAST.model_copy(update={"frozen_layers": 1, "epochs": 3.0})
    train_list_ranker(ranker, SilverDataset(TEST[:8], 8, 10), tmp_path / "out", settings)
    changed = {name for name, tensor in ranker.model.state_dict().items() if not torch.equal(before[name], tensor)}
    inside = {"encoder": "encoder.encoder.layer", "t5": "encoder.block", "bart": "encoder.layers"}[kind]
    trained = {name for name, parameter in ranker.model.named_parameters() if parameter.requires_grad}
    changed, in_encoder = ({n for n in names if n.startswith("encoder.")} for names in (changed, trained))
    assert changed == {n for n in trained if n.startswith((f"{inside}.1.", "encoder.final_layer_norm"))}
    assert in_encoder - changed == {n for n in trained if "pooler" in n}
    with pytest.raises(InputError, match="has 2 layers, not 3"):
        freeze(ranker.model, 3)


def test_what_is_new_can_learn_faster(tmp_path):
    """At the rate that suits a pretrained encoder, what begins at zero is as good as nothing in the end."""
    moved = {}
    for rate in (None, 1e-2):
        ranker = new_ranker()
        settings = FAST.model_copy(update={"learning_rate": 1e-5, "new_learning_rate": rate, "epochs": 2.0})
        before = {name: p.detach().clone() for name, p in ranker.model.named_parameters()}
        train_list_ranker(ranker, SilverDataset(POOLS[:16], 8, 10), tmp_path / str(rate), settings)
        change = {n: float((p.detach() - before[n]).abs().max()) for n, p in ranker.model.named_parameters()}
        new = {id(p) for p in new_parameters(ranker.model)}
        is_new = {n: id(p) in new for n, p in ranker.model.named_parameters()}
        assert any(is_new.values()) and not all(is_new.values())
        moved[rate] = [max(change[n] for n in change if is_new[n] is side) for side in (True, False)]
    assert moved[1e-2][0] > 100 * moved[None][0]
    assert moved[1e-2][1] < 5 * moved[None][1]


def test_killed_it_goes_on_as_if_it_had_not_been(tmp_path):
    def train(ranker, folder, **more):
        settings = FAST.model_copy(update={"epochs": 2.0})
        return train_list_ranker(ranker, SilverDataset(POOLS[:24], 5, 10), tmp_path / folder, settings, **more)

    def killed(loss):
        if loss.step == 5:
            raise KeyboardInterrupt

    whole, again, steps = new_ranker(), new_ranker(), []
    uninterrupted = train(whole, "whole")
    with pytest.raises(KeyboardInterrupt):
        train(new_ranker(), "killed", on_step=killed)
    resumed = train(again, "killed", resume=True, on_step=steps.append)
    assert [loss.step for loss in steps] == [4, 5, 6]  # an epoch has three steps, and is saved
    assert resumed.losses == pytest.approx(uninterrupted.losses)
    states = whole.model.state_dict(), again.model.state_dict()
    assert all(torch.allclose(states[0][name], states[1][name], atol=1e-5) for name in states[0])

"""Train a list ranker in a folder; a killed training resumes from its last reward or checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from typedrag.core.errors import InputError
from typedrag.core.redaction import make_redactor
from typedrag.datasets.richrag import Pool, read_pools
from typedrag.experiments.resources import git_commit, open_metered
from typedrag.experiments.tracking.tracker import Tracker, check_store
from typedrag.files.text_files import hash_files, write_json
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import Spending
from typedrag.lms.lm import use_lm
from typedrag.optimizers.list_ranker import preferences as pairs
from typedrag.optimizers.list_ranker import training as learning
from typedrag.optimizers.list_ranker.config import RankerTrainConfig
from typedrag.optimizers.list_ranker.measures import check_worth
from typedrag.optimizers.list_ranker.training import SilverDataset, TrainingOutcome
from typedrag.optimizers.trainer import OnStep, StepLoss, check_one_process
from typedrag.retrieval.list_ranker import ListRanker, is_list_ranker, start_list_ranker
from typedrag.retrieval.local_models import accelerator, loading
from typedrag.runs import Progress, RunFolder, Store
from typedrag.runs.work import Listener, ignore_progress
from typedrag.text.words import question_key

RANKER, CHECKPOINTS, OUTCOME = "ranker", "checkpoints", "outcome.json"
_TRAINED = "trained"


@dataclass(frozen=True)
class TrainingProgress:
    """Callbacks for the progress of a ranker's training."""

    listener: Listener = ignore_progress
    step: OnStep = field(default=lambda loss: None)
    notice: Callable[[str], None] = field(default=lambda message: None)


@dataclass(frozen=True)
class TrainedRanker:
    """The result of a training."""

    folder: Path  # the ranker's folder; `list:FOLDER` is its spec
    examples: int  # the number of pools, or pairs, that it was trained on
    outcome: TrainingOutcome  # losses and validation
    spent: Spending  # LM calls and tokens of the generator

    def to_dict(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "ranker": str(self.folder),
            "examples": self.examples,
            "steps": len(outcome.losses),
            **outcome.model_dump(mode="json"),
            "lm_calls": self.spent.usage.lm_calls,
            "tokens": self.spent.tokens,
        }


def train_ranker(
    config: RankerTrainConfig, out: Path, *, resume: bool = False, watching: TrainingProgress | None = None
) -> TrainedRanker:
    """Train a list ranker; see `RankerTrainConfig`.

    Args:
        out: The training's folder: the ranker goes to `ranker`, checkpoints to `checkpoints`.
        resume: Continue the training that the folder holds; a finished one stays as it is.
    """
    check_one_process()
    watching, redact = watching or TrainingProgress(), make_redactor([])
    pools = read_pools(config.data)
    validation = read_pools(config.validation) if config.validation else []
    _check_pools(config, pools, validation)
    ranker = _open_start(config, pools)
    silver = _silver_dataset(config, ranker, pools, watching) if config.stage == "sft" else None
    check_store(config.tracking, redact)
    identity: dict[str, Any] = {
        "start": config.start,
        "start's digest": hash_files(Path(config.start)) if Path(config.start).is_dir() else None,
        "stage": config.stage,
        "data": hash_files(config.data),
        "validation": hash_files(config.validation) if config.validation else None,
        "ranker": config.ranker.model_dump(mode="json") if config.ranker else None,
        "training": config.training.model_dump(mode="json", exclude={"minutes"}),
    }
    if config.stage == "dpo":
        identity["preferences"] = config.preferences.model_dump(mode="json", exclude={"threads"})
        identity["reward"] = config.reward
        if config.reward == "generator":
            identity["lm"] = config.lm.model_dump(mode="json", exclude={"api_base"})
    items = {} if silver else {pool.id: pool.question for pool in pools}
    with RunFolder.open(out, identity, kind="training of a list ranker", resume=resume, items=items) as run:
        if finished := run.store.read().notes.get(_TRAINED):
            outcome = TrainingOutcome.model_validate(finished["outcome"])
            return TrainedRanker(out / RANKER, finished["examples"], outcome, run.store.read().spent)
        tracker, stopped = Tracker(config.tracking, redact, watching.notice), True
        tracker.begin_folder(out, {**identity, "git commit": git_commit() or ""}, kind="ranker training")

        def log(values: Mapping[str, float], step: int) -> None:
            if tracker.works:
                with tracker.attempt("this training", "Nothing more of it is logged"):
                    tracker.log(values, step)

        def on_step(loss: StepLoss) -> None:
            watching.step(loss)
            log({"loss": loss.loss}, loss.step)

        try:
            training = config.training
            dataset = silver or learning.PreferenceDataset(
                _preferences(config, run.store, ranker, pools, watching),
                ranker,
                training.candidates,
                training.seed,
                training.bf16,
            )
            outcome = learning.train_list_ranker(
                ranker, dataset, out / CHECKPOINTS, training, validation=validation, resume=resume, on_step=on_step
            )
            for step, value in outcome.validated.items():
                log({"validation": value}, step)
            about = {"start": config.start, "stage": config.stage, "examples": len(dataset)}
            replace(ranker, trained=about).save(out / RANKER)
            trained = TrainedRanker(out / RANKER, len(dataset), outcome, run.store.read().spent)
            write_json(out / OUTCOME, trained.to_dict())
            if not outcome.stopped:
                run.store.note(_TRAINED, {"examples": len(dataset), "outcome": outcome.model_dump(mode="json")})
            stopped = outcome.stopped
        finally:
            if tracker.works:
                with tracker.attempt("this training", "Its files are complete"):
                    if (out / OUTCOME).is_file():
                        tracker.artifact(OUTCOME, (out / OUTCOME).read_text("utf-8"))
                    tracker.end(stopped=stopped)
    return trained


def _check_pools(config: RankerTrainConfig, pools: Sequence[Pool], validation: Sequence[Pool]) -> None:
    """Refuse pools that lack data or leak into the validation, before anything is paid for."""
    learned = {question_key(pool.question) for pool in pools}
    if shared := [pool.question for pool in validation if question_key(pool.question) in learned]:
        raise InputError(
            f"{len(shared):,} of the {len(validation):,} pools in {config.validation} are of questions that are "
            f"trained on, such as '{shared[0]}'",
            "Make them of another split: typedrag research ranker pools --split validation",
        )
    for pool in (*validation, *(pools if config.stage == "sft" or config.reward == "ncom" else ())):
        check_worth(pool)
    for pool in pools if config.stage == "dpo" and config.reward == "generator" else ():
        pairs.gold_answers(pool)


def _silver_dataset(
    config: RankerTrainConfig, ranker: ListRanker, pools: Sequence[Pool], watching: TrainingProgress
) -> SilverDataset:
    candidates = config.training.candidates or SilverDataset.candidates
    dataset = SilverDataset(pools, candidates, ranker.settings.list_length, full=config.training.full_lists)
    if not len(dataset):
        raise InputError(
            "no passage of any pool covers anything of what is to be covered, so that all silver lists are empty",
            "Make pools whose passages have words in common with the sub-answers, or labels",
        )
    if left_out := len(pools) - len(dataset):
        watching.notice(f"{left_out:,} of {len(pools):,} pools are left out: none of their passages covers anything")
    return dataset


def _open_start(config: RankerTrainConfig, pools: Sequence[Pool]) -> ListRanker:
    if config.stage == "dpo" and not is_list_ranker(Path(config.start)):
        raise InputError(
            f"preferences are learned by a list ranker, which '{config.start}' is not",
            "Train it with --stage sft first, and name its folder",
        )
    texts = (text for pool in pools for text in (pool.question, *(p.text for p in pool.passages)))
    hint = "Check the name and the network, give a folder, or fetch a model: typedrag models list"
    with loading(f"start '{config.start}'", hint):
        ranker = start_list_ranker(config.start, config.ranker, texts=texts, seed=config.training.seed)
    learning.freeze(ranker.model, config.training.frozen_layers)
    ranker.model.to(accelerator())
    return ranker


def _preferences(
    config: RankerTrainConfig, store: Store, ranker: ListRanker, pools: Sequence[Pool], watching: TrainingProgress
) -> list[pairs.Preference]:
    """The pairs to learn from; what earlier sessions rewarded is in the store."""
    settings = config.preferences
    by_generator = config.reward == "generator"
    limit_calls_in_flight(settings.threads)
    lm_config = config.lm.model_copy(update={"cache": True})  # neither a kill nor another threshold is paid twice
    with use_lm(open_metered(lm_config)) if by_generator else nullcontext(), dspy.context(trace=None):

        def listener(progress: Progress) -> None:
            watching.listener(replace(progress, run="pools ranked and rewarded"))

        length = ranker.settings.list_length
        by_answers = by_generator and pairs.generator_reward(length, settings.answer_prompt)
        reward = by_answers or pairs.ncom_reward(pools)
        preferences = pairs.build_preferences(
            ranker, pools, reward, settings, store, seed=config.training.seed, listener=listener
        )
    results = store.read().results
    if unread := sum(reward is None for result in results for _, reward in result.value or ()):
        watching.notice(f"{unread:,} lists are left out: their answers cannot be read")
    if failed := [result.problem for result in results if result.failed]:
        watching.notice(f"{len(failed):,} pools are left out; the last: {failed[-1]}")
    if not preferences:
        raise InputError(
            f"no two lists of a pool differ by {settings.threshold if settings.pairs == 'us3' else 'anything'} in "
            "their rewards",
            "Give more pools, or a lower threshold and another --out; the LM's answers are kept in its cache",
        )
    watching.notice(f"{len(preferences):,} pairs of lists from {len(pools):,} pools")
    return preferences

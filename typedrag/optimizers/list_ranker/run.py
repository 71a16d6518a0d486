"""Train a list ranker in a folder; a killed training can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typedrag.datasets.pools import Pool, read_pools
from typedrag.errors import InputError
from typedrag.experiments.resources import git_commit, open_metered
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.files.digests import digest_of
from typedrag.files.locks import alone_in
from typedrag.files.text_files import write_json, write_text
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.optimizers.list_ranker.config import RankerTrainConfig
from typedrag.optimizers.trainer import check_one_process
from typedrag.programs import Options
from typedrag.records import Usage
from typedrag.redaction import redactor_for
from typedrag.retrieval.local_models import loading
from typedrag.runs.stages import Listener, unheard
from typedrag.runs.stop import Progress
from typedrag.texts.words import question_key

if TYPE_CHECKING:
    from typedrag.optimizers.list_ranker.preferences import Preference
    from typedrag.optimizers.list_ranker.rewards import Reward
    from typedrag.optimizers.list_ranker.training import SilverLessons, StepLoss, TrainingOutcome
    from typedrag.retrieval.rerank.list_ranker.folder import ListRanker

RANKER, CHECKPOINTS, SETTINGS, OUTCOME = "ranker", "checkpoints", "training.json", "outcome.json"
PREFERENCES, SPENT = "preferences.jsonl", "spent.json"


@dataclass(frozen=True)
class TrainingProgress:
    """Callbacks for the progress of a ranker's training."""

    listener: Listener = unheard
    step: Callable[[StepLoss], object] = field(default=lambda loss: None)
    notice: Callable[[str], None] = field(default=lambda message: None)


@dataclass(frozen=True)
class TrainedRanker:
    """The result of a training.

    Attributes:
        folder: The ranker's folder; `list:FOLDER` is its spec.
        lessons: The number of pools, or pairs, that it was trained on.
        outcome: Losses and validation.
        spent: LM calls and tokens of the generator.
    """

    folder: Path
    lessons: int
    outcome: TrainingOutcome
    spent: Spending

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        outcome = self.outcome
        return {
            "ranker": str(self.folder),
            "lessons": self.lessons,
            "steps": outcome.losses[-1].step if outcome.losses else 0,
            "losses": [loss.loss for loss in outcome.losses],
            "validated": outcome.validated,
            "best_step": outcome.best_step,
            "stopped": outcome.stopped,
            "lm_calls": self.spent.usage.lm_calls,
            "tokens": self.spent.tokens,
        }


def train_ranker(
    config: RankerTrainConfig, out: Path, *, resume: bool = False, watching: TrainingProgress | None = None
) -> TrainedRanker:
    """Train a list ranker; see `RankerTrainConfig`.

    Args:
        out: The training's folder: the ranker goes to `ranker`, checkpoints to `checkpoints`.
        resume: Continue the training that the folder holds.

    Raises:
        InputError: If the folder holds a training that is not to be resumed or has other settings,
            another process trains there, this is one of several processes, or the data do not fit.
        RetrievalError: If the start cannot be loaded.
        LMUnavailable: If the generator cannot be used.
        TypedRAGError: If MLflow's store cannot be used.
    """
    check_one_process()
    watching = watching or TrainingProgress()
    pools = read_pools(config.data)
    validation = read_pools(config.validation) if config.validation else []
    _check_pools(config, pools, validation)
    ranker = _open(config, pools)
    silver = _silver(config, ranker, pools, watching) if config.stage == "sft" else None
    with alone_in(out):
        settings = _settings(config)
        _check_folder(out, settings, resume=resume)
        write_json(out / SETTINGS, settings)
        tracker = Tracker(config.tracking, redactor_for([]), watching.notice)
        tracker.begin_folder(out, {**settings, "git commit": git_commit() or ""})
        files, stopped = list[str](), True
        try:
            trained = _train(config, out, ranker, silver, pools, validation, tracker, watching, resume=resume)
            write_json(out / OUTCOME, trained.to_dict())
            files, stopped = [OUTCOME, SETTINGS], trained.outcome.stopped
        finally:
            if tracker.works:
                with tracker.attempt("this training", "Its files are complete"):
                    for file in files:
                        tracker.artifact(file, (out / file).read_text("utf-8"))
                    tracker.end(stopped=stopped)
    return trained


def _log(tracker: Tracker, values: Mapping[str, float], step: int) -> None:
    if tracker.works:
        with tracker.attempt("this training", "Nothing more of it is logged"):
            tracker.log(values, step)


def _train(
    config: RankerTrainConfig,
    out: Path,
    ranker: ListRanker,
    silver: SilverLessons | None,
    pools: Sequence[Pool],
    validation: Sequence[Pool],
    tracker: Tracker,
    watching: TrainingProgress,
    *,
    resume: bool,
) -> TrainedRanker:
    from typedrag.optimizers.list_ranker.training import PreferenceLessons, train_list_ranker

    training, spent = config.training, Spending()
    lessons: SilverLessons | PreferenceLessons
    if silver is not None:
        lessons = silver
    else:
        preferences, spent = _preferences(config, out, ranker, pools, watching)
        lessons = PreferenceLessons(preferences, ranker, training.candidates, training.seed, training.bf16)

    def on_step(loss: StepLoss) -> None:
        watching.step(loss)
        _log(tracker, {"loss": loss.loss}, loss.step)

    outcome = train_list_ranker(
        ranker, lessons, out / CHECKPOINTS, training, validation=validation, resume=resume, on_step=on_step
    )
    for step, value in outcome.validated.items():
        _log(tracker, {"validation": value}, step)
    trained = replace(ranker, trained={"start": config.start, "stage": config.stage, "lessons": len(lessons)})
    trained.save(out / RANKER)
    return TrainedRanker(out / RANKER, len(lessons), outcome, spent)


def _settings(config: RankerTrainConfig) -> dict[str, Any]:
    """The settings that a training depends on; a training can be resumed only with the same."""
    lm = config.lm.model_dump(mode="json", exclude={"api_base"}) if config.stage == "dpo" else None
    return {
        "start": config.start,
        "start's digest": digest_of(Path(config.start)) if Path(config.start).is_dir() else None,
        "stage": config.stage,
        "data": digest_of(config.data),
        "validation": digest_of(config.validation) if config.validation else None,
        "ranker": config.ranker.model_dump(mode="json") if config.ranker else None,
        "training": config.training.model_dump(mode="json", exclude={"minutes"}),
        "preferences": config.preferences.model_dump(mode="json", exclude={"threads"})
        if config.stage == "dpo"
        else None,
        "reward": config.reward if config.stage == "dpo" else None,
        "lm": lm if config.reward == "generator" else None,
    }


def _check_folder(out: Path, settings: dict[str, Any], *, resume: bool) -> None:
    file = out / SETTINGS
    if not file.is_file():
        return
    if not resume:
        raise InputError(f"{out} holds a training", "Continue it with --resume, or name another --out")
    try:
        before = json.loads(file.read_text("utf-8"))
    except ValueError:
        raise InputError(f"{file} is not JSON", "Name another --out") from None
    if others := [name for name in settings if settings[name] != before.get(name)]:
        raise InputError(f"{out} holds a training with other {' and '.join(others)}", "Name another --out")


def _check_pools(config: RankerTrainConfig, pools: Sequence[Pool], validation: Sequence[Pool]) -> None:
    """Refuse pools that lack data or leak into the validation, before anything is paid for."""
    from typedrag.optimizers.list_ranker.rewards import gold_of
    from typedrag.optimizers.list_ranker.utility import check_worth

    learned = {question_key(pool.question) for pool in pools}
    if shared := [pool.question for pool in validation if question_key(pool.question) in learned]:
        raise InputError(
            f"{len(shared):,} of the {len(validation):,} pools in {config.validation} are of questions that are "
            f"trained on, such as '{shared[0]}'",
            "Make them of another split: typedrag ranker pools --split validation",
        )
    for pool in (*validation, *(pools if config.stage == "sft" or config.reward == "ncom" else ())):
        check_worth(pool)
    for pool in pools if config.stage == "dpo" and config.reward == "generator" else ():
        gold_of(pool)


def _silver(
    config: RankerTrainConfig, ranker: ListRanker, pools: Sequence[Pool], watching: TrainingProgress
) -> SilverLessons:
    """The silver lists of the pools; pools whose list is empty are left out."""
    from typedrag.optimizers.list_ranker.training import SilverLessons

    candidates = config.training.candidates or SilverLessons.candidates
    lessons = SilverLessons(pools, candidates, ranker.settings.list_length)
    if not len(lessons):
        raise InputError(
            "no passage of any pool covers anything of what is to be covered, so that all silver lists are empty",
            "Make pools whose passages have words in common with the sub-answers, or labels",
        )
    if lessons.left_out:
        watching.notice(
            f"{lessons.left_out:,} of {len(pools):,} pools are left out: none of their passages covers anything"
        )
    return lessons


def _open(config: RankerTrainConfig, pools: Sequence[Pool]) -> ListRanker:
    import torch

    from typedrag.optimizers.list_ranker.training import freeze
    from typedrag.retrieval.rerank.list_ranker.folder import is_list_ranker, start_list_ranker

    if config.stage == "dpo" and not is_list_ranker(Path(config.start)):
        raise InputError(
            f"preferences are learned by a list ranker, which '{config.start}' is not",
            "Train it with --stage sft first, and name its folder",
        )
    texts = (text for pool in pools for text in (pool.question, *(p.text for p in pool.passages)))
    mend = "Check the name and the network, give a folder, or fetch a model: typedrag models list"
    with loading(f"start '{config.start}'", mend):
        ranker = start_list_ranker(config.start, config.ranker, texts=texts, seed=config.training.seed)
    freeze(ranker.model, config.training.frozen_layers)
    ranker.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return ranker


def _preferences(
    config: RankerTrainConfig, out: Path, ranker: ListRanker, pools: Sequence[Pool], watching: TrainingProgress
) -> tuple[list[Preference], Spending]:
    """The pairs to learn from, read from the folder if an earlier session made them, and their cost."""
    from typedrag.optimizers.list_ranker.preferences import build_preferences, read_preferences, write_preferences
    from typedrag.optimizers.list_ranker.rewards import GeneratorReward, NcomReward

    file = out / PREFERENCES
    before = json.loads((out / SPENT).read_text("utf-8")) if (out / SPENT).is_file() else {}
    account = CostTracker(Spending(Usage(**before)))
    if file.is_file():
        return read_preferences(file, pools), account.spent
    length, settings = ranker.settings.list_length, config.preferences
    with ExitStack() as stack:
        reward: Reward
        if config.reward == "ncom":
            reward = NcomReward(pools)
        else:
            stack.enter_context(use_lm(open_metered(config.lm.model_copy(update={"cache": True}))))
            stack.enter_context(track_cost(account))
            options = Options(answer_passages=length)
            stack.enter_context(use_reply_store(out / REPLIES))
            reward = GeneratorReward(options)
            limit_calls_in_flight(settings.threads)

        def on_pool(number: int) -> None:
            watching.listener(Progress("pools ranked and rewarded", number, len(pools), account.spent))
            write_text(out / SPENT, json.dumps(asdict(account.spent.usage)) + "\n")

        preferences = build_preferences(
            ranker,
            pools,
            reward,
            k=length,
            samples=settings.samples,
            threshold=settings.threshold,
            seed=config.training.seed,
            threads=settings.threads,
            pairs=settings.pairs,
            on_progress=on_pool,
        )
    if not preferences:
        (out / SETTINGS).unlink()  # lets a training with other settings reuse the answers
        raise InputError(
            f"no two lists of a pool differ by {settings.threshold if settings.pairs == 'us3' else 'anything'} in "
            "their rewards",
            "Give more pools, or a lower threshold for pairs; what was answered is kept in --out",
        )
    write_preferences(file, preferences)
    watching.notice(f"{len(preferences):,} pairs of lists from {len(pools):,} pools")
    return preferences, account.spent

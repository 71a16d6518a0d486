"""A sweep over weights, from its configuration to a result, a page and a run in MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from typedrag.experiments.evaluate.build import dataset_of, open_metered
from typedrag.experiments.evaluate.run_store import read_run
from typedrag.experiments.formats import format_estimate, markdown_table
from typedrag.experiments.judges.judging import Stage, unseen
from typedrag.experiments.tracking.tracked_run import TrackedRun, table_of
from typedrag.files.text_files import write_json
from typedrag.lms.trail import Stopwatch
from typedrag.metrics.judges.judgments import Judgments
from typedrag.optimizers.sweep.config import WeightsConfig
from typedrag.optimizers.sweep.weights.rated import RatedAnswer, rated_answers, rated_runs, read_rated, write_rated
from typedrag.optimizers.sweep.weights.search import Searched, pairs_of, search_weights
from typedrag.redaction import Redactor, redactor_for

RATED, RESULT, TRIALS, JUDGMENTS = "rated.jsonl", "weights.json", "trials.json", "judgments.sqlite"


@dataclass(frozen=True)
class WeightsResult:
    """The result of a sweep over weights.

    Attributes:
        answers: The number of rated answers.
        failed: The number of judgments that failed and are left out.
        seconds: The time of the search alone.
        about: The ratings that were predicted, in words.
    """

    searched: Searched
    answers: int
    failed: int
    seconds: float
    about: str

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        searched = self.searched
        omitted = ("best", "trials", "accuracies", "n")
        return {
            "about": self.about,
            "weights": str(searched.best),
            "found": asdict(searched.best),
            **{name: value for name, value in asdict(searched).items() if name not in omitted},
            "pairs": searched.n,
            "answers": self.answers,
            "failed": self.failed,
            "trials": len(searched.trials),
            "seconds": self.seconds,
        }

    def lines(self) -> Iterator[str]:
        """Yield the result as lines of Markdown."""
        searched = self.searched
        yield f"{self.about}. {searched.n} pairs of {self.answers} answers; {self.failed} judgments failed. "
        yield f"{len(searched.trials):,} weights were tried in {self.seconds:.1f} s."
        yield ""
        rows = [(f"found, {searched.best}: cross-validated", format_estimate(searched.accuracy), "")]
        if apart := searched.held_out:
            name = f"found on {apart.n} held-out pairs, {apart.weights}: on the others"
            rows.append((name, format_estimate(apart.accuracy), ""))
        rows += [
            (name, format_estimate(e), format_estimate(searched.gains.get(name), signed=True))
            for name, e in searched.baselines.items()
        ]
        rows += [("found: on the pairs it was found by", format_estimate(searched.fitted), "")]
        yield from markdown_table(("core : background : follow-up", "accuracy", "found is better by"), rows)
        yield f"Found without each fold: {'; '.join(map(str, searched.folds))}."


def run_weights(
    config: WeightsConfig,
    out: Path,
    *,
    stage: Stage = unseen,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> WeightsResult:
    """Rate answers that are not rated yet, and search the weights that predict their ratings.

    Args:
        out: The folder for the result and the rated answers, from which the search can be repeated.

    Raises:
        InputError: If the configuration cannot be used.
        LMUnavailable: If the LM behind the judges cannot be used; finished judgments are kept.
    """
    out.mkdir(parents=True, exist_ok=True)
    answers, failed, about, redact = _rated(config, out, stage)
    write_rated(answers, out / RATED)
    watch = Stopwatch()
    searched = search_weights(
        pairs_of(answers),
        sampler=config.sampler,
        trials=config.trials,
        folds=config.folds,
        held_out=config.held_out,
        seed=config.seed,
    )
    result = WeightsResult(searched, len(answers), failed, watch.seconds, about)
    write_json(out / RESULT, result.to_dict())
    if config.tracking.enabled:
        run = TrackedRun(config.tracking, redact, on_notice)
        with run.telling(f"of '{config.name}'"):
            _track(run, config, result)
    return result


def _rated(config: WeightsConfig, out: Path, stage: Stage) -> tuple[list[RatedAnswer], int, str, Redactor]:
    nothing_to_hide = redactor_for([])
    if config.rated is not None:
        return read_rated(config.rated), 0, f"Answers rated in {config.rated.name}", nothing_to_hide
    if config.runs:
        assert config.target is not None, "it was checked"
        runs = [read_run(folder) for folder in config.runs]
        return rated_runs(runs, config.target), 0, f"{config.target} of {len(runs)} runs", nothing_to_hide
    data = config.dataset
    assert data is not None, "it was checked"
    dataset = dataset_of(data)
    scorer = open_metered(config.scorer, "scorer")
    answers, took = rated_answers(
        dataset,
        scorer,
        Judgments(config.judgments or out / JUDGMENTS),
        limit=config.limit,
        candidates=config.candidates,
        seed=data.seed,
        threads=config.threads,
        lm_judge=config.lm_judge,
        stage=stage,
        cite=config.cite,
        sub_questions_per_call=config.sub_questions_per_call,
        types_per_call=config.types_per_call,
    )
    failed = sum(len(judged.failures) for judged in took)
    return answers, failed, f"What people say of answers in {dataset.name}", redactor_for([scorer])


def _track(run: TrackedRun, config: WeightsConfig, result: WeightsResult) -> None:
    searched = result.searched
    settings = config.model_dump(mode="json", exclude={"tracking", "judgments"})
    settings["scorer"] = {name: value for name, value in settings["scorer"].items() if name != "api_base"}
    run.begin(config.name, settings)
    values: dict[str, float] = {f"weights/{name}": w for name, w in asdict(searched.best).items()}
    estimates = {"accuracy": searched.accuracy, "fitted": searched.fitted, **searched.baselines}
    if searched.held_out:
        estimates["held out"] = searched.held_out.accuracy
    for name, estimate in estimates.items():
        if estimate is not None:
            safe = name.replace(":", "").replace(",", "")
            values |= {safe: estimate.value, f"{safe}/low": estimate.low, f"{safe}/high": estimate.high}
    run.log(values)
    columns = ("core", "background", "follow-up", "accuracy")
    rows = [(*map(float, w), float(a)) for w, a in zip(searched.trials, searched.accuracies, strict=True)]
    with run.artifacts(TRIALS) as folder:
        (folder / TRIALS).write_text(table_of([dict(zip(columns, row, strict=True)) for row in rows]), "utf-8")
        write_json(folder / RESULT, result.to_dict())
    run.end(stopped=False)

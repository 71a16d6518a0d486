"""Optuna's figures of a study: each as PNG, and all on one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from typedrag.optimizers.sweep.config import ObjectiveConfig
from typedrag.optimizers.sweep.study import Sweep, without_notices

PAGE = "figures.html"
_DOTS = 110
logger = logging.getLogger(__name__)


def write_figures(sweep: Sweep, folder: Path) -> list[Path]:
    """Write the optimization history, importances, slices, and the front of several objectives.

    Figures that need more trials are left out.

    Returns:
        The files; the last is the page.
    """
    finished = _finished(sweep)
    files, shown = [], []
    for name, title, draw in _drawings(sweep.parts.config.objectives):
        if (png := _drawn(draw, finished)) is not None:
            file = folder / f"{name}.png"
            file.write_bytes(png)
            files.append(file)
            shown.append((title, png))
    page = folder / PAGE
    page.write_text(_page(sweep.study.study_name, shown), "utf-8")
    return [*files, page]


def importances(sweep: Sweep) -> dict[str, dict[str, float]]:
    """The share of the trials' variance that each knob explains, by objective; empty with too few trials."""
    finished = _finished(sweep)
    shares = {}
    for i, objective in enumerate(sweep.parts.config.objectives):
        try:
            with without_notices():
                shares[objective.measure] = dict(
                    optuna.importance.get_param_importances(finished, target=_loss_of(i, objective))
                )
        except (ValueError, RuntimeError) as error:
            logger.info("no importances for %s: %s", objective.measure, error)
    return shares


def _drawings(objectives: Sequence[ObjectiveConfig]) -> Iterator[tuple[str, str, Callable[[optuna.Study], Any]]]:
    from optuna.visualization import matplotlib as plots

    several = len(objectives) > 1
    for i, objective in enumerate(objectives):
        suffix = f"-{i + 1}" if several else ""
        drawn = (
            ("history", "trial by trial", plots.plot_optimization_history),
            ("importances", "how much each knob matters", plots.plot_param_importances),
            ("slices", "knob by knob", plots.plot_slice),
        )
        for name, caption, draw in drawn:
            target = _loss_of(i, objective) if name == "importances" else _value_of(i)
            of_this = partial(draw, target=target, target_name=objective.measure)
            yield f"{name}{suffix}", f"{objective.measure}: {caption}", of_this
    if len(objectives) in (2, 3):
        names = [objective.measure for objective in objectives]
        yield "front", "The front: trials that no other beats", partial(plots.plot_pareto_front, target_names=names)


def _finished(sweep: Sweep) -> optuna.Study:
    """A study of the complete trials alone: pruned trials answered fewer questions."""
    with without_notices():
        copy = optuna.create_study(directions=sweep.study.directions)
        copy.add_trials(sweep.trials(TrialState.COMPLETE))
    return copy


def _value_of(position: int) -> Callable[[optuna.trial.FrozenTrial], float]:
    return lambda trial: trial.values[position]


def _loss_of(position: int, objective: ObjectiveConfig) -> Callable[[optuna.trial.FrozenTrial], float]:
    """The value of an objective as a loss: with a target, Optuna computes importances for reaching low values."""
    return lambda trial: -objective.sign * trial.values[position]


def _drawn(draw: Callable[[optuna.Study], Any], study: optuna.Study) -> bytes | None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    try:
        with without_notices():
            axes = draw(study)
            first = axes.flat[0] if hasattr(axes, "flat") else axes
            for place in ("center", "left"):
                first.set_title("", loc=place)  # the caption says it
            figure = first.figure
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=_DOTS, bbox_inches="tight")
    except (ValueError, RuntimeError, IndexError) as error:  # Optuna raises these with too few trials
        logger.info("a figure is left out: %s", error)
        return None
    finally:
        plt.close("all")
    return content.getvalue()


def _page(title: str, shown: list[tuple[str, bytes]]) -> str:
    figures = "\n".join(
        f'<figure><figcaption>{html.escape(caption)}</figcaption><img alt="{html.escape(caption)}" '
        f'src="data:image/png;base64,{base64.b64encode(png).decode()}"></figure>'
        for caption, png in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{html.escape(title)}</title>\n"
        "<style>:root{color-scheme:light dark}"
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "img{max-width:100%}figure{margin:2rem 0}figcaption{font-weight:600}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n{figures or '<p>Too few trials to draw.</p>'}\n</body></html>\n"
    )

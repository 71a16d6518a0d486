"""Traces of a run in MLflow: a span for each call of a module or an LM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from typedrag.experiments.tracking.tracker import Tracker


@contextmanager
def trace_calls(tracker: Tracker) -> Iterator[None]:
    """Record each call of a module or an LM within the context as a span, if the run is to be traced."""
    if not (tracker.id and tracker.config.tracing):
        yield
        return
    import dspy
    import mlflow
    from dspy.dsp.utils.settings import main_thread_config
    from mlflow.dspy.callback import MlflowCallback

    redact = tracker.redact

    class Callback(MlflowCallback):
        """MLflow's callback, with redacted messages of errors."""

        def on_lm_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_lm_end(call_id, outputs, _without_secrets(exception, redact))

        def on_module_end(self, call_id: str, outputs: Any, exception: Exception | None = None) -> None:
            super().on_module_end(call_id, outputs, _without_secrets(exception, redact))

        # an adapter's spans would repeat those of its module and its LM: half of all spans
        on_adapter_format_start = on_adapter_parse_start = _ignore
        on_adapter_format_end = on_adapter_parse_end = _ignore

    def hide(span: Any) -> None:
        for name, value in span.attributes.items():
            text = json.dumps(value, default=str)
            if (hidden := redact(text)) != text:
                span.set_attribute(name, json.loads(hidden))

    before = {name: main_thread_config[name] for name in ("callbacks", "track_usage")}
    callbacks = [*dspy.settings.callbacks, Callback()]
    with mlflow.tracing.configure(span_processors=[hide]), dspy.context(callbacks=callbacks):
        mlflow.dspy.autolog()  # it adds no callback if one of its kind is there
        try:
            yield
        finally:
            mlflow.dspy.autolog(disable=True)
            dspy.configure(**before)  # MLflow has made this context's callbacks the process's
            mlflow.flush_trace_async_logging()


def _ignore(self: Any, *_: object, **__: object) -> None:
    pass


def _without_secrets(exception: Exception | None, redact: Callable[[str], str]) -> Exception | None:
    return exception and RuntimeError(f"{type(exception).__name__}: {redact(str(exception))}")

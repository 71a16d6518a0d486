"""A scripted LM behind a judge, which keeps to a schema and perhaps gives token probabilities."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dspy
from dspy.lm15 import Request, Response, TokenLogprob, TopLogprob

from tests.scripted import Reply, ScriptedEngine
from typedrag.metrics import Metric, Scored


class SchemaEngine(ScriptedEngine):
    """As a server that constrains decoding: `use_lm` gives it the adapter that all judges are meant for."""

    supports_response_schema = True
    supported_params = ("response_format",)


class LogprobsEngine(SchemaEngine):
    """Gives these probabilities for the token of a number, or of a label among them, by its text."""

    supported_params = ("response_format", "logprobs", "top_logprobs")

    def __init__(self, replies: dict[type[dspy.Signature], Reply], probabilities: Mapping[str, float]) -> None:
        super().__init__(replies)
        self._top = tuple(TopLogprob(token=t, logprob=math.log(p)) for t, p in probabilities.items())

    def complete(self, request: Request) -> Response:
        response = super().complete(request)
        if request.config.logprobs is None:
            return response
        tokens = response.message.text.replace("}", " }").split()
        labels = {f'"{top.token}"' for top in self._top}
        top = self._top[: request.config.logprobs]
        known = [TokenLogprob(token=t, logprob=-0.1, top=top if t.isdigit() or t in labels else ()) for t in tokens]
        return replace(response, logprobs=tuple(known))


def scored(metric: Metric, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
    """What a metric says, as `summarize` and `predictor_feedback` take it."""
    said = metric(example, prediction)
    return Scored(said.score, said.feedback, said.measures, said.details)


def scripted_judge(replies: dict[type[dspy.Signature], Any], **settings: Any) -> tuple[dspy.LM, SchemaEngine]:
    """An LM that replies by script, and its engine, which counts."""
    engine = SchemaEngine(replies)
    return dspy.LM("scripted/judge", engine=engine, num_retries=0, **{"cache": True, **settings}), engine

"""What MLflow is told of a tiny run of each kind: names alone, since values and ids change."""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlflow
import yaml
from click.testing import CliRunner
from mlflow.entities import Run

from tests.contract.sample import sample_index
from tests.experiments.tiny import ShortIsTrue
from tests.lm_server import MODEL, Call, LMServer, lm_server, words
from tests.mlflow_stores import new_store
from typedrag.cli.main import cli
from typedrag.core.question_types import QuestionType
from typedrag.metrics.metric import _METRICS

LM = f"vllm:{MODEL}"
OF_THE_MACHINE = ("mlflow.source.", "mlflow.user")
"""How the tags begin that MLflow itself makes of where it runs."""


def mlflow_names() -> dict[str, Any]:
    """By kind of run: the names of its metrics, params, tags and artifacts, and those of the runs below it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        sample_index() as index,
        lm_server(reply=_reply) as lm,
        patch.dict(_METRICS._classes, {"truthfulness": ShortIsTrue}),  # whose own may need a model that is not there
    ):
        uri = new_store(Path(folder) / "mlflow")
        before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
        try:
            for arguments in _commands(lm, index, uri):
                done = CliRunner().invoke(cli, arguments)
                assert done.exit_code == 0, done.output
            mlflow.set_tracking_uri(uri)
            client = mlflow.MlflowClient()
            kinds = {e.name: _kinds(client, e.experiment_id) for e in client.search_experiments()}
            versions = client.search_model_versions()
            registered = {v.name: {"tags": sorted(v.tags), "aliases": sorted(v.aliases)} for v in versions}
        finally:
            mlflow.set_tracking_uri(before)
    return {"runs": kinds, "registered": registered}


def _reply(call: Call) -> dict[str, Any] | None:
    """Longer answers where the instruction is the proposed one, so that the compiled program has another score."""
    longer = "LENGTH" in call.request["messages"][0]["content"]
    proposals = {name: "Answer at LENGTH." for name in call.wanted if "instruction" in name}
    return {"answer": words(60 if longer else 20)} if "answer" in call.wanted else proposals or None


def _commands(lm: LMServer, index: Path, uri: str) -> Iterator[list[str]]:
    rows = [{"id": f"q{n}", "question": f"Why does thing {n} happen?", "question_type": "reason"} for n in range(40)]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    own = {"spec": LM, "api_base": lm.api_base}
    shared: dict[str, Any] = {"lm": own, "index": str(index), "threads": 2}

    def config(command: str, **values: Any) -> list[str]:
        tracking = {"uri": uri, "experiment": command, "tracing": True}
        Path(f"{command}.yaml").write_text(yaml.safe_dump({**shared, "tracking": tracking, **values}))
        return [command, *([] if command == "sweep" else ["--config"]), f"{command}.yaml", "--out", command]

    yield config(
        "evaluate",
        programs=[{"program": "rag"}],
        dataset={"name": "sample", "limit": 2},
        metrics=["retrieval", "defects", "relevance"],
        scorer=own,
    )
    yield config(
        "compile",
        program={"program": "direct_lm"},
        dataset={"name": "file", "path": "questions.jsonl"},
        metrics=["defects", "truthfulness"],
        optimizer={"name": "dspy:COPRO", "options": {"breadth": 2, "depth": 1}},
        register_as="compiled",
    )
    yield config(
        "sweep",
        program={"program": "rag"},
        knobs={"top_k": [1, 3]},
        objectives=["retrieval/ndcg", "cost/tokens"],
        sampler={"name": "grid"},
        dataset={"name": "sample", "split": "train", "limit": 2},
        held_out={"limit": 2},
        metrics=["retrieval", "truthfulness"],
    )
    yield ["sweep", "best", "sweep", "--register", "best"]


def _kinds(client: mlflow.MlflowClient, experiment: str) -> dict[str, Any]:
    runs = client.search_runs([experiment])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    kinds = {"run": parents, "run within it": children}
    return {kind: _names(client, of_kind) for kind, of_kind in kinds.items() if of_kind}


def _names(client: mlflow.MlflowClient, runs: Iterable[Run]) -> dict[str, list[str]]:
    names: dict[str, set[str]] = {"metrics": set(), "params": set(), "tags": set(), "artifacts": set()}
    for run in runs:
        names["metrics"] |= run.data.metrics.keys()
        names["params"] |= run.data.params.keys()
        names["tags"] |= {tag for tag in run.data.tags if not tag.startswith(OF_THE_MACHINE)}
        names["artifacts"] |= set(_artifacts(client, run.info.run_id))
    return {kind: sorted(set(map(_general, found))) for kind, found in names.items()}


def _general(name: str) -> str:
    """A name with TYPE for any type of question, and OPTION for any option of programs, which the settings list."""
    name = re.sub(r"^options\..+", "options.OPTION", name)
    return re.sub(rf"/({'|'.join(QuestionType)})(?=/|$)", "/TYPE", name)


def _artifacts(client: mlflow.MlflowClient, run: str, folder: str = "") -> Iterator[str]:
    for file in client.list_artifacts(run, folder or None):
        if file.is_dir:
            yield from _artifacts(client, run, file.path)
        else:
            yield file.path

"""A compiled program as a model that MLflow serves: it takes a batch of questions and returns a row for each.

The model is made from code (`served_model_code.py`), not pickled, and holds only the JSON files of the
compiled program. The server chooses the LM and the index, by `TYPEDRAG_LM`, `TYPEDRAG_API_BASE`,
`TYPEDRAG_API_KEY` and `TYPEDRAG_INDEX`, or when it loads the model, as in
`mlflow.pyfunc.load_model(URI, model_config={"index": FOLDER})`.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow.pyfunc
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

import typedrag
from typedrag.core.errors import InputError, Unavailable
from typedrag.core.records import Answer
from typedrag.core.redaction import Redactor, make_redactor
from typedrag.experiments.batch import AskedQuestion, Outcome, answer_questions
from typedrag.experiments.loading import ARTIFACT, load_program
from typedrag.lms.lm import open_lm, use_lm
from typedrag.programs import program_class
from typedrag.programs.compiled import Compiled
from typedrag.programs.loading import ProgramSource
from typedrag.retrieval import open_reranker
from typedrag.retrieval.opening import brings_index

if TYPE_CHECKING:
    import dspy
    from mlflow.models import Model, ModelSignature

    from typedrag.programs import Program

CODE = Path(__file__).with_name("served_model_code.py")
CONFIG: dict[str, Any] = {
    "lm": "", "index": "", "retriever": "", "reranker": "", "options": {}, "threads": 16, "timeout": 0,
}  # fmt: skip
"""The keys of `model_config`, with their defaults. An empty LM or index is that of the environment; an empty retriever,
reranker or options are those that the program was compiled with; `timeout` is the seconds that the LM may take to
reply, or 0 for the default."""
_WITHOUT_TORCH = ("", "none", "bm25", "linear", "lm", "oracle")  # kinds of retrievers, rerankers, classifiers and gates
# the `model_config` of MLflow's server, which drops unknown keys with no more than a warning
_SERVER_CONFIG = "SERVING_MODEL_CONFIG"
EXAMPLE = [{"question": "Why does bread rise?"}]


class _ServedError(MlflowException):
    """An error that MLflow's server reports in a line, without the questions and without a traceback."""

    code: int

    def __init__(self, problem: str) -> None:
        MlflowException.__init__(self, problem, self.code)

    def serialize_as_json(self) -> str:
        return json.dumps({"error_code": self.error_code, "message": str(self)})


class NothingServed(_ServedError, Unavailable):
    """The LM, the index or the reranker of a served program cannot be used: status 503."""

    code = TEMPORARILY_UNAVAILABLE


class Misconfigured(_ServedError, InputError):
    """A served program was loaded with a wrong configuration: status 500."""

    code = INTERNAL_ERROR


class InvalidQuestion(_ServedError, InputError):
    """A question that cannot be answered, such as an empty one: status 400."""

    code = INVALID_PARAMETER_VALUE


class LoadedModel(mlflow.pyfunc.PythonModel):
    """A model of a compiled program, whose first question opens the LM and the index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: tuple[Program, dspy.LM] | None = None

    def load_context(self, context: Any) -> None:
        """Read the program."""
        settings = {**(context.model_config or {}), **json.loads(os.environ.get(_SERVER_CONFIG) or "{}")}
        if unknown := sorted(settings.keys() - CONFIG.keys()):
            raise InputError(f"model_config has unknown keys: {', '.join(unknown)}", f"Known are: {', '.join(CONFIG)}")
        self._folder = Path(context.artifacts[ARTIFACT])
        self.config = {**CONFIG, **(context.model_config or {})}
        compiled = Compiled.read(self._folder)
        source = ProgramSource(compiled.program, compiled)
        source.check(source.options(overrides=self.config["options"]))

    @contextmanager
    def opened(self) -> Iterator[tuple[Program, Redactor]]:
        """The program, within its LM, and what removes secrets from its texts. Errors are those of MLflow's server."""
        redact = make_redactor(())
        try:
            program, lm = self._open()
            redact = make_redactor([lm])
            with use_lm(lm):
                yield program, redact
        except _ServedError:
            raise
        except Unavailable as error:
            raise NothingServed(redact(str(error))) from None
        except InputError as error:
            raise Misconfigured(redact(str(error))) from None

    def _open(self) -> tuple[Program, dspy.LM]:
        with self._lock:
            if self._opened is None:
                config = self.config
                elsewhere = brings_index(config["retriever"]) or config["index"] or os.environ.get("TYPEDRAG_INDEX")
                if Compiled.read(self._folder).retrieves and not elsewhere:
                    raise InputError("the model needs an index", "Name it: index in model_config, or TYPEDRAG_INDEX")
                reranker = open_reranker(config["reranker"]) if config["reranker"] else None
                program = load_program(
                    self._folder,
                    index=config["index"] or None,
                    retriever=config["retriever"] or None,
                    reranker=reranker,
                    options=config["options"],
                )
                timeout: dict[str, Any] = {"timeout": float(config["timeout"])} if config["timeout"] else {}
                self._opened = program, open_lm(config["lm"] or None, **timeout)
            return self._opened


class ServedProgram(LoadedModel):
    """Answers batches of questions."""

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Answer questions, as many at once as `threads` says.

        Args:
            context: MLflow's context.
            model_input: A frame with a column `question`, and perhaps `question_type` where it is known.
            params: Not used.

        Returns:
            A dict for each row, in the same order: `answer`, `question_type`, `type_unsure`, `citations` and
            `passages` (ids), `fallback`, `answered` (`passages`, `knowledge` or `nothing`), `grounded`,
            `lm_calls`, `tokens` (None if the LM's server does not report them), `seconds`, and
            `error`, which is empty or says why the question has no answer.
        """
        # pandas has NaN for what is missing
        rows = model_input.reindex(columns=["question", "question_type"]).fillna("")
        pairs = zip(rows["question"], rows["question_type"], strict=True)
        numbered = [AskedQuestion(str(n), str(q), t or None) for n, (q, t) in enumerate(pairs, 1)]
        with self.opened() as (program, redact):
            outcomes = answer_questions(program, numbered, threads=int(self.config["threads"]))
        return [_row(outcome, redact) for outcome in outcomes]


def save_served_program(program: Path, out: Path, model: Model) -> None:
    """Save the folder of a compiled program to a new folder, as a model of MLflow that takes batches of questions."""
    save_code(CODE, program, out, model, signature=signature(), input_example=EXAMPLE)


def save_code(code: Path, program: Path, out: Path, model: Model, **described: Any) -> None:
    """Save a model that this code makes of the folder of a compiled program."""
    mlflow.pyfunc.save_model(
        str(out),
        mlflow_model=model,
        python_model=str(code),
        artifacts={ARTIFACT: str(program)},
        model_config=CONFIG,
        pip_requirements=[requirement(Compiled.read(program))],
        **described,
    )


def requirement(compiled: Compiled) -> str:
    """This version of typedrag, with the extras that a program needs, wherever its LM is."""
    options, searches = compiled.options, compiled.retriever or program_class(compiled.program).searches
    kinds = {re.split("[:-]", spec)[0] for spec in (compiled.reranker, options.type_classifier, options.relevance)}
    extras = ["mlflow"]
    if compiled.retrieves:
        extras.append("lucene")
        kinds.add(searches.partition(":")[0])
    if kinds.difference(_WITHOUT_TORCH):
        extras.append("dense")
    return f"typedrag[{','.join(extras)}]=={typedrag.__version__}"


def signature() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    texts, ids = ("answer", "question_type", "fallback", "answered", "error"), ("citations", "passages")
    columns = [
        *(ColSpec(DataType.string, name, required=False) for name in texts),
        *(ColSpec(Array(DataType.string), name) for name in ids),
        ColSpec(DataType.boolean, "type_unsure"),
        ColSpec(DataType.boolean, "grounded"),
        ColSpec(DataType.long, "lm_calls"),
        ColSpec(DataType.long, "tokens", required=False),
        ColSpec(DataType.double, "seconds"),
    ]
    inputs = [ColSpec(DataType.string, "question"), ColSpec(DataType.string, "question_type", required=False)]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(columns))


def _row(outcome: Outcome, redact: Redactor) -> dict[str, Any]:
    error = redact(outcome.error)
    if outcome.answer is None:
        nothing = describe(Answer(outcome.question.question, ""), redact)
        return {"answer": None, **nothing, "answered": "", "error": error}
    return {"answer": outcome.answer.answer, **describe(outcome.answer, redact), "error": error}


def describe(answer: Answer, redact: Redactor) -> dict[str, Any]:
    """The fields of an answer beside its text."""
    return {
        "question_type": str(answer.question_type) if answer.question_type else None,
        "type_unsure": answer.type_unsure,
        "citations": list(answer.citations),
        "passages": [passage.id for passage in answer.passages],
        "fallback": redact(answer.fallback),
        "answered": str(answer.answered),
        "grounded": answer.grounded,
        "lm_calls": answer.usage.lm_calls,
        "tokens": answer.usage.tokens,
        "seconds": answer.seconds,
    }

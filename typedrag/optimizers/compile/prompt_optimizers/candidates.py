"""The scores of a compile, its candidates as they are evaluated, and the best so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy
from dspy.teleprompt.bootstrap_trace import FailedPrediction
from dspy.utils.callback import BaseCallback
from pydantic import BaseModel, ValidationError

from typedrag.core.errors import CallFailed, InputError, NotMeasurable, StepFailed
from typedrag.files.text_files import Journal, write_text
from typedrag.metrics.metric import PredictorCall
from typedrag.optimizers.compile.prompt_optimizers.limiter import CallLimiter
from typedrag.programs.artifact import Fields, State, dump_state, fingerprint, load_state, signature_fields
from typedrag.signatures.roles import signature_role

Metric = Callable[..., dspy.Prediction]
"""A function of DSPy's five arguments that gives a `score` from 0 to 1 and `feedback`."""


class Scoring:
    """Scores predictions for an optimizer.

    DSPy knows no missing value: an answer that the metric cannot judge would count as 0. Here it gets the base
    program's score of the same example, or its mean score if that is not known: neither gain nor loss. It is
    marked `unjudged`, and never becomes a demonstration.
    """

    def __init__(self, metric: Metric, limiter: CallLimiter) -> None:
        self._metric = metric
        self._limiter = limiter
        self.base: dict[int, float] | None = None
        """The base program's scores of the examples that could be judged, by their ids; None before it is evaluated."""
        self.watch: Callable[[dspy.Prediction, float], None] = lambda prediction, score: None
        """Called with each prediction and its score."""

    @property
    def base_mean(self) -> float:
        return fmean(self.base.values()) if self.base else 0.0

    def base_score(self, example: dspy.Example) -> float:
        """The base program's score of an example; its mean score if that is not known."""
        return (self.base or {}).get(id(example), self.base_mean)

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction | None,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Return the `score`, the `feedback`, and `unjudged`: True if the metric has no score."""
        if pred is None or not len(pred):
            return dspy.Prediction(score=0.0, feedback="The program gave no answer.", unjudged=False)
        try:
            # only GEPA understands replies that cannot be parsed
            parsed = trace and [call for call in trace if not isinstance(call[2], FailedPrediction)]
            scored = self._metric(gold, pred, parsed, pred_name, pred_trace)
        except (StepFailed, NotMeasurable, CallFailed) as reason:
            if isinstance(reason, CallFailed):
                self._limiter.record_failure(reason)
            for_demos = trace is not None and pred_name is None
            score = 0.0 if for_demos else self.base_score(gold)
            return dspy.Prediction(score=score, feedback=f"Not judged: {reason}", unjudged=True)
        except Exception as error:
            raise self._limiter.close_with_fault(error) from error
        self.watch(pred, scored.score)
        return dspy.Prediction(score=scored.score, feedback=scored.feedback, unjudged=False)


def read_call(pred_name: str, pred_trace: Any) -> PredictorCall | None:
    """The call that GEPA asks feedback on; None if the predictor's role is not known."""
    if not pred_trace:
        return None
    predictor, inputs, outputs = pred_trace[0]
    role = signature_role(predictor.signature)
    if role is None:
        return None
    parts = inputs.get("sub_answers") or inputs.get("perspectives") or ()
    return PredictorCall(
        role=role,
        question=str(inputs.get("question") or ""),
        sources=tuple([p.text for p in inputs.get("passages") or ()] or [a.answer for a in parts]),
        written=str(outputs.get("answer") or ""),
        outputs=dict(outputs.items()),
    )


CANDIDATES, BEST = "candidates.jsonl", "best.json"


@dataclass(frozen=True)
class Candidate:
    """An evaluation of a candidate program on validation examples."""

    number: int  # its number; 0 is the base, the program before compiling
    state: str  # the hash of its instructions and demonstrations, the same for equal candidates
    how: str  # its origin, in words
    score: float  # the mean score over the examples, from 0 to 1
    base: float  # the base's mean score over the same examples
    n: int  # the number of examples that it was evaluated on
    of: int  # the number of all validation examples; only a candidate evaluated on all can be the best
    failed: int  # the number of examples without an answer; each scores 0
    unjudged: int  # the number of examples without a score by the metric; each scores as the base did
    changed: tuple[str, ...]  # the predictors that differ from the base's
    lm_calls: int  # LM calls of the compile so far, including this evaluation
    tokens: int  # tokens read and written so far
    best: bool  # true if it is the best so far

    @property
    def full_valset(self) -> bool:
        return self.n == self.of

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        return cls(**{**data, "changed": tuple(data["changed"])})


class CandidateLog(BaseCallback):
    """Records each evaluation of a program on validation examples.

    It is a DSPy callback, since optimizers evaluate through `dspy.Evaluate`. A resumed compile repeats
    its evaluations; those in the file already are not written again.
    """

    def __init__(
        self,
        folder: Path,
        student: dspy.Module,
        valset: Sequence[dspy.Example],
        scoring: Scoring,
        limiter: CallLimiter,
        on_candidate: Callable[[Candidate], None] = lambda candidate: None,
    ) -> None:
        self._folder = folder
        self._base, self._fields = dump_state(student), signature_fields(student)
        self._valset, self._size = {id(example) for example in valset}, len(valset)
        self._scoring, self._limiter, self._on_candidate = scoring, limiter, on_candidate
        self._lock = threading.RLock()
        self._under_way: dict[str, tuple[State, str]] = {}
        self._how = ""
        self.candidates = read_candidates(folder)
        """The candidates in the order of their evaluations."""
        self._repeats = list(self.candidates)
        self._journal = Journal(folder / CANDIDATES)

    @contextmanager
    def origin(self, how: str) -> Iterator[None]:
        """Record this origin for programs that are evaluated within the context."""
        before, self._how = self._how, f"{self._how}: {how}" if self._how else how
        try:
            yield
        finally:
            self._how = before

    def find_evaluation(self, program: dspy.Module) -> Candidate | None:
        state = fingerprint(dump_state(program))
        return next((c for c in self.candidates if c.full_valset and c.state == state), None)

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note the program's state as it begins: optimizers change programs in place."""
        program, devset = inputs["program"], inputs.get("devset") or instance.devset
        if all(id(example) in self._valset for example in devset):
            with self._faults_end_it():
                self._under_way[call_id] = (dump_state(program), self._how)

    def on_evaluate_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        begun = self._under_way.pop(call_id, None)
        if begun and outputs is not None:
            with self._faults_end_it():
                self._add(outputs.results, *begun)

    @contextmanager
    def _faults_end_it(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # DSPy ignores errors of callbacks
            raise self._limiter.close_with_fault(error) from error

    def _add(self, results: Sequence[tuple[Any, Any, Any]], state: State, how: str) -> None:
        scoring = self._scoring
        with self._lock:
            if scoring.base is None:
                scoring.base = {id(e): float(s) for e, _, s in results if not _unjudged(s)}
            scores = [scoring.base_score(e) if _unjudged(s) else float(s) for e, _, s in results]
            spent = self._limiter.account.spent
            # GEPA gives a prediction with its trace
            predictions = [p[0] if isinstance(p, tuple) else p for _, p, _ in results]
            candidate = Candidate(
                number=len(self.candidates),
                state=fingerprint(state),
                how=how,
                score=fmean(scores),
                base=fmean(scoring.base_score(e) for e, *_ in results),
                n=len(results),
                of=self._size,
                failed=sum(not (isinstance(p, dspy.Prediction) and len(p)) for p in predictions),
                unjudged=sum(_unjudged(s) for *_, s in results),
                changed=tuple(name for name in state if state[name] != self._base.get(name)),
                lm_calls=spent.usage.lm_calls,
                tokens=spent.tokens,
                best=False,
            )
            identity = (candidate.state, how, candidate.n)
            repeated = next((c for c in self._repeats if (c.state, c.how, c.n) == identity), None)
            if repeated:
                self._repeats.remove(repeated)
                return
            best = find_best(self.candidates)
            if candidate.full_valset and (best is None or candidate.score > best.score):
                candidate = replace(candidate, best=True)
                # first, so that a kill leaves no record of a missing best
                text = _Best(state=state, fields=self._fields).model_dump_json(indent=1)
                write_text(self._folder / BEST, text + "\n")
            self.candidates.append(candidate)
            self._journal.append(asdict(candidate))
            self._on_candidate(candidate)


def find_best(candidates: Iterable[Candidate]) -> Candidate | None:
    return max((c for c in candidates if c.full_valset), key=lambda c: c.score, default=None)


def read_candidates(folder: Path) -> list[Candidate]:
    return [Candidate.from_dict(line) for line in Journal(folder / CANDIDATES)]


class _Best(BaseModel):
    """The content of the file of the best so far."""

    state: State
    fields: Mapping[str, Fields]


def best_so_far(folder: Path, student: dspy.Module) -> dspy.Module | None:
    """The best program so far of a student's compile in a folder; None if there is none."""
    file = folder / BEST
    if not file.exists():
        return None
    try:
        held = _Best.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise InputError(f"{file} holds no program ({error})", "Compile again, into another folder") from None
    program = student.deepcopy()
    load_state(program, held.state, held.fields)
    return program


def _unjudged(score: Any) -> bool:
    return isinstance(score, dspy.Prediction) and bool(score.get("unjudged"))

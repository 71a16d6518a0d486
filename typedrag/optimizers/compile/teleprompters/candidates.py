"""The candidates that a compile evaluates, recorded as it goes, and the best so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from pydantic import BaseModel, ValidationError

from typedrag.errors import InputError
from typedrag.files.journal import Journal
from typedrag.files.text_files import write_text
from typedrag.optimizers.compile.teleprompters.budget import Gate
from typedrag.optimizers.compile.teleprompters.scoring import Scoring
from typedrag.programs.artifact.state import Fields, State, fields_of, fingerprint, named_predictors, restore, state_of

TRAJECTORY, BEST = "candidates.jsonl", "best.json"


@dataclass(frozen=True)
class Candidate:
    """An evaluation of a candidate program on validation examples.

    Attributes:
        number: Its number; 0 is the base, the program before compiling.
        state: The hash of its instructions and demonstrations, the same for equal candidates.
        how: Its origin, in words.
        score: The mean score over the examples, from 0 to 1.
        base: The base's mean score over the same examples.
        n: The number of examples that it was evaluated on.
        of: The number of all validation examples; only a candidate evaluated on all can be the best.
        failed: The number of examples without an answer; each scores 0.
        unjudged: The number of examples without a score by the metric; each scores as the base did.
        changed: The predictors that differ from the base's.
        lm_calls: LM calls of the compile so far, including this evaluation.
        tokens: Tokens read and written so far.
        best: True if it is the best so far.
        lm: The LM that was fine-tuned for it; empty if it runs on the task's.
        single: True if it is one program with the predictors of the base; only such a program can be the best.
    """

    number: int
    state: str
    how: str
    score: float
    base: float
    n: int
    of: int
    failed: int
    unjudged: int
    changed: tuple[str, ...]
    lm_calls: int
    tokens: int
    best: bool
    lm: str = ""
    single: bool = True

    @property
    def whole(self) -> bool:
        """True if it was evaluated on all validation examples."""
        return self.n == self.of

    def same(self, other: Candidate) -> bool:
        """True if both are the same program, made in the same way and evaluated on as many examples."""
        return (self.state, self.lm, self.how, self.n) == (other.state, other.lm, other.how, other.n)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        """The candidate in a line of `candidates.jsonl`."""
        return cls(**{**data, "changed": tuple(data["changed"])})


class Trajectory(BaseCallback):
    """Records each evaluation of a program on validation examples.

    It is a DSPy callback, since optimizers evaluate through `dspy.Evaluate`. A resumed compile repeats
    its evaluations; those in the file already are not written again.

    Args:
        folder: Holds `candidates.jsonl`, an evaluation a line, and `best.json`, the state of the
            best so far.
        student: The program to compile.
        lm: The model that it is compiled for.
        valset: The validation examples.
        scoring: The scoring of the evaluations.
        gate: The gate, closed if an evaluation cannot be recorded.
        on_candidate: Called with each new candidate.
    """

    def __init__(
        self,
        folder: Path,
        student: dspy.Module,
        lm: str,
        valset: Sequence[dspy.Example],
        scoring: Scoring,
        gate: Gate,
        on_candidate: Callable[[Candidate], None] = lambda candidate: None,
    ) -> None:
        self._folder, self._student, self._lm = folder, student, lm
        self._base, self._shapes = state_of(student), fields_of(student)
        self._valset, self._size = {id(example) for example in valset}, len(valset)
        self._scoring, self._gate, self._on_candidate = scoring, gate, on_candidate
        self._lock = threading.RLock()
        self._under_way: dict[str, tuple[State, str, str]] = {}
        self._how = ""
        self.candidates = candidates_in(folder)
        """The candidates in the order of their evaluations."""
        self._repeats = list(self.candidates)
        self._journal = Journal(folder / TRAJECTORY)

    @contextmanager
    def saying(self, how: str) -> Iterator[None]:
        """Record this origin for programs that are evaluated within the context."""
        before, self._how = self._how, f"{self._how}: {how}" if self._how else how
        try:
            yield
        finally:
            self._how = before

    def whole(self, program: dspy.Module) -> Candidate | None:
        """The evaluation of this program on all validation examples; None if there is none."""
        state, lm = fingerprint(state_of(program)), self._own_lm(program)
        return next((c for c in self.candidates if c.whole and (c.state, c.lm) == (state, lm)), None)

    @property
    def best(self) -> Candidate | None:
        """The best candidate so far; None if there is none."""
        return best_of(self.candidates)

    @property
    def best_program(self) -> dspy.Module:
        """The program of the best so far; the student if there is none."""
        return best_so_far(self._folder, self._student) or self._student.deepcopy()

    def clean(self, program: dspy.Module) -> dspy.Module:
        """A copy of the student in the state of a program, without its LMs and other attachments of optimizers."""
        clean = self._student.deepcopy()
        restore(clean, state_of(program), self._shapes)
        return clean

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note the program's state as it begins: optimizers change programs in place."""
        program, devset = inputs["program"], inputs.get("devset") or instance.devset
        if all(id(example) in self._valset for example in devset):
            with self._faults_end_it():
                self._under_way[call_id] = (state_of(program), self._how, self._own_lm(program))

    def on_evaluate_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Record a finished evaluation."""
        begun = self._under_way.pop(call_id, None)
        if begun and outputs is not None:
            with self._faults_end_it():
                self._add(outputs.results, *begun)

    @contextmanager
    def _faults_end_it(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # DSPy ignores errors of callbacks
            raise self._gate.fail(error) from error

    def _own_lm(self, program: dspy.Module) -> str:
        """The models of a program's predictors, other than the one it is compiled for."""
        lms = [predictor.lm or dspy.settings.lm for predictor in named_predictors(program).values()]
        return ", ".join(sorted({lm.model for lm in lms} - {self._lm}))

    def _add(self, results: Sequence[tuple[Any, Any, Any]], state: State, how: str, lm: str) -> None:
        scoring = self._scoring
        with self._lock:
            if not scoring.has_base:
                scoring.set_base({id(e): float(s) for e, _, s in results if not _unjudged(s)})
            scores = [scoring.base_of(e) if _unjudged(s) else float(s) for e, _, s in results]
            spent = self._gate.account.spent
            single = state.keys() == self._base.keys()
            candidate = Candidate(
                number=len(self.candidates),
                state=fingerprint(state),
                how=how,
                score=fmean(scores),
                base=fmean(scoring.base_of(e) for e, *_ in results),
                n=len(results),
                of=self._size,
                failed=sum(not _answered(p) for _, p, _ in results),
                unjudged=sum(_unjudged(s) for *_, s in results),
                changed=tuple(name for name in state if single and state[name] != self._base[name]),
                lm_calls=spent.usage.lm_calls,
                tokens=spent.tokens,
                best=False,
                lm=lm,
                single=single,
            )
            repeated = next((c for c in self._repeats if c.same(candidate)), None)
            if repeated:
                self._repeats.remove(repeated)
            else:
                self._keep(candidate, state)

    def _keep(self, candidate: Candidate, state: State) -> None:
        best = self.best
        if candidate.whole and candidate.single and (best is None or candidate.score > best.score):
            candidate = replace(candidate, best=True)
            write_best(self._folder, state, self._shapes)  # first, so that a kill leaves no record of a missing best
        self.candidates.append(candidate)
        self._journal.append(asdict(candidate))
        self._on_candidate(candidate)


def best_of(candidates: Iterable[Candidate]) -> Candidate | None:
    """The best candidate evaluated on all validation examples, the first of equals; None if there is none."""
    return max((c for c in candidates if c.whole and c.single), key=lambda c: c.score, default=None)


def candidates_in(folder: Path) -> list[Candidate]:
    """The candidates that the compile in a folder has recorded so far, in the order of their evaluations."""
    return [Candidate.from_dict(line) for line in Journal(folder / TRAJECTORY)]


class _Best(BaseModel):
    """The content of the file of the best so far."""

    state: State
    shapes: Mapping[str, Fields]


def write_best(folder: Path, state: State, shapes: Mapping[str, Fields]) -> None:
    """Keep a state as the best so far, whole or not at all."""
    write_text(folder / BEST, _Best(state=state, shapes=shapes).model_dump_json(indent=1) + "\n")


def best_so_far(folder: Path, student: dspy.Module) -> dspy.Module | None:
    """The best program so far of a student's compile in a folder; None if there is none.

    Raises:
        InputError: If the file is damaged, or of another program.
    """
    file = folder / BEST
    if not file.exists():
        return None
    try:
        held = _Best.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise InputError(f"{file} holds no program ({error})", "Compile again, into another folder") from None
    program = student.deepcopy()
    restore(program, held.state, held.shapes)
    return program


def _answered(prediction: Any) -> bool:
    if isinstance(prediction, tuple):  # GEPA gives a prediction with its trace
        prediction = prediction[0]
    return isinstance(prediction, dspy.Prediction) and len(prediction) > 0


def _unjudged(score: Any) -> bool:
    return isinstance(score, dspy.Prediction) and bool(score.get("unjudged"))

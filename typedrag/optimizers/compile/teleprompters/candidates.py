"""The candidates that a compile has evaluated, written as it goes, and the best of them so far."""

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
from typedrag.programs.artifact.fingerprints import Shape
from typedrag.programs.artifact.state import State, fingerprint, named_predictors, restore, shapes_of, state_of

TRAJECTORY, BEST = "candidates.jsonl", "best.json"


@dataclass(frozen=True)
class Candidate:
    """An evaluation of a candidate program on validation examples.

    Attributes:
        number: From 0, which is the base: the program that is compiled.
        state: Hash of its instructions and demonstrations: the same candidate has the same.
        how: How it came about.
        score: Mean over the examples, from 0 to 1.
        base: The base's mean over the same examples.
        n: Examples it was evaluated on.
        of: Validation examples there are; only a candidate evaluated on all can be the best.
        failed: Examples it gave no answer to. Each scores 0.
        unjudged: Examples the metric had no score for. Each scores what the base got.
        changed: The predictors that differ from the base's.
        lm_calls: Made by the compile so far, this evaluation counted in.
        tokens: Read and written so far.
        best: Whether it is the best so far.
        lm: The LM that was fine-tuned for it; empty if it runs on the task's.
        single: Whether it is one program, with the predictors of the base; what is not is never the best.
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
        """Whether it was evaluated on all validation examples."""
        return self.n == self.of

    def same(self, other: Candidate) -> bool:
        """Whether both are of the same program, made in the same way and evaluated on as many examples."""
        return (self.state, self.lm, self.how, self.n) == (other.state, other.lm, other.how, other.n)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        """The candidate of a line of `candidates.jsonl`."""
        return cls(**{**data, "changed": tuple(data["changed"])})


class Trajectory(BaseCallback):
    """Records each evaluation of a program on validation examples.

    It is a DSPy callback, since optimizers evaluate through `dspy.Evaluate`. A compile that is
    resumed repeats its evaluations; those that are in the file already are not written again.

    Args:
        folder: Holds `candidates.jsonl`, an evaluation a line, and `best.json`, the state of the
            best so far.
        student: What is compiled.
        lm: The model that it is compiled for.
        valset: The validation examples.
        scoring: Whose scores are recorded.
        gate: Closed if it cannot be recorded.
        on_candidate: Told of each new one.
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
        self._base, self._shapes = state_of(student), shapes_of(student)
        self._valset, self._size = {id(example) for example in valset}, len(valset)
        self._scoring, self._gate, self._on_candidate = scoring, gate, on_candidate
        self._lock = threading.RLock()
        self._under_way: dict[str, tuple[State, str, str]] = {}
        self._how = ""
        self.candidates = candidates_in(folder)
        """In the order of their evaluations."""
        self._repeats = list(self.candidates)
        self._journal = Journal(folder / TRAJECTORY)

    @contextmanager
    def saying(self, how: str) -> Iterator[None]:
        """Say of programs evaluated within how they came about."""
        before, self._how = self._how, f"{self._how}: {how}" if self._how else how
        try:
            yield
        finally:
            self._how = before

    def whole(self, program: dspy.Module) -> Candidate | None:
        """The evaluation of this program on all validation examples, if there is one."""
        state, lm = fingerprint(state_of(program)), self._own_lm(program)
        return next((c for c in self.candidates if c.whole and (c.state, c.lm) == (state, lm)), None)

    @property
    def best(self) -> Candidate | None:
        """The best so far."""
        return best_of(self.candidates)

    @property
    def best_program(self) -> dspy.Module:
        """The program of the best so far; the student if there is none."""
        return best_so_far(self._folder, self._student) or self._student.deepcopy()

    def clean(self, program: dspy.Module) -> dspy.Module:
        """The student in the state of a program: without LMs, and all that optimizers attach to a program."""
        clean = self._student.deepcopy()
        restore(clean, state_of(program), self._shapes)
        return clean

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember which program it is: optimizers change programs in place."""
        program, devset = inputs["program"], inputs.get("devset") or instance.devset
        if all(id(example) in self._valset for example in devset):
            with self._faults_end_it():
                self._under_way[call_id] = (state_of(program), self._how, self._own_lm(program))

    def on_evaluate_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Record it, unless it was not finished."""
        begun = self._under_way.pop(call_id, None)
        if begun and outputs is not None:
            with self._faults_end_it():
                self._add(outputs.results, *begun)

    @contextmanager
    def _faults_end_it(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # DSPy would pass by it
            raise self._gate.fail(error) from error

    def _own_lm(self, program: dspy.Module) -> str:
        """The models that a program runs on, other than the one it is compiled for."""
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
            found = Candidate(
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
            repeated = next((c for c in self._repeats if c.same(found)), None)
            if repeated:
                self._repeats.remove(repeated)
            else:
                self._keep(found, state)

    def _keep(self, found: Candidate, state: State) -> None:
        best = self.best
        if found.whole and found.single and (best is None or found.score > best.score):
            found = replace(found, best=True)
            write_best(self._folder, state, self._shapes)  # first: a kill must not leave a best that is not there
        self.candidates.append(found)
        self._journal.append(asdict(found))
        self._on_candidate(found)


def best_of(candidates: Iterable[Candidate]) -> Candidate | None:
    """The best of the programs evaluated on all validation examples; the first of equals."""
    return max((c for c in candidates if c.whole and c.single), key=lambda c: c.score, default=None)


def candidates_in(folder: Path) -> list[Candidate]:
    """The candidates that a compile in a folder has recorded so far, in the order of their evaluations."""
    return [Candidate.from_dict(line) for line in Journal(folder / TRAJECTORY)]


class _Best(BaseModel):
    """What the file of the best so far holds."""

    state: State
    shapes: Mapping[str, Shape]


def write_best(folder: Path, state: State, shapes: Mapping[str, Shape]) -> None:
    """Keep a state as the best so far, whole or not at all."""
    write_text(folder / BEST, _Best(state=state, shapes=shapes).model_dump_json(indent=1) + "\n")


def best_so_far(folder: Path, student: dspy.Module) -> dspy.Module | None:
    """The best program that the compile of a student in a folder has found so far; None if it has found none.

    Raises:
        InputError: If the file is not whole, or of another program.
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
    if isinstance(prediction, tuple):  # with its trace, from GEPA
        prediction = prediction[0]
    return isinstance(prediction, dspy.Prediction) and len(prediction) > 0


def _unjudged(score: Any) -> bool:
    return isinstance(score, dspy.Prediction) and bool(score.get("unjudged"))

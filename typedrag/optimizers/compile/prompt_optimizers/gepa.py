"""GEPA: instructions rewritten by reflection on feedback, with what it lacks for programs whose predictors serve
different question types and whose steps never fail."""

import random
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import dspy
from dspy.teleprompt.bootstrap_trace import FailedPrediction
from dspy.teleprompt.gepa import InstructionProposer
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.experiments.question_typing import infer_type
from typedrag.lms.lm import PerLMAdapter
from typedrag.optimizers.compile.prompt_optimizers import base
from typedrag.optimizers.compile.prompt_optimizers.dspy_internals import without_progress_bar


@base.optimizer
class GEPA(base.Optimizer):
    """Lets the prompt model reflect on feedback in words and rewrite instructions, and keeps candidates
    that are best on some validation example (`dspy.GEPA`).

    A predictor is reflected on with examples of a type that reaches it; unparsable replies are feedback
    as well. It resumes from stored replies, as the other optimizers do, and writes no state of its own,
    which would be a pickle.
    """

    name: ClassVar[str] = "gepa"
    about: ClassVar[str] = "instructions rewritten by reflection on feedback (GEPA)"

    evaluations: PositiveInt = base.by_budget(6, 12, 24)
    """The most runs of the program, in evaluations on the validation set; minibatches count too. By budget 6, 12
    or 24."""
    minibatch_size: PositiveInt = 3
    """Training examples to reflect on at once, all of one question type."""
    selection: Literal["pareto", "current_best"] = "pareto"
    """The candidate to improve next: one that is best on some validation example, or the best of all."""
    predictors: Literal["round_robin", "all"] = "round_robin"
    """The predictors to rewrite at once: one that the minibatch has reached, or all that it has."""
    merges: NonNegativeInt = 0
    """The most times that the instructions of two candidates are combined. GEPA then takes another course in
    each process: a resumed compile repeats no LM call, but may abandon what it had begun."""
    temperature: float = Field(default=1.0, ge=0)
    """The temperature at which instructions are written."""

    def planned_runs(self, train: int, validation: int) -> int:
        return (self.evaluations + 2) * validation

    def compile(self, run: base.Compilation) -> dspy.Module:
        types = [infer_type(example) for example in run.trainset]
        sampler = SameTypeBatchSampler(types, self.minibatch_size, run.seed)
        optimizer = dspy.GEPA(
            metric=run.scoring,
            max_metric_calls=self.evaluations * len(run.valset),
            reflection_minibatch_size=None,  # the sampler has its own size
            candidate_selection_strategy=self.selection,
            component_selector=ReachedSelector(at_once=self.predictors == "all"),
            reflection_lm=run.prompt_lm.copy(temperature=self.temperature),
            instruction_proposer=InstructionProposer(adapter=PerLMAdapter()),
            add_format_failure_as_feedback=True,
            use_merge=self.merges > 0,
            max_merge_invocations=self.merges,
            num_threads=run.threads,
            warn_on_score_mismatch=False,
            seed=run.seed,
            gepa_kwargs={"batch_sampler": sampler},
        )
        callbacks = [*dspy.settings.callbacks, ParseFailureTracer()]
        with run.log.origin("reflection"), dspy.context(callbacks=callbacks), without_progress_bar():
            student = with_unique_names(run.student)
            return optimizer.compile(student, trainset=list(run.trainset), valset=list(run.valset))


_NAME = "predictor"


def with_unique_names(student: dspy.Module) -> dspy.Module:
    """A copy whose signatures all differ, in a detail that no prompt shows."""
    program = student.deepcopy()
    for name, predictor in program.named_predictors():
        first = next(iter(predictor.signature.input_fields))
        predictor.signature = predictor.signature.with_updated_fields(first, **{_NAME: name})
    return program


class ReachedSelector:
    """Chooses predictors to rewrite, one after the other, among those that the minibatch has reached.

    GEPA's own selectors choose among all predictors. In a program with a strategy for each question type,
    most of them would be reflected on without an example. `at_once` rewrites all that were reached.
    """

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once

    def __call__(
        self, state: Any, trajectories: list[Any], subsample_scores: list[float], candidate_idx: int, candidate: Any
    ) -> list[str]:
        called = [call[0] for trajectory in trajectories for call in trajectory["trace"]]
        fields = [next(iter(predictor.signature.input_fields.values())) for predictor in called]
        reached = {field.json_schema_extra.get(_NAME) for field in fields}  # None for those outside the compiled part
        names: list[str] = state.list_of_named_predictors
        if self._at_once:
            return [name for name in names if name in reached] or names
        following = state.named_predictor_id_to_update_next_for_program_candidate
        first = following[candidate_idx]
        order = [*range(first, len(names)), *range(first)]
        chosen = next((place for place in order if names[place] in reached), first)
        following[candidate_idx] = (chosen + 1) % len(names)
        return [names[chosen]]


class SameTypeBatchSampler:
    """Draws minibatches of examples of one question type, of each type in turn.

    So the predictors that are rewritten see `size` examples in reflection and trial, or all of their type if there
    are fewer.
    """

    def __init__(self, types: Sequence[str], size: int, seed: int) -> None:
        rng = random.Random(seed)
        by_type: dict[str, list[int]] = defaultdict(list)
        for place, question_type in enumerate(types):
            by_type[question_type].append(place)
        for places in by_type.values():
            rng.shuffle(places)
        self._queues = [deque(by_type[name]) for name in sorted(by_type)]
        self._size = size
        self._turn = 0

    def next_minibatch_ids(self, loader: Any, state: Any) -> list[int]:
        queue = self._queues[self._turn % len(self._queues)]
        self._turn += 1
        drawn = [queue.popleft() for _ in range(min(self._size, len(queue)))]
        queue.extend(drawn)
        return drawn


class ParseFailureTracer(BaseCallback):
    """Puts replies that could not be parsed into the trace, where GEPA looks for them.

    Programs handle such a reply by another attempt or a fallback, so no error reaches GEPA. An attempt
    that succeeds removes the failed ones before it from the trace.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[dspy.Predict, dict[str, Any]]] = {}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if isinstance(instance, dspy.Predict):
            arguments = inputs.get("kwargs") or {}
            fields = instance.signature.input_fields
            self._calls[call_id] = (instance, {name: arguments[name] for name in fields if name in arguments})

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Add a failed call to the trace; after a success, remove the failed ones before it."""
        called = self._calls.pop(call_id, None)
        trace = dspy.settings.trace
        if called is None or trace is None:
            return
        predictor, inputs = called
        if isinstance(exception, AdapterParseError):
            trace.append((predictor, inputs, FailedPrediction(completion_text=exception.lm_response)))
        elif outputs is not None:
            trace[:] = [
                call
                for call in trace
                if not (isinstance(call[2], FailedPrediction) and call[0] is predictor and call[1] == inputs)
            ]

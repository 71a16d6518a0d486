"""Any optimizer of DSPy by its name, with the limits, the log and the verdict of our own optimizers.

DSPy gets own copies of signatures, which some optimizers change in place. What it evaluates on the validation
examples is recorded; the best of that, or what came out, is the result.
"""

import inspect
from typing import Any, ClassVar

import dspy
from dspy import teleprompt
from pydantic import ConfigDict

from typedrag.core.errors import InputError, TypedRAGError, first_line, names_hint
from typedrag.optimizers.compile.prompt_optimizers.base import Compilation, Optimizer

PREFIX = "dspy:"
_OURS = {
    "BootstrapFewShotWithRandomSearch": "bootstrap-random-search",
    "MIPROv2": "mipro",
    "SIMBA": "simba",
    "GEPA": "gepa",
}
_UNUSABLE = {
    "AvatarOptimizer": ("it compiles agents alone", "Use gepa"),
    "BetterTogether": ("it takes optimizers as objects", "Compile again from what came out: --program OUT/program"),
    "BootstrapFinetune": ("it trains an LM, which no compiled program holds", "Use simba or gepa"),
    "Ensemble": ("it joins several programs, and a compile gives one", "Use bootstrap-random-search"),
    "KNNFewShot": ("it replaces the program's forward, which no file can hold", "Use bootstrap"),
}

_PROVIDED = frozenset(
    "student teacher trainset valset metric prompt_model teacher_settings num_threads max_errors seed "
    "eval_kwargs track_stats".split()
)
"""Parameters that a compile sets or leaves as they are, which are no options."""


class DSPyOptimizer(Optimizer):
    """An optimizer of DSPy, whose other options are those of the class and of its `compile`, as DSPy names them."""

    model_config = ConfigDict(extra="allow")

    cls: ClassVar[type[teleprompt.Teleprompter]]

    def model_post_init(self, context: Any) -> None:
        options = self.model_extra or {}
        known = _parameters(self.cls) | _parameters(self.cls.compile)
        known = {name: parameter for name, parameter in known.items() if name not in _PROVIDED}
        if unknown := sorted(options.keys() - known.keys()):
            raise InputError(
                f"optimizer '{self.name}', option {unknown[0]}: it has no such option",
                f"Its options: {', '.join(sorted({*Optimizer.model_fields, *known}))}",
            )
        if lacking := sorted(n for n in known.keys() - options.keys() if known[n].default is inspect.Parameter.empty):
            raise InputError(f"optimizer '{self.name}' needs option {lacking[0]}", f"Give it: {lacking[0]}=VALUE")

    def compile(self, run: Compilation) -> dspy.Module:
        student = run.student.deepcopy()
        for predictor in student.predictors():
            predictor.signature = predictor.signature.with_instructions(predictor.signature.instructions)
        values = {
            "trainset": list(run.trainset),
            "valset": list(run.valset),
            "metric": run.scoring,
            "metric_threshold": run.threshold(),
            "prompt_model": run.prompt_lm,
            "teacher_settings": run.teacher_settings,
            "num_threads": run.threads,
            "seed": run.seed,
            "eval_kwargs": {"num_threads": run.threads},
            **(self.model_extra or {}),
        }
        if "eval_kwargs" in _parameters(self.cls.compile):  # it scores on the examples that it is given
            values["trainset"] = values["valset"]
        options, arguments = (
            {name: values[name] for name in _parameters(call) if name in values}
            for call in (self.cls, self.cls.compile)
        )
        with run.log.origin(self.cls.__name__):
            try:
                return self.cls(**options).compile(student, **arguments)
            except (TypedRAGError, dspy.utils.exceptions.DSPyError):
                raise
            except Exception as error:  # of any kind, as its code has it
                problem = f"optimizer '{self.name}' failed: {type(error).__name__}: {first_line(error)}"
                raise InputError(problem, "Use other options, or another optimizer") from error


def _parameters(call: Any) -> dict[str, inspect.Parameter]:
    """The named parameters of a function or class; a class that takes any has those of its base too."""
    parameters: dict[str, inspect.Parameter] = {}
    for owner in call.__mro__ if inspect.isclass(call) else [call]:
        own = inspect.signature(owner.__init__ if inspect.isclass(owner) else owner).parameters.values()
        parameters = {
            p.name: p for p in own if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        } | parameters
        if not any(p.kind is p.VAR_KEYWORD for p in own):
            break
    return parameters


def dspy_optimizer(name: str) -> type[Optimizer] | None:
    """The optimizer `dspy:NAME`; None if the name is of another form."""
    if not name.startswith(PREFIX):
        return None
    short = name.removeprefix(PREFIX)
    cls = getattr(teleprompt, short, None) if short in teleprompt.__all__ else None
    if not (inspect.isclass(cls) and issubclass(cls, teleprompt.Teleprompter)):
        raise InputError(f"DSPy has no optimizer '{short}'", names_hint("It has", short, usable_names()))
    if short in _OURS:
        raise InputError(f"{name} is {_OURS[short]} here", f"Use it: --optimizer {_OURS[short]}")
    if short in _UNUSABLE:
        why, hint = _UNUSABLE[short]
        raise InputError(f"{name} cannot be used in a compile: {why}", hint)
    about = (cls.__doc__ or "").strip().partition("\n")[0] or f"DSPy's {short}"
    return type(short, (DSPyOptimizer,), {"__module__": __name__, "cls": cls, "name": name, "about": about})


def usable_names() -> list[str]:
    """The optimizers of DSPy that a compile can use, without those that are named otherwise here."""
    classes = {n: c for n in teleprompt.__all__ if inspect.isclass(c := getattr(teleprompt, n))}
    return sorted(n for n, c in classes.items() if n not in {*_OURS, *_UNUSABLE} and c.__name__ == n)

"""Scope classifiers: does a question need one document or several (PreQRAG, section 2.1)?

Each is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with `scope`.
"""

from __future__ import annotations

import re

import dspy

from typedrag.call_context import call_context
from typedrag.errors import InputError, StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trace import Stopwatch, add_step, record_fallback
from typedrag.programs.options import Options
from typedrag.question_types import DocumentScope
from typedrag.records import Step
from typedrag.signatures import ClassifyDocumentScope

_ASKS = r"(?:what|how|why|when|where|which|who|whom|whose)"
_VERBS = r"(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have)"
_MORE = (
    r"(?:better|worse|more|less|larger|bigger|smaller|greater|higher|lower|longer|shorter|older|younger|faster|slower|"
    r"stronger|weaker|safer|healthier|cheaper|dearer|easier|harder|warmer|colder|heavier|lighter|richer|poorer|"
    r"earlier|later|sooner)"
)
_CHOICE = rf"(?:which|best|prefer|choose|should|{_MORE})"
_ONE_MATTER = (
    r"(?:pros|advantages|positives?|strengths|signs|ins|ups|rise|life|terms|names?|times?|dates?|supply|trial|"
    r"risks and benefits|benefits and risks|costs and benefits|rules and regulations) (?:and|&)"
)
"""Beginnings of pairs that documents treat together, such as "pros and cons"."""
_NO_ASPECT = (
    r"(?:out|kinds?|sorts?|types?|lots?|because|instead|most|much|many|some|one|each|all|any|none|few|several|parts?|"
    r"rest|half|third|quarter|numbers?|amounts?|plenty|pieces?|cups?|top|front|inside|outside|middle|ahead|rid|made|"
    r"think|thought|dream|hear|heard|speak|talk|consist|afraid|aware|full|capable|north|south|east|west)"
)
"""Words before "of" that name no aspect of what follows."""
_CUES: tuple[tuple[str, str], ...] = (
    ("asks twice", r"\?[^?]*\w[^?]*\?"),
    ("compares", r"\b(?:compare[sd]?|comparing|comparison|contrasts?|contrasting|versus|vs)\b"),
    ("compares", r"\b(?:differs?|differences?|distinguish(?:es)?|similar|similarit(?:y|ies)|alike|unlike)\b"),
    ("compares", r"\bdifferent (?:from|than|to)\b|\b(?:rather|\w+er) than (?!\d)|\bas opposed to\b"),
    ("compares", rf"\b{_MORE}\b[^?]*? than (?!\d)"),
    ("compares", rf"\b{_CHOICE}\b.*\bor\b|\bor\b.*\b{_CHOICE}\b"),
    (
        "joins two questions",
        rf"\b(?:and|or|but|while|also)\b,? (?:(?:also|then|in|by|for|to|on|at|with|of|from) )?(?:{_ASKS}|{_VERBS})\b",
    ),
    ("joins two matters", r"\b(?:both|respectively|as well as|along with|together with|in addition to)\b"),
    ("joins two matters", r"\bbetween (?!\d)[^?]+? and (?!\d)|\band\b[^?]*? each\b"),
    ("joins two matters", r"\b(of|in|for|by|with|from) [^?,]+? and \1\b"),
    (
        "joins two aspects",
        rf"\b(?!{_ONE_MATTER})[^\W\d]{{3,}} (?:and|&) (?:(?:the|its|their) )?(?:[\w-]+ )?"
        rf"(?!{_NO_ASPECT}\b)[^\W\d]{{3,}} of\b(?! course)",
    ),
)
_PATTERNS = tuple((cue, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for cue, pattern in _CUES)


def multi_document_cue(question: str) -> str:
    """The cue in the wording of a question that it needs several documents; empty if there is none.

    The paper names no rules. These match how its two multi-document categories (appendix D) are worded
    in English: a comparison, or two aspects that are asked for together.

    Example:
        >>> multi_document_cue("How does Azure Firewall segment networks, and what are its compliance aspects?")
        'joins two questions'
        >>> multi_document_cue("I develop protein methods and wonder what improvements are made to HDX?")
        ''
        >>> multi_document_cue("Is tea or coffee the better drink?"), multi_document_cue("Tea vs. coffee")
        ('compares', 'compares')
    """
    return next((cue for cue, pattern in _PATTERNS if pattern.search(question)), "")


class RuleScopeClassifier(dspy.Module):
    """Names a question's scope by its wording, without an LM."""

    def forward(self, question: str) -> dspy.Prediction:
        """Several documents if the wording has a cue of that."""
        return _by_rule(question)


class LMScopeClassifier(dspy.Module):
    """Names a question's scope by asking the LM.

    Args:
        options: The program's options. With classifier `either` several documents win if the rule or the LM says so,
            with `both` if they agree; the LM is only asked where the rule leaves it open. (The paper combines them and
            does not say how.)
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyDocumentScope)
        self._retries = options.retries
        self._cue_that_settles = {"either": True, "both": False}.get(str(options.preqrag.classifier))

    def forward(self, question: str) -> dspy.Prediction:
        """The scope that the LM names; the rule's if that settles it, or if the reply cannot be read.

        Raises:
            LMUnavailable: If the LM cannot be used.
        """
        if bool(multi_document_cue(question)) is self._cue_that_settles:
            return _by_rule(question)
        try:
            reply = ask("classify", self.classify, retries=self._retries, question=question)
        except StepFailed as failure:
            record_fallback(failure, "classified by rule")
            return _by_rule(question)
        scope = DocumentScope(reply.prediction.scope)
        add_step(Step("classify", question, scope, seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(scope=scope)


class FixedScopeClassifier(dspy.Module):
    """Gives every question the same scope."""

    def __init__(self, scope: DocumentScope) -> None:
        super().__init__()
        self.scope = scope

    def forward(self, question: str) -> dspy.Prediction:
        """The scope."""
        return _named(question, self.scope)


class OracleScopeClassifier(dspy.Module):
    """Names the scope that a question's dataset labels, which is its subset."""

    def forward(self, question: str) -> dspy.Prediction:
        """The scope.

        Raises:
            InputError: If the question has no such label.
        """
        subset = call_context().labels.get("subset")
        if subset not in tuple(DocumentScope):
            lack = f"subset '{subset}' is no scope" if subset else "the question has no labelled scope"
            raise InputError(
                f"the classifier is an oracle, but {lack}",
                f"Evaluate it on a dataset with the subsets {' and '.join(DocumentScope)}",
            )
        return _named(question, DocumentScope(subset))


def build_scope_classifier(options: Options) -> dspy.Module:
    """The scope classifier that the options name."""
    match options.preqrag.classifier:
        case DocumentScope() as scope:
            return FixedScopeClassifier(scope)
        case "rule":
            return RuleScopeClassifier()
        case "oracle":
            return OracleScopeClassifier()
        case _:
            return LMScopeClassifier(options)


def _by_rule(question: str) -> dspy.Prediction:
    watch = Stopwatch()
    cue = multi_document_cue(question)
    scope = DocumentScope.MULTI if cue else DocumentScope.SINGLE
    return _named(question, scope, f" (it {cue})" if cue else "", watch.seconds)


def _named(question: str, scope: DocumentScope, why: str = "", seconds: float = 0.0) -> dspy.Prediction:
    add_step(Step("classify", question, f"{scope}{why}", seconds=seconds))
    return dspy.Prediction(scope=scope)

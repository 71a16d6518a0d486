"""The nuggets of a good answer that an answer and its passages support (AutoNuggetizer: Pradeep et al. 2024)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Nugget
from typedrag.core.registry import SpecGrammar
from typedrag.datasets.dataset import question_group
from typedrag.datasets.file import read_nuggets
from typedrag.metrics.judges.support import LMSupport, open_support, shared_words
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric
from typedrag.metrics.ranking import knows_passages
from typedrag.retrieval.rerankers import cosines
from typedrag.signatures.judging import AssignNuggets, NuggetVerdict, SupportVerdict
from typedrag.signatures.roles import Role
from typedrag.text.sentences import sentences
from typedrag.text.words import split_words

MAKES = SpecGrammar("way to assign nuggets", "embedding", "nli:NAME", "cascade", "lm")
PARTIAL = 0.45
"""The cosine from which a text that does not support a nugget says a part of it."""
ENOUGH = 0.5
"""The share of the words that a nugget adds to its question which a text has if it says all of it: near sentences are
often about one thing, but say another."""
OKAY = 0.5
"""The weight of a nugget that is not vital, and the credit of partial support."""
_CREDIT = {NuggetVerdict.SUPPORT: 1.0, NuggetVerdict.PARTIAL_SUPPORT: OKAY, NuggetVerdict.NO_SUPPORT: 0.0}
_STRICT = {**_CREDIT, NuggetVerdict.PARTIAL_SUPPORT: 0.0}
_OF_ANSWER = ("vital", "vital_strict", "weighted", "weighted_strict")
_OF_PASSAGES = (*(f"passage_{name}" for name in _OF_ANSWER), "passage_used")


def nugget_recall(nuggets: Sequence[Nugget], verdicts: Sequence[NuggetVerdict]) -> dict[str, float]:
    """The shares of nuggets that a text supports: of the vital ones, and of all with others at half their weight.

    Partial support counts half, or if `strict` nothing. Without a vital nugget there is no `vital`.

    Example:
        >>> nuggets = [Nugget("It is warm."), Nugget("It is wet."), Nugget("It is old.", vital=False)]
        >>> nugget_recall(nuggets, [NuggetVerdict.SUPPORT, NuggetVerdict.PARTIAL_SUPPORT, NuggetVerdict.SUPPORT])
        {'vital': 0.75, 'vital_strict': 0.5, 'weighted': 0.8, 'weighted_strict': 0.6}
    """
    recalls = {}
    for name, okay in (("vital", 0.0), ("weighted", OKAY)):
        weights = [1.0 if nugget.vital else okay for nugget in nuggets]
        for end, credit in (("", _CREDIT), ("_strict", _STRICT)):
            if total := sum(weights):
                reached = sum(weight * credit[v] for weight, v in zip(weights, verdicts, strict=True))
                recalls[f"{name}{end}"] = reached / total
    return recalls


def without_texts(nuggets: Sequence[Nugget], ids: Collection[str]) -> tuple[Nugget, ...]:
    """The nuggets as they are known without some of the texts that they were found in, by the texts' ids."""
    known = []
    for nugget in nuggets:
        left = {text: wording for text, wording in nugget.wordings.items() if text not in ids}
        if left and nugget.text in nugget.wordings.values() and nugget.text not in left.values():
            nugget = replace(nugget, text=next(iter(left.values())))
        if left or not nugget.wordings:
            known.append(replace(nugget, wordings=left))
    return tuple(known)


@metric
class Nuggets(Metric):
    """The nuggets that an answer supports, and those that its passages support.

    Measures: `vital`, the share of the vital nuggets, `weighted`, that of all with the others at half their weight,
    and both `_strict`, without partial support, which else counts half; `density`, the weight of the nuggets that 100
    words support; the same of the passages but density, as `passage_vital` and so on; `passage_used`, the share of the
    nuggets in the passages that is in the answer. The score is `weighted`. What `passage_weighted` lacks, retrieval
    has lost; what `passage_used` lacks, the answer.

    The nuggets are the example's, or those of its question in a file.

    Args:
        file: A JSONL file of questions with `nuggets`, as `typedrag datasets build nuggets` makes it.
        make: What tells support. `embedding`: near sentences that have a nugget's names and numbers. `nli:NAME`:
            entailment by a cross-encoder. `cascade`: the LM, about what embeddings find partly supported. `lm`: the LM.
        passages: Whether passages are assigned nuggets too.
    """

    name: ClassVar[str] = "nuggets"
    measures = (*_OF_ANSWER, "density", *_OF_PASSAGES)

    file: str | Path | None = None
    make: str = "embedding"
    passages: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        MAKES.parse(self.make)
        self._lm = LMSupport(signature=AssignNuggets)
        self._support = open_support("embedding" if self.make in ("cascade", "lm") else self.make)
        _ = self._of_file

    @classmethod
    def takes_scorer(cls, options: Mapping[str, Any]) -> bool:
        return options.get("make") in ("cascade", "lm")

    @cached_property
    def _of_file(self) -> dict[str, tuple[Nugget, ...]]:
        return read_nuggets(Path(self.file)) if self.file else {}

    def nuggets(self, example: dspy.Example) -> Sequence[Nugget]:
        nuggets: Sequence[Nugget] = example.get("nuggets") or self._of_file.get(question_group(example)) or ()
        if not nuggets:
            raise NotMeasurable("the question has no nuggets")
        return nuggets

    def require(self, example: dspy.Example, measure: str = "") -> None:
        self.nuggets(example)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        nuggets = self.nuggets(example)
        verdicts = self.assign(example.question, nuggets, [prediction.answer])
        measures = nugget_recall(nuggets, verdicts)
        supported = sum(_CREDIT[v] * (1.0 if n.vital else OKAY) for n, v in zip(nuggets, verdicts, strict=True))
        measures["density"] = 100 * supported / max(1, len(split_words(prediction.answer)))
        details = [
            {"text": n.text, "vital": n.vital, "answer": v.value} for n, v in zip(nuggets, verdicts, strict=True)
        ]
        if self.passages and knows_passages(prediction):
            shown = [passage.titled for passage in prediction.get("passages") or ()]
            retrieved = self.assign(example.question, nuggets, shown)
            measures |= {f"passage_{name}": value for name, value in nugget_recall(nuggets, retrieved).items()}
            at_hand = [i for i, verdict in enumerate(retrieved) if _CREDIT[verdict]]
            used = nugget_recall([nuggets[i] for i in at_hand], [verdicts[i] for i in at_hand])
            measures |= {"passage_used": used["weighted"]} if used else {}
            details = [{**d, "passages": v.value} for d, v in zip(details, retrieved, strict=True)]
        return Scored(measures["weighted"], _in_words(details), measures, {"nuggets": details})

    def assign(self, question: str, nuggets: Sequence[Nugget], texts: Sequence[str]) -> list[NuggetVerdict]:
        """The verdict on each nugget: by the text that says most of it, or of an LM by all texts together."""
        statements, texts = [nugget.text for nugget in nuggets], [text for text in texts if text.strip()]
        verdicts = [NuggetVerdict.NO_SUPPORT] * len(statements)
        if self.make == "lm":
            return self._lm.verdicts(question, statements, texts) if texts else verdicts
        for text in texts:
            parts = sentences(text)
            parts += [f"{one} {two}" for one, two in pairwise(parts)]
            for i, support in enumerate(self._support.verdicts(question, statements, [text])):
                is_whole = self.make.startswith("nli") or shared_words(statements[i], question, text) >= ENOUGH
                verdict = NuggetVerdict.NO_SUPPORT
                if support is SupportVerdict.SUPPORTED and is_whole:
                    verdict = NuggetVerdict.SUPPORT
                elif support is not SupportVerdict.CONTRADICTED and max(cosines(statements[i], parts)) >= PARTIAL:
                    verdict = NuggetVerdict.PARTIAL_SUPPORT
                verdicts[i] = max(verdicts[i], verdict, key=_CREDIT.__getitem__)
        unsure = [i for i, verdict in enumerate(verdicts) if verdict is NuggetVerdict.PARTIAL_SUPPORT]
        if self.make == "cascade" and unsure:
            by_lm = self._lm.verdicts(question, [statements[i] for i in unsure], texts)
            for i, verdict in zip(unsure, by_lm, strict=True):
                verdicts[i] = verdict
        return verdicts

    def predictor_feedback(
        self, call: PredictorCall, example: dspy.Example, prediction: dspy.Prediction, scored: Scored
    ) -> str:
        nuggets = scored.details["nuggets"]
        if call.role is Role.SEARCHER:
            missing = [n["text"] for n in nuggets if n["vital"] and n.get("passages") == NuggetVerdict.NO_SUPPORT]
            return f"No passage that was found says: {listed(missing)}." if missing else ""
        return scored.feedback if call.role.writes else ""


def _in_words(nuggets: Sequence[Mapping[str, Any]]) -> str:
    supported = sum(nugget["answer"] == NuggetVerdict.SUPPORT for nugget in nuggets)
    messages = [f"The answer says {supported} of the {len(nuggets)} things that a good one says."]
    missing: dict[str, list[str]] = {}
    for nugget in nuggets:
        if nugget["vital"] and nugget["answer"] == NuggetVerdict.NO_SUPPORT:
            lost = nugget.get("passages") == NuggetVerdict.NO_SUPPORT
            where = ("which no passage says" if lost else "although its passages do") if "passages" in nugget else ""
            missing.setdefault(where, []).append(nugget["text"])
    messages += [f"It does not say this{where and f', {where}'}: {listed(texts)}." for where, texts in missing.items()]
    return " ".join(messages)

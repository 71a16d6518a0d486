"""References of known quality for non-factoid questions, in the manner of Wiki-NFQA (Typed-RAG, section 4.3).

The LMs and their temperatures are in appendices B.4 and B.5 of the paper, the prompts in A.1 and A.2.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from typedrag.builders.builder import Built, OpenLM, describe_failure, usable
from typedrag.builders.settings import WikiNFQASettings
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import example, sample, text_hash
from typedrag.datasets.open_domain import read_question_set
from typedrag.experiments.loading import load_type_classifier
from typedrag.files.text_files import open_text
from typedrag.lms.asking import ask, with_settings
from typedrag.lms.lm import lm_identity, use_lm
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
from typedrag.runs.work import Failed, Stages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import add_keys, require_keys, values
from typedrag.signatures.generation import LabelAnswers, RewriteAnswer, WriteWorseAnswers
from typedrag.text.words import folded

GROUND_TRUTH = "ground_truth"
"""Wiki-NFQA's author name for the answer that a question came with."""
_SUPERIOR: tuple[str, type[dspy.Signature], tuple[str, ...]] = ("rewrite", RewriteAnswer, ("root",))
_INFERIOR: tuple[str, type[dspy.Signature], tuple[str, ...]] = (
    "write", WriteWorseAnswers, ("acceptable", "poor", "senseless"),
)  # fmt: skip


@dataclass(frozen=True)
class ReferenceLMs:
    """The LMs that write references and label them. The settings set their temperatures."""

    writers: tuple[dspy.LM, ...]
    superior: dspy.LM
    annotator: dspy.LM


class WikiNFQA(WikiNFQASettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        if self.type_classifier and self.program:
            raise InputError("both a type classifier and a program are named", "Give --type-classifier or --program")
        if self.program:
            classifier, _ = load_type_classifier(self.program)
        else:
            named = {"type_classifier": self.type_classifier} if self.type_classifier else {}
            classifier = build_type_classifier(Options().with_given(named))
        writers = tuple(open_lm(spec) for spec in self.lm or (None,))
        annotator = open_lm(self.annotator) if self.annotator else writers[0]
        superior = open_lm(self.superior) if self.superior else annotator
        sets = [read_question_set(where, self.subset) for where in self.questions]
        by_name: dict[str, list[dspy.Example]] = {}
        for each in sets:
            by_name.setdefault(each.name, []).extend(each.examples)
        with use_lm(annotator):
            selected, report = self.select_non_factoid(by_name, classifier, stages)
        report.left_out["rows: their loader leaves them out"] += sum(each.skipped for each in sets)
        built = self.write_references(selected, ReferenceLMs(writers, superior, annotator), stages)
        built.left_out.update(report.left_out)
        return built

    def select_non_factoid(
        self, questions: Mapping[str, Iterable[dspy.Example]], classifier: dspy.Module, stages: Stages
    ) -> tuple[list[dspy.Example], Built]:
        """Select the non-factoid questions. The paper classifies first and then looks for patterns; here patterns come
        first, since they cost nothing, and the same questions are left."""
        report, theirs = Built(), read_patterns(self.patterns_file) if self.patterns_file else None
        by_text: dict[str, dspy.Example] = {}
        ids: set[str] = set()
        for subset, original in (
            (subset, original) for subset, originals in questions.items() for original in originals
        ):
            question = " ".join(original.question.split())
            answers = [text for text in original.get("answers") or () if text.strip()]
            answers = answers or [reference.text for reference in (original.get("references") or ())[:1]]
            if not answers:
                report.left_out["questions: without an answer"] += 1
            elif self.patterns and not (has_substring(question, theirs) if theirs else types_by_pattern(question)):
                report.left_out["questions: worded like no non-factoid question"] += 1
            elif question.casefold() in by_text:
                report.left_out["questions: it came before"] += 1
            else:
                identifier = f"{subset}_{original.id}"
                if identifier in ids:
                    raise InputError(f"two questions of '{subset}' have the id '{original.id}'", "Call the files apart")
                ids.add(identifier)
                by_text[question.casefold()] = example(
                    id=identifier, question=question, subset=subset, answers=tuple(answers)
                )

        def classify(candidate: dspy.Example) -> QuestionType:
            return QuestionType(classifier(question=candidate.question).question_type)

        candidates = list(by_text.values())
        by_subset: dict[str, list[dspy.Example]] = defaultdict(list)
        replies = stages.run("classified questions", classify, candidates)
        for candidate, named in usable(candidates, replies, report, "questions: ", "no type could be read"):
            if named not in QuestionType.non_factoid():
                report.left_out[f"questions: classified as {named}"] += 1
            else:
                by_subset[candidate.subset].append(example(**candidate.toDict(), question_type=named))
        selected: list[dspy.Example] = []
        for examples in by_subset.values():
            limit = self.per_subset or len(examples)
            if more := max(0, len(examples) - limit):
                report.left_out[f"questions: more than the {limit:,} wanted of their subset"] += more
            chosen = {e.id for e in sample(examples, limit, self.seed)}
            selected += [e for e in examples if e.id in chosen]
        return selected, report

    def write_references(self, questions: Sequence[dspy.Example], lms: ReferenceLMs, stages: Stages) -> Built:
        """Build questions with labelled references in the layout of dataset `wiki-nfqa`.

        As in the paper, a missing reference leaves the question in: nine questions of ten have eleven answers there.
        The annotator sees the answers in an order drawn by hash: in that of their authors it could tell the good ones
        by place.
        """
        if not lms.writers:
            raise InputError("no LM is to write references", "Name one or more; the paper has three")
        built, predict = Built(), predictor(LabelAnswers)
        sampling: dict[str, Any] = {"top_p": self.top_p, "max_tokens": self.max_tokens}

        def write(question: dspy.Example, *, author: _Author) -> list[str]:
            """The answers that an author writes, given the right one."""
            again = {"rollout_id": author.draw * (self.retries + 1)} if author.draw else {}  # another draw than theirs
            predict_answers = with_settings(predictor(author.signature), again)
            inputs = {"question": question.question, "right_answer": _ground_truth(question)}
            with use_lm(author.lm):
                reply = ask(author.step, predict_answers, retries=self.retries, **inputs)
            [(_, answers)] = reply.prediction.items()
            return [getattr(answers, part) for part in author.parts]

        # in the order of Wiki-NFQA's rows: the superior LM rewrites the ground truth, the others write worse answers
        authors: list[_Author] = []
        draws: Counter[str] = Counter()
        for number, lm in enumerate((lms.superior, *lms.writers)):
            step, signature, parts = _INFERIOR if number else _SUPERIOR
            same, name = f"{step} {lm_identity(lm)}", lm.model.rpartition("/")[2]
            draws.update([same, name])
            called = name if draws[name] == 1 else f"{name}-{draws[name]}"
            own = lm.copy(temperature=self.temperature, **sampling)
            authors.append(_Author(called, own, step, signature, parts, draws[same] - 1))
        replies = [
            stages.run(f"references of {author.name}", partial(write, author=author), questions) for author in authors
        ]
        answered: list[tuple[dspy.Example, dict[str, list[str]]]] = []
        for question, *of_question in zip(questions, *replies, strict=True):
            truth = _ground_truth(question)
            written, known = {GROUND_TRUTH: [truth]}, {folded(truth)}
            for author, texts in zip(authors, of_question, strict=True):
                own_texts = written[author.name] = []
                if isinstance(texts, Failed):
                    built.left_out[f"references: {describe_failure(texts)}"] += len(author.parts)
                    continue
                for text in texts:
                    if not text.strip():
                        built.left_out["references: blank"] += 1
                    elif folded(text) in known and not self.repeats:
                        built.left_out["references: it repeats another"] += 1
                    else:
                        known.add(folded(text))
                        own_texts.append(text.strip())
            answered.append((question, written))

        def label(answered: tuple[dspy.Example, dict[str, list[str]]]) -> list[int]:
            """The label of each answer, in the order of their authors (figure 7)."""
            question, answers = answered[0], list(chain.from_iterable(answered[1].values()))
            order = sorted(range(len(answers)), key=lambda n: text_hash(f"{question.id} {n}", self.seed))
            shown = add_keys([answers[n] for n in order], "a")
            reply = ask(
                "label", predict, retries=self.retries, signature=require_keys(predict.signature, shown),
                question=question.question, answers=shown,
            )  # fmt: skip
            labels = dict(zip(order, map(int, values(reply.prediction.grades)), strict=True))
            return [labels[n] for n in range(len(answers))]

        with use_lm(lms.annotator.copy(temperature=self.annotation_temperature, **sampling)):
            labelled = stages.run("labelled questions", label, answered)
        unreadable = "their answers could not be labelled"
        for (question, by_author), labels in usable(answered, labelled, built, "questions: ", unreadable):
            if len(set(labels)) < 2:
                built.left_out["questions: all their answers have the same label"] += 1
                continue
            answers = list(chain.from_iterable(by_author.values()))
            row = {
                "question_id": question.id,
                "question_text": question.question,
                "subset": question.subset,
                "predicted_type": str(question.question_type),
                "answers": list(question.answers),
                "num_answers": len(answers),
                "answer_dict": {
                    author: {f"answer{number}": text for number, text in enumerate(texts, 1)}
                    for author, texts in by_author.items()
                },
                "answer_list": answers,
                "answer_label": labels,
            }
            built.rows.append(row)
        return built


class _Author(NamedTuple):
    """An LM that writes references: its unique name, the LM with its settings, and what it is asked."""

    name: str
    lm: dspy.LM
    step: str
    signature: type[dspy.Signature]
    parts: tuple[str, ...]
    """The parts of the reply's only field: the answers from good to bad."""
    draw: int
    """The number of earlier authors with the same LM and prompt."""


def _ground_truth(question: dspy.Example) -> str:
    """A question's answer; several as one written list, as in Wiki-NFQA: it is labelled as a whole (figure 7)."""
    answers = list({folded(text): text for text in reversed(question.answers)}.values())[::-1]
    return str(answers) if len(answers) > 1 else str(answers[0])


# Section 4.3 filters by "the question patterns outlined in the NFQ taxonomy" (Bolotova et al. 2022) and does not list
# them. Here they are a table, with the words that people use for those of the taxonomy.

_BE, _DO = "is|are|was|were", "do|does|did"
_VERB = f"{_BE}|{_DO}|can|could|would|will|should|has|have|had"

PATTERNS: Mapping[QuestionType, tuple[str, ...]] = {
    QuestionType.EVIDENCE_BASED: (
        f"what {_BE}",
        "what's|how's",
        f"how {_VERB}",
        f"what {_DO} … mean|do|describe|refer",
        "what … meaning|definition|function|role|effect|effects|property|properties|feature|features|happens|happened",
        "definition|define|explain|describe",
    ),
    QuestionType.COMPARISON: (
        f"how {_BE} … to|from|than",
        f"how {_DO} … against|compare|differ",
        "what … over|between|common",
        "difference|differences|different|versus|vs|compare|compared",
        "pros and cons",
        "which|who … better|worse",
    ),
    QuestionType.EXPERIENCE: (
        "would|will|can|could you",
        "recommend|recommended|recommendations|suggest|suggestions|advice|tips",
        "how do you like|feel",
        "what … you|people think|like|prefer",
        "should i|we|you",
        "what … best|good|favorite|favourite",
    ),
    QuestionType.REASON: ("why", "how come", "what … reason|reasons|cause|causes|caused|purpose|makes|made|led"),
    QuestionType.INSTRUCTION: (
        "how to",
        f"how {_VERB} i|you|we|one|people|someone",
        "what|which … process|procedure|method|steps|way|ways",
        "what to do",
        "what can|should i|you|we do",
    ),
    QuestionType.DEBATE: (
        f"{_DO} … exist",
        "can … be|become|succeed|successful",
        "should|ought",
        f"{_DO} you|people think|believe|agree",
        f"{_BE}|{_DO}|can … really|actually|truly|worth|right|wrong|good|bad|ethical|necessary|possible",
        "what … opinion|opinions|view|views",
    ),
}
"""The patterns of each type: words in a row, `|` between alternatives, `…` for any words or none.
They may be anywhere in a question."""


def types_by_pattern(question: str) -> tuple[QuestionType, ...]:
    """The types with a pattern that a question has; possibly several, or none."""
    words = " ".join(re.findall(r"[\w']+", question.lower().replace("’", "'")))
    return tuple(t for t, patterns in PATTERNS.items() if any(_compiled(p).search(words) for p in patterns))


def read_patterns(path: Path) -> dict[str, tuple[str, ...]]:
    """The substrings that a question must hold one of, by the word in it that they are for, the last for all others.

    They are read from the authors' code, which is not run: `if "how" in …: for pattern in ["…", …]`, `elif`s alike, and
    an `else` with a list of its own.
    """
    with open_text(path) as file:
        text = file.read()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is no Python file: {error}", _AUTHORS_FILE) from None
    patterns: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.If(
                test=ast.Compare(left=ast.Constant(value=str(word)), ops=[ast.In()]),
                body=[ast.For(iter=ast.List() as listed), *_],
                orelse=others,
            ):
                patterns[word] = tuple(ast.literal_eval(listed))
                match others:
                    case [ast.For(iter=ast.List() as rest), *_]:
                        patterns[""] = tuple(ast.literal_eval(rest))
    if not patterns:
        raise InputError(f"{path} lists no patterns of questions", _AUTHORS_FILE)
    return patterns


_AUTHORS_FILE = "Name data/processing/filter_nf_dataset_and_remap_paras.py of the Typed-RAG authors' repository"


def has_substring(question: str, patterns: Mapping[str, Sequence[str]]) -> bool:
    """True if a question has one of the substrings that are for the first word it has, of any letter case."""
    lower = question.lower()
    return any(text in lower for text in next((patterns[word] for word in patterns if word in lower), ()))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern, for words with single spaces between them."""
    parts = [r"(?:\S+ )*?" if part == "…" else f"(?:{part}) " for part in pattern.split()]
    return re.compile(rf"(?<!\S){''.join(parts).removesuffix(' ')}(?!\S)")

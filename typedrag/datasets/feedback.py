"""Users' feedback on a server's answers, and a dataset made from it, to compile on real questions."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.files.database import SQLite

MOST_ANSWERS = 100_000
"""Answers kept at most; the oldest are dropped first, except those with feedback."""
LABELS = {"correction": 3, "up": 2, "down": 0}
"""The labels of references, by their origin."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, at REAL NOT NULL, answer TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS feedback (request TEXT NOT NULL, at REAL NOT NULL, who TEXT NOT NULL,"
    " rating TEXT, correction TEXT NOT NULL, question_type TEXT, PRIMARY KEY (request, who))",
)
_TRIM = (
    "DELETE FROM answers WHERE request NOT IN (SELECT request FROM feedback)"
    " AND request NOT IN (SELECT request FROM answers ORDER BY at DESC LIMIT :most)"
)
_TRIM_EVERY = 1000
_ADD = (
    "INSERT INTO feedback VALUES (:request, :at, :who, :rating, :correction, :question_type)"
    " ON CONFLICT DO UPDATE SET at = :at, rating = COALESCE(:rating, rating),"
    " correction = IIF(:rating IS NULL, correction, :correction),"
    " question_type = COALESCE(:question_type, question_type)"
)


class Rating(StrEnum):
    """A user's judgment of an answer."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Feedback:
    """A user's rating of an answered request, and perhaps a correction; or the type that the question really has. A new
    rating or type of a user, `who`, replaces the old one."""

    request: str
    rating: Rating | None
    correction: str = ""
    who: str = ""
    question_type: QuestionType | None = None


class FeedbackFile:
    """Answers and feedback on them, in an SQLite file that several processes may write; made if need be."""

    def __init__(self, path: Path) -> None:
        self._file = SQLite(path, "feedback", *_TABLES)
        self._kept = 0

    def keep(self, request: str, answer: Answer) -> None:
        text = json.dumps(answer.to_dict(), ensure_ascii=False)
        statement = "INSERT OR REPLACE INTO answers VALUES (:request, :at, :answer)"
        self._file.run(statement, request=request, at=time.time(), answer=text)
        self._kept += 1
        if self._kept % _TRIM_EVERY == 0:
            self._file.run(_TRIM, most=MOST_ANSWERS)

    def add(self, feedback: Feedback) -> bool:
        """Store feedback; False if no answer to its request is stored."""
        if not self._file.run("SELECT 1 FROM answers WHERE request = :request", request=feedback.request):
            return False
        self._file.run(
            _ADD,
            request=feedback.request,
            at=time.time(),
            who=feedback.who,
            rating=feedback.rating,
            correction=feedback.correction.strip(),
            question_type=feedback.question_type,
        )
        return True

    def __iter__(self) -> Iterator[tuple[Answer, Feedback]]:
        """Yield all feedback with the answers it is about, in the order of time."""
        rows = self._file.run(
            "SELECT a.answer, f.request, f.rating, f.correction, f.who, f.question_type FROM feedback f"
            " JOIN answers a ON a.request = f.request ORDER BY f.at"
        )
        for answer, request, rating, correction, who, type_ in rows:
            feedback = Feedback(request, rating and Rating(rating), correction, who, type_ and QuestionType(type_))
            yield Answer.from_dict(json.loads(answer)), feedback


def rows_from_feedback(feedbacks: Iterable[tuple[Answer, Feedback]]) -> list[dict[str, Any]]:
    """A row of dataset `file` for each question with a good answer or a type that somebody said.

    It has the references, best first, and their passages: a correction is the best reference, an answer rated good the
    next, one rated bad the worst. Only bad answers are nothing to measure by, and make no references. `question_type`
    is what was said last.
    """
    references: dict[str, dict[str, int]] = defaultdict(dict)
    passages: dict[str, dict[str, None]] = defaultdict(dict)
    types: dict[str, QuestionType] = {}
    for answer, feedback in feedbacks:
        labels = references[answer.question]
        if feedback.correction:
            labels[feedback.correction] = LABELS["correction"]
        if feedback.rating:
            labels[answer.answer] = LABELS[feedback.rating]
        if feedback.rating is Rating.UP:
            passages[answer.question].update(dict.fromkeys(answer.citations))
        if feedback.question_type:
            types[answer.question] = feedback.question_type
    rows = []
    for question, labels in references.items():
        row: dict[str, Any] = {"question_type": types[question]} if question in types else {}
        if max(labels.values(), default=LABELS["down"]) > LABELS["down"]:
            ordered = sorted(labels.items(), key=lambda pair: -pair[1])
            row["references"] = [{"text": text, "label": label} for text, label in ordered]
        if passages[question]:
            row["passage_ids"] = list(passages[question])
        if row:
            rows.append({"question": question, **row})
    return rows

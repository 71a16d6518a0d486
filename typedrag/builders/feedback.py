"""What users of a server say of its answers, and a dataset made of it: what is compiled on what was asked."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from typedrag.files.sqlite import SQLiteFile
from typedrag.records import Answer

MOST_ANSWERS = 100_000
"""Answers that are kept; the oldest go first, unless something was said of them."""
LABELS = {"correction": 3, "up": 2, "down": 0}
"""Of a reference, by how it came to be one."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, at REAL NOT NULL, answer TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS feedback (request TEXT NOT NULL, at REAL NOT NULL, who TEXT NOT NULL,"
    " rating TEXT NOT NULL, correction TEXT NOT NULL, PRIMARY KEY (request, who))",
)
_TRIM = (
    "DELETE FROM answers WHERE request NOT IN (SELECT request FROM feedback)"
    " AND request NOT IN (SELECT request FROM answers ORDER BY at DESC LIMIT :most)"
)
_TRIM_EVERY = 1000


class Rating(StrEnum):
    """Whether an answer is good."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Feedback:
    """What somebody says of an answer.

    Attributes:
        request: The id of the request that it answered.
        rating: Whether it is good.
        correction: A better answer; may be empty.
        who: Says so, such as the name of a key; who speaks again takes back what was said before.
    """

    request: str
    rating: Rating
    correction: str = ""
    who: str = ""


class FeedbackFile:
    """Answers that were given, and what was said of them, in an SQLite file that several processes may write.

    Args:
        path: Of the file, which holds questions as they were asked; made if need be.

    Raises:
        InputError: If it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._file = SQLiteFile(path, "feedback", *_TABLES)
        self._kept = 0

    def keep(self, request: str, answer: Answer) -> None:
        """Keep an answer, so that something can be said of it.

        Raises:
            StorageFull: If it cannot be written.
        """
        text = json.dumps(answer.to_dict(), ensure_ascii=False)
        statement = "INSERT OR REPLACE INTO answers VALUES (:request, :at, :answer)"
        self._file.run(statement, request=request, at=time.time(), answer=text)
        self._kept += 1
        if self._kept % _TRIM_EVERY == 0:
            self._file.run(_TRIM, most=MOST_ANSWERS)

    def add(self, feedback: Feedback) -> bool:
        """Keep what is said of an answer; False if there is no answer to that request.

        Raises:
            StorageFull: If it cannot be written.
        """
        if not self._file.run("SELECT 1 FROM answers WHERE request = :request", request=feedback.request):
            return False
        self._file.run(
            "INSERT OR REPLACE INTO feedback VALUES (:request, :at, :who, :rating, :correction)",
            request=feedback.request,
            at=time.time(),
            who=feedback.who,
            rating=str(feedback.rating),
            correction=feedback.correction.strip(),
        )
        return True

    def __iter__(self) -> Iterator[tuple[Answer, Feedback]]:
        """All that was said, with the answers it was said of, in the order that it was said in."""
        rows = self._file.run(
            "SELECT a.answer, f.request, f.rating, f.correction, f.who FROM feedback f"
            " JOIN answers a ON a.request = f.request ORDER BY f.at"
        )
        for answer, request, rating, correction, who in rows:
            yield Answer.from_dict(json.loads(answer)), Feedback(request, Rating(rating), correction, who)


def rows_from_feedback(said: Iterable[tuple[Answer, Feedback]]) -> list[dict[str, Any]]:
    """A row of dataset `file` for each question with a good answer: its references, best first, and their passages.

    A correction is the best reference, an answer that was called good the next, one that was called bad the worst.
    A question with none but bad answers has nothing to be measured by, and is left out.
    """
    references: dict[str, dict[str, int]] = defaultdict(dict)
    passages: dict[str, dict[str, None]] = defaultdict(dict)
    for answer, feedback in said:
        labels = references[answer.question]
        if feedback.correction:
            labels[feedback.correction] = LABELS["correction"]
        labels[answer.answer] = LABELS[feedback.rating]
        if feedback.rating is Rating.UP:
            passages[answer.question].update(dict.fromkeys(answer.citations))
    rows = []
    for question, labels in references.items():
        if max(labels.values()) == LABELS["down"]:
            continue
        ordered = sorted(labels.items(), key=lambda pair: -pair[1])
        row = {"question": question, "references": [{"text": text, "label": label} for text, label in ordered]}
        rows.append({**row, **({"passage_ids": list(passages[question])} if passages[question] else {})})
    return rows

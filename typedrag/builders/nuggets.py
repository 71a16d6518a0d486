"""Nuggets of good answers, from texts that people gave or labelled (AutoNuggetizer: Pradeep et al. 2024)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import dspy

from typedrag.builders.builder import Built, OpenLM, count_rows, usable
from typedrag.builders.settings import NuggetsSettings
from typedrag.core.records import Nugget
from typedrag.datasets.dataset import make_id
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.metrics.judges.support import EmbeddingSupport
from typedrag.metrics.overlap import good_references
from typedrag.retrieval.rerankers import cosines
from typedrag.runs.work import Stages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import WrittenNugget
from typedrag.signatures.generation import ListNuggets
from typedrag.signatures.judging import SupportVerdict


class Nuggets(NuggetsSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        with use_lm(open_lm(None)):
            return self.list_nuggets(self.draw(), stages)

    def counts(self, built: Built) -> dict[str, int]:
        """The number of vital nuggets and of others."""
        return count_rows([nugget for row in built.rows for nugget in row["nuggets"]], *self.counted)

    def list_nuggets(self, questions: Iterable[dspy.Example], stages: Stages) -> Built:
        """Build rows of dataset `file` that have the nuggets of questions."""
        built, predict = Built(), predictor(ListNuggets)
        pairs = []
        for question in questions:
            gold = "; ".join(question.get("answers") or ())
            texts = dict.fromkeys(t for t in (*good_references(question)[: self.texts], gold) if t.strip())
            pairs += [(question, text) for text in texts]
            built.left_out["questions: no good passage, reference or gold answer"] += not texts

        def write(pair: tuple[dspy.Example, str]) -> list[WrittenNugget]:
            question, text = pair
            reply = ask("list nuggets", predict, retries=self.retries, question=question.question, passage=text)
            return list(reply.prediction.nuggets.root)

        written: dict[str, tuple[dspy.Example, list[tuple[str, WrittenNugget]]]] = {}
        for (question, text), nuggets in usable(pairs, stages.run("texts", write, pairs), built, "texts: "):
            _, of_question = written.setdefault(str(question.id), (question, []))
            of_question += [(make_id(text), nugget) for nugget in nuggets]
        for question, statements in written.values():
            nuggets = merge_nuggets(question.question, statements, self.alike)
            if not nuggets:
                built.left_out["questions: no nugget was found"] += 1
                continue
            row = {
                "id": str(question.id),
                **({"subset": question.subset} if question.get("subset") else {}),
                "question": question.question,
                "nuggets": [asdict(nugget) for nugget in nuggets[: self.most]],
            }
            built.rows.append(row)
        return built


def merge_nuggets(question: str, statements: Sequence[tuple[str, WrittenNugget]], alike: float) -> list[Nugget]:
    """Nuggets without repetitions, the vital ones first, then by the number of texts that say them.

    A statement, which comes with the id of its text, joins the nearest nugget before it if they are alike and that one
    supports it, see `EmbeddingSupport`: numbers and names keep it apart. A nugget is vital if half of its statements
    are.
    """
    groups: list[list[tuple[str, WrittenNugget]]] = []
    same = EmbeddingSupport()
    cosines(question, [statement.text for _, statement in statements])  # embeds them in batches; they are kept
    for source, statement in statements:
        near = cosines(statement.text, [group[0][1].text for group in groups])
        nearest = max(range(len(groups)), key=near.__getitem__, default=None)
        if nearest is not None and near[nearest] >= alike:
            [verdict] = same.verdicts(question, [statement.text], [groups[nearest][0][1].text])
            if verdict is SupportVerdict.SUPPORTED:
                groups[nearest].append((source, statement))
                continue
        groups.append([(source, statement)])
    nuggets = []
    for group in groups:
        vital = 2 * sum(statement.importance == "vital" for _, statement in group) >= len(group)
        wordings: dict[str, str] = {}
        for source, statement in group:
            wordings.setdefault(source, statement.text)
        nuggets.append(Nugget(group[0][1].text, vital, wordings))
    return sorted(nuggets, key=lambda nugget: (not nugget.vital, -len(nugget.wordings)))

"""The compound benchmark: questions about one entity, joined by an LM (HANRAG, appendix C.1)."""

import re
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from random import Random

import dspy

from typedrag.builders.builder import Built, OpenLM, part_by_hash, usable
from typedrag.builders.settings import CompoundSettings
from typedrag.core.errors import InputError
from typedrag.core.question_types import Route
from typedrag.core.records import Passage
from typedrag.datasets.dataset import make_id, text_hash
from typedrag.datasets.open_domain import SingleHop, read_single_hop
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_lm
from typedrag.metrics.overlap import ENTITY_SEPARATOR, contains
from typedrag.retrieval import read_passages
from typedrag.runs.work import Stages
from typedrag.signatures.fields import number_passages
from typedrag.signatures.generation import AskAboutEntity, JoinQuestions
from typedrag.text.words import content_words

_ASKED = 0.5
"""The share of a question's own words that a joined question must have to count as asking for it."""
_POSSESSIVE = re.compile(r"['’](s\b)?")
_QUALIFIER = re.compile(r"\s+\([^()]*\)$")
"""Wikipedia's addition that tells entities of one name apart; no question says it."""


class Compound(CompoundSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        if bool(self.questions) == bool(self.passages):
            raise InputError("either single questions or passages are needed", "Give --questions or --passages")
        with use_lm(open_lm(None)):
            singles, report = [single for path in self.questions for single in read_single_hop(path)], Built()
            if self.passages:
                singles, report = self.write_single_hop(lambda: read_passages(self.passages), stages)
            built = self.join(singles, stages)
        built.left_out.update(report.left_out)
        return built

    def write_single_hop(
        self, passages: Callable[[], Iterable[Passage]], stages: Stages
    ) -> tuple[list[SingleHop], Built]:
        """Write questions from passages, whose titles are the entities. With a limit, the entities are used in the
        order in which they are drawn, until there are enough compound questions to try."""
        report = Built()
        count = Counter(passage.title for passage in passages())
        if nameless := sum(count.pop(title) for title in list(count) if not title.strip()):
            report.left_out["passages without a title"] = nameless
        several = [entity for entity, number in count.items() if number > 1]
        if alone := len(count) - len(several):
            report.left_out["entities with one passage"] = alone
        # the passages of each entity, drawn by the hashes of their ids; never more are held than needed
        held: dict[str, list[Passage]] = {entity: [] for entity in self._draw_entities(several, report)}
        for passage in passages():
            if (drawn := held.get(passage.title)) is not None:
                insort(drawn, passage, key=lambda p: text_hash(p.id, self.seed))
                del drawn[self.documents :]
        waiting, predict = list(held.values()), dspy.Predict(AskAboutEntity)

        def write(passage: Passage) -> tuple[str, str]:
            [shown] = number_passages([passage], self.passage_words)
            reply = ask("write", predict, retries=self.retries, passage=shown, entity=passage.title)
            pair = reply.prediction.asked
            return pair.question, pair.answer

        singles: list[SingleHop] = []
        tried = 0
        while waiting and (self.limit is None or tried < self.limit):
            size = len(waiting) if self.limit is None else ceil((self.limit - tried) / self.per_entity)
            chosen = [passage for group in waiting[:size] for passage in group]
            del waiting[:size]
            usable_singles = []
            replies = stages.run("single questions", write, chosen, more=True)
            for passage, (question, answer) in usable(chosen, replies, report, "single questions: "):
                name = _POSSESSIVE.sub("", _QUALIFIER.sub("", passage.title))
                if not contains(passage.text, answer):
                    report.left_out["single questions: the answer does not stand in the passage"] += 1
                elif contains(question, answer):
                    report.left_out["single questions: the answer stands in the question"] += 1
                elif not contains(_POSSESSIVE.sub("", question), name):
                    report.left_out["single questions: the entity does not stand in the question"] += 1
                else:
                    usable_singles.append(SingleHop(question, answer, passage.title, (passage,)))
            tried += len(self._combine(usable_singles, Built()))
            singles += usable_singles
        stages.end("single questions")
        if waiting:
            report.left_out["entities that the limit has no need of"] = len(waiting)
        return singles, report

    def join(self, singles: Iterable[SingleHop], stages: Stages) -> Built:
        """Build compound questions in the layout of dataset `compound`; no entity is in two of train, validation and
        test."""
        built = Built()
        groups = self._combine(singles, built)
        predict = dspy.Predict(JoinQuestions)
        shares = {"validation": self.validation_share, "test": self.test_share}

        def ask_for_joined(group: Sequence[SingleHop]) -> tuple[bool, str]:
            questions = [single.question for single in group]
            reply = ask("join", predict, retries=self.retries, entity=group[0].entity, questions=questions).prediction
            return reply.joinable, reply.question.root

        replies = stages.run("compound questions", ask_for_joined, groups)
        for group, (joinable, question) in usable(groups, replies, built, "compound questions: "):
            entity = group[0].entity
            if reason := _find_fault(question, group) if joinable else "the LM finds that they cannot be joined":
                built.left_out[f"compound questions: {reason}"] += 1
                continue
            row = {
                "id": make_id(question, *(s.question for s in group)),
                "subset": part_by_hash(entity, self.seed, **shares),
                "entity": entity,
                "question": question,
                "route": Route.COMPOUND.value,
                "answers": [f" {ENTITY_SEPARATOR} ".join(s.answer for s in group)],
                "sub_queries": [s.question for s in group],
                "sub_answers": [s.answer for s in group],
                "passage_ids": list(dict.fromkeys(p.id for s in group for p in s.relevant)),
            }
            built.rows.append(row)
        return built

    def _combine(self, singles: Iterable[SingleHop], built: Built) -> list[tuple[SingleHop, ...]]:
        """The groups of questions to join: drawn by entity, so that one more entity changes no other's groups."""
        of_entity: dict[str, dict[str, SingleHop]] = defaultdict(dict)
        for single in singles:
            if single.entity and single.answer:
                of_entity[single.entity].setdefault(single.question.casefold(), single)
            else:
                built.left_out["single questions: without an entity or an answer"] += 1
        groups: dict[tuple[str, ...], tuple[SingleHop, ...]] = {}
        enough = [entity for entity, questions in of_entity.items() if len(questions) >= min(self.hops)]
        if few := len(of_entity) - len(enough):
            built.left_out["entities with too few questions"] += few
        for entity in self._draw_entities(enough, built):
            questions = of_entity[entity]
            hops = [n for n in self.hops if n <= len(questions)]
            rng = Random(f"{self.seed}:{entity}")
            for _ in range(self.per_entity):
                group = tuple(rng.sample(list(questions.values()), rng.choice(hops)))
                groups.setdefault((entity, *sorted(s.question for s in group)), group)
        order = sorted(groups, key=lambda key: text_hash("\x1f".join(key), self.seed))
        return [groups[key] for key in order[: self.limit]]

    def _draw_entities(self, entities: Sequence[str], built: Built) -> list[str]:
        """The entities for questions, in the order in which they are drawn."""
        chosen = sorted(entities, key=lambda entity: text_hash(entity, self.seed))[: self.entities]
        if more := len(entities) - len(chosen):
            built.left_out["more entities than are wanted"] += more
        return chosen


def _find_fault(question: str, group: Sequence[SingleHop]) -> str:
    entity = content_words(group[0].entity)
    for single in group:
        own = content_words(single.question) - entity
        if len(own & content_words(question)) < _ASKED * len(own):
            return "not all parts are asked for"
        if contains(question, single.answer) and not any(contains(s.question, single.answer) for s in group):
            return "an answer stands in the question"
    return ""

"""The revelator's training set, made from the files of other datasets (HANRAG, section 4.2, appendix C)."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Any

from pydantic import TypeAdapter, ValidationError

from typedrag.builders.builder import Built, OpenLM, Row, part_by_hash, usable
from typedrag.builders.settings import RevelatorDataSettings, RouterTestSettings
from typedrag.core.errors import InputError
from typedrag.core.question_types import RevelatorRole, Route
from typedrag.core.records import Passage
from typedrag.datasets import load_compound
from typedrag.datasets.dataset import load_dataset, make_id, text_hash
from typedrag.datasets.open_domain import read_single_hop
from typedrag.datasets.reasoning_chains import ReasoningChain, musique_chains, two_wiki_chains
from typedrag.lms.lm import use_lm
from typedrag.programs.hanrag import REVELATOR_SIGNATURES, RevelatorModule
from typedrag.programs.options import Options
from typedrag.runs.work import Stages
from typedrag.signatures.fields import AS_ASKED_FOR, number_passages
from typedrag.text.words import question_key

_OUTPUTS: dict[RevelatorRole, tuple[str, TypeAdapter[Any]]] = {
    role: next((name, TypeAdapter(field.annotation)) for name, field in signature.output_fields.items())
    for role, signature in REVELATOR_SIGNATURES.items()
}
_UNSOLVED = re.compile(r"#\d|>>")
"""A remainder of MuSiQue's notation in a step that cannot be written out."""
_ENTITY = "entity"
"""The field by which a row is dealt out instead of by its question; removed from the built row."""


class RevelatorData(RevelatorDataSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        rows_of_sources = list(self._rows_of_sources())
        if not rows_of_sources:
            raise InputError("the revelator has nothing to learn from", "Name one of the files: --musique FILE, …")
        tested = {question_key(single.question) for path in self.exclude for single in read_single_hop(path)}
        built = Built()

        def fits(row: Row) -> bool:
            output, adapter = _OUTPUTS[RevelatorRole(row["role"])]
            try:
                adapter.validate_python(row[output], context=AS_ASKED_FOR)
            except ValidationError:
                return False
            return not _UNSOLVED.search(f"{row['question']} {row[output]}")

        rows: dict[str, Row] = {}
        for row in rows_of_sources:
            if question_key(row["question"]) in tested:
                built.left_out["the question is tested on"] += 1
            elif not fits(row):
                built.left_out[f"{row['role']}: it cannot be written so"] += 1
            elif row["id"] in rows:
                output = _output_name(row)
                same = rows[row["id"]][output] == row[output]
                built.left_out["it came before" if same else "it came before with another label"] += 1
            else:
                rows[row["id"]] = row
        shares = {"validation": self.validation_share, "test": self.test_share}
        for row in rows.values():
            dealt_by = row.pop(_ENTITY, None) or question_key(row["question"])
            row["part"] = part_by_hash(dealt_by, self.seed, **shares)
        built.rows = self._draw_rows(list(rows.values()), built)
        if not self.label_relevance:
            return built
        with use_lm(open_lm(None)):
            return _label_relevance(built, stages)

    def _rows_of_sources(self) -> Iterator[Row]:
        """Yield routes, parts, relevance, and refinements of one-step questions to themselves (appendix C.4)."""
        for single in read_single_hop(self.straightforward) if self.straightforward else ():
            yield role_row(RevelatorRole.ROUTER, "straightforward", single.question, route=Route.STRAIGHTFORWARD.value)
        for single in chain.from_iterable(map(read_single_hop, self.single_step)):
            question, query = single.question, _as_query(single.question)
            yield role_row(RevelatorRole.ROUTER, "single-step", question, route=Route.SINGLE_STEP.value)
            yield role_row(RevelatorRole.REFINER, "single-step", question, solved=[], query=query)
            yield from self._relevance_rows("single-step", question, single.relevant[:1], single.noise)
        if self.musique:
            yield from self._chain_rows("musique", musique_chains(self.musique))
        if self.two_wiki:
            yield from self._chain_rows("2wikimultihopqa", two_wiki_chains(self.two_wiki))
        for compound in load_compound(self.compound, "train").examples if self.compound else ():
            # questions about one entity share their parts, so they are dealt out together
            question, shared = compound.question, {_ENTITY: compound.entity}
            yield role_row(RevelatorRole.ROUTER, "compound", question, route=Route.COMPOUND.value) | shared
            parts = list(compound.sub_queries)
            yield role_row(RevelatorRole.DECOMPOSER, "compound", question, sub_queries=parts) | shared

    def _chain_rows(self, origin: str, chains: Iterator[ReasoningChain]) -> Iterator[Row]:
        """Yield the rows of the steps to an answer: each step is the next query, and only the last one ends them."""
        for reasoning in nsmallest(self.limit, chains, key=lambda c: text_hash(c.id, self.seed)):
            if origin == "musique":
                yield role_row(RevelatorRole.ROUTER, origin, reasoning.question, route=Route.COMPLEX.value)
            solved: list[dict[str, str]] = []
            for number, step in enumerate(reasoning.steps, 1):
                query = _as_query(step.query)
                if origin == "musique":
                    yield role_row(RevelatorRole.ROUTER, origin, query, route=Route.SINGLE_STEP.value)
                yield role_row(RevelatorRole.REFINER, origin, reasoning.question, solved=list(solved), query=query)
                yield from self._relevance_rows(origin, query, step.relevant, reasoning.noise)
                solved.append({"question": query, "answer": step.answer})
                ending = number == len(reasoning.steps)
                yield role_row(RevelatorRole.ENDING, origin, reasoning.question, solved=list(solved), ending=ending)

    def _relevance_rows(
        self, origin: str, query: str, relevant: Sequence[Passage], noise: Sequence[Passage]
    ) -> Iterator[Row]:
        drawn = sorted(noise, key=lambda p: text_hash(f"{query} {p.id}", self.seed))[: self.noise]
        for passage, label in chain(((p, True) for p in relevant), ((p, False) for p in drawn if relevant)):
            shown = {"title": passage.title, "text": passage.text}
            yield role_row(RevelatorRole.RELEVANCE, origin, query, passage=shown, relevant=label)

    def _draw_rows(self, rows: list[Row], built: Built) -> list[Row]:
        """The rows: of a kind at most `limit` to train on, and as many for the other parts as their shares allow."""
        strata: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: text_hash(row["id"], self.seed)):
            label = row.get("route") or row.get("relevant") or row.get("ending") or ""
            origin = "" if row["role"] == RevelatorRole.ROUTER else row["origin"]
            strata[(row["role"], origin, str(label), row["part"])].append(row)
        whole = self.limit / (1 - self.validation_share - self.test_share)
        limits = {
            "train": self.limit,
            "validation": round(whole * self.validation_share),
            "test": round(whole * self.test_share),
        }
        chosen = {row["id"] for (*_, part), stratum in strata.items() for row in stratum[: limits[part]]}
        if more := len(rows) - len(chosen):
            built.left_out[f"more than the {self.limit:,} wanted of their kind"] += more
        return [row for row in rows if row["id"] in chosen]


def _label_relevance(built: Built, stages: Stages) -> Built:
    """The same rows with relevance as the LM in use labels it (section 4.2), instead of the sources' labels."""
    options = Options()
    judge = RevelatorModule(RevelatorRole.RELEVANCE, options)
    rows = [row for row in built.rows if row["role"] == RevelatorRole.RELEVANCE]

    def label(row: Row) -> bool:
        passage = Passage("", row["passage"]["text"], row["passage"]["title"])
        [shown] = number_passages([passage], options.passage_words)
        return bool(judge(question=row["question"], passage=shown).relevant)

    result = Built(left_out=built.left_out.copy())
    replies = stages.run("labels", label, rows)
    labels = {row["id"]: named for row, named in usable(rows, replies, result, "relevance: ", "no label could be read")}
    for row in built.rows:
        if row["role"] != RevelatorRole.RELEVANCE:
            result.rows.append(row)
        elif row["id"] in labels:
            result.rows.append({**row, "relevant": labels[row["id"]]})
    return result


def role_row(role: RevelatorRole, origin: str, question: str, **fields: Any) -> Row:
    """A row of a role, with an id by its inputs; `fields` are its other inputs and its output."""
    row = {"role": role.value, "origin": origin, "question": " ".join(question.split()), **fields}
    inputs = [str(value) for name, value in row.items() if name not in ("origin", _output_name(row))]
    return {"id": make_id(*inputs), **row}


def _output_name(row: Mapping[str, Any]) -> str:
    return _OUTPUTS[RevelatorRole(row["role"])][0]


def _as_query(question: str) -> str:
    """The question in the refiner's form: with a question mark, which typed search queries lack."""
    question = " ".join(question.split()).rstrip(" .?")
    return f"{question}?"


class RouterTest(RouterTestSettings):
    def build(self, stages: Stages, open_lm: OpenLM) -> Built:
        def tested(named: str) -> tuple[str, list[str]]:
            """The name of a dataset and the questions of its test split, from NAME or NAME=PATH."""
            name, _, path = named.partition("=")
            dataset = load_dataset(name, path or None)
            return name, [example.question for example in dataset.split(dataset.default_split)]

        easy = [single.question for path in self.straightforward for single in read_single_hop(path)]
        questions = {
            Route.STRAIGHTFORWARD: {"straightforward": easy},
            Route.SINGLE_STEP: dict(map(tested, self.single_step)),
            Route.COMPOUND: dict([tested(f"compound={self.compound}")]),
            Route.COMPLEX: dict(map(tested, self.complex)),
        }
        return self.draw(questions)

    def draw(self, questions: Mapping[Route, Mapping[str, Sequence[str]]]) -> Built:
        """Draw the questions, as rows of dataset `revelator` whose part is test."""
        built = Built()
        came: set[str] = set()
        for route, origins in questions.items():
            for number, (origin, texts) in enumerate(origins.items()):
                share = self.each // len(origins) + (number < self.each % len(origins))
                new = {key: text for text in texts if (key := question_key(text)) not in came}
                built.left_out["it came before"] += len(texts) - len(new)
                came |= new.keys()
                for text in nsmallest(share, new.values(), key=lambda text: text_hash(text, self.seed)):
                    row = role_row(RevelatorRole.ROUTER, origin, text, route=route.value)
                    built.rows.append({**row, "part": "test"})
        return built

"""The gain of Typed-RAG's strategies over retrieval for the question alone, by people's labels.

For each question this compares the passages that `rag` and `typed_rag` would answer from, both reranked: nDCG@5 (a
passage gains its label above the lowest, so that one out of context gains nothing) and the number of good ones among
the first five. Since several queries give a reranker more to choose from, `deep` is `rag` with as many candidates as
`typed_rag` had, and `fusion` is `rag_fusion`, which searches with variants of the question, as many as `typed_rag` has
sub-queries at most: the worth of a decomposition is what it adds to these. No answer is written, so an LM is asked only
for queries, whose replies are kept. The result is a table in Markdown, a row for each question type, one for all and
one for the questions that were decomposed: means, and the differences of typed_rag from the others, with the 95 %
bootstrap interval over questions.

The dataset is ANTIQUE, or TREC-DL-NF, which `python -m scripts.trec_dl` makes of TREC's questions and labels.

Questions are taken in turn from each type, so that the rows of a killed run are of use; the next run continues
from there. With --base, typed_rag is also compared with the rows of another run. With --types, a JSON file of question
types by id, such as those by hand in configs/question_types.json, the types are these: what right types are worth.

Rows that are at hand need no LM: benchmarks/typed_retrieval_antique.jsonl and its neighbour hold those of the docs.

    python -m benchmarks.typed_retrieval antique.json.gz INDEX --fusion --lm vllm:qwen --out rows.jsonl
"""

import argparse
import contextvars
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

import dspy

from typedrag.cli.terminal import run
from typedrag.core.call_context import use_context
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import sample
from typedrag.experiments.config_file import with_settings
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.threads import thread_pool
from typedrag.metrics.estimate import mean_estimate
from typedrag.metrics.ranking import ranking_measures, searches
from typedrag.programs import RAG, Options, Program, RAGFusion, TypedRAG
from typedrag.programs.answering import PassageAnswerer
from typedrag.programs.typed_rag.strategies import DecomposingStrategy
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
from typedrag.retrieval import open_reranker, open_retriever
from typedrag.signatures.fields import Citations

K = 5
TOKENS = 400
"""Tokens of a decomposition at most; the longest have 250."""
LOWEST = {"antique": 1, "trec-dl-nf": 0}
"""The label of an irrelevant passage, by dataset."""

Row = dict[str, Any]


class Unwritten(dspy.Module):
    """A substitute for a predictor that writes an answer."""

    def __init__(self, predictor: dspy.Predict) -> None:
        super().__init__()
        self.signature = predictor.signature

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """A reply without an LM call."""
        return dspy.Prediction(answered=True, citations=Citations([]), answer="-")


def without_answers(program: Program) -> Program:
    """The program without predictors of answers: it still decomposes, retrieves, reranks and pools."""
    for _, module in program.named_sub_modules():
        if isinstance(module, PassageAnswerer):
            module.predict = Unwritten(module.predict)
        elif isinstance(module, DecomposingStrategy) and hasattr(module, "combine"):
            module.combine = Unwritten(module.combine)
    program.answer_without_passages = Unwritten(program.answer_without_passages)
    return program


def measure(passages: Sequence[Passage], example: dspy.Example, lowest: int) -> dict[str, Any]:
    """nDCG and the number of good passages among the first `K`, their ids, and the number of all passages."""
    gains = {" ".join(r.text.split()): r.label - lowest for r in example.references}
    ranked = [" ".join(p.text.split()) for p in passages]
    ndcg = ranking_measures(ranked, gains, K)["ndcg"]
    good = len({" ".join(text.split()) for text in example.passage_texts} & set(ranked[:K]))
    return {"ndcg": ndcg, "good": good, "passages": len(passages), "ids": [p.id for p in passages[:K]]}


def as_deep(prediction: dspy.Prediction, program: Program) -> list[Passage]:
    """The best passages for the question alone, from as many candidates as all queries of a prediction found."""
    assert program.retriever is not None
    candidates = {passage_id for ids in searches(prediction) for passage_id in ids}
    [passages] = program.retriever.search([prediction.question], max(len(candidates), K))
    return program.reranker.rerank(prediction.question, passages, K)


def row_of(example: dspy.Example, lowest: int, rag: Program, typed: Program, fusion: Program | None) -> Row:
    """The row of a question: the programs' passages, measured, and its decomposition."""
    with use_context(labels=example.toDict()):
        plain, own = rag(question=example.question), typed(question=example.question)
    parts = next((step for step in own.steps if step.name == "decompose"), None)
    varied = {"fusion": measure(fusion(question=example.question).passages, example, lowest)} if fusion else {}
    return {
        "id": example.id,
        "question_type": own.question_type,
        "rag": measure(plain.passages, example, lowest),
        "deep": measure(as_deep(own, rag), example, lowest),
        **varied,
        "typed": measure(own.passages, example, lowest),
        "decomposed": parts.output if parts else "",
        "dropped": [text for step in own.steps for text in step.dropped],
        "fallback": own.fallback,
        "tokens": own.usage.prompt_tokens + own.usage.completion_tokens,
    }


def table(rows: Iterable[Row], ways: Sequence[str]) -> str:
    """Means of each program by question type, and differences of the last from the others, in Markdown."""
    by_type: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_type[row["question_type"]].append(row)
    every = [row for some in by_type.values() for row in some]
    everything = {**dict(sorted(by_type.items())), "all": every}
    if decomposed := [row for row in every if row["decomposed"]]:
        everything["decomposed"] = decomposed
    measures = ("ndcg", "good")
    *others, last = ways
    head = ["type", "n", *(f"{m}: {w}" for m in measures for w in (*ways, *(f"{last} − {way}" for way in others)))]
    lines = [head, ["---"] * len(head)]
    for name, some in everything.items():
        cells = [name, str(len(some))]
        for measure in measures:
            cells += [f"{fmean(row[way][measure] for row in some):.3f}" for way in ways]
            cells += [str(mean_estimate([r[last][measure] - r[way][measure] for r in some])) for way in others]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _type_of(classifier: dspy.Module, example: dspy.Example) -> QuestionType:
    with use_context(labels=example.toDict()):
        return QuestionType(classifier(question=example.question).question_type)


def read_rows(file: Path) -> dict[str, Row]:
    """The rows of a run by question id."""
    return {row["id"]: row for row in map(json.loads, file.read_text("utf-8").splitlines())} if file.exists() else {}


def measure_all(examples: Sequence[dspy.Example], one: Callable[[dspy.Example], Row], out: Path, threads: int) -> None:
    """Measure the questions without a row in the file, and append their rows as they come."""
    rows = read_rows(out)
    left = [e for e in examples if e.id not in rows]
    with thread_pool(threads) as pool, out.open("a", encoding="utf-8") as file:
        # the LM in use belongs to the context, which threads do not take over by themselves
        begun = [pool.submit(contextvars.copy_context().run, one, example) for example in left]
        for done in as_completed(begun):
            print(json.dumps(done.result(), ensure_ascii=False), file=file, flush=True)


def beside(rows: Mapping[str, Row], base: Mapping[str, Row]) -> list[Row]:
    """The rows that both runs have, with typed_rag's measures of the other run as `before`."""
    return [{**row, "before": base[key]["typed"]} for key, row in rows.items() if key in base]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="as the LINKAGE authors prepared it")
    parser.add_argument("--dataset", choices=tuple(LOWEST), default="antique", help="what the data is")
    parser.add_argument("index", type=Path, help="of its passages")
    parser.add_argument("--out", type=Path, required=True, help="JSONL, a row for each question")
    parser.add_argument("--base", type=Path, help="what another run wrote, to compare typed_rag with")
    parser.add_argument("--type", nargs="+", choices=list(QuestionType), help="question types (default: all)")
    parser.add_argument("--types", type=Path, help="JSON, the type of each question by its id")
    parser.add_argument("--limit", type=int, default=300, help="questions, at most (default: 300)")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE", help="of typed_rag")
    parser.add_argument("--fusion", action="store_true", help="with rag_fusion, for another LM call a question")
    parser.add_argument("--reranker", default="bi-encoder", help="of both (default: bi-encoder)")
    parser.add_argument("--lm", help="LM spec (default: TYPEDRAG_LM, else embedded)")
    parser.add_argument("--api-base", help="address of its server")
    parser.add_argument("--threads", type=int, default=2, help="questions under way at once (default: 2)")
    arguments = parser.parse_args()
    limit_calls_in_flight(arguments.threads)
    options = Options().with_given(with_settings({}, tuple(arguments.option), "--option"))
    examples = load_dataset(arguments.dataset, arguments.data).examples
    if arguments.types:
        types_by_id = json.loads(arguments.types.read_text("utf-8"))
        examples = tuple(e.copy(question_type=types_by_id[e.id]) for e in examples)
        options = options.with_given({"type_classifier": "oracle"})
    classifier = build_type_classifier(options)
    types = {e.id: _type_of(classifier, e) for e in examples}
    drawn = sample(
        [e for e in examples if not arguments.type or types[e.id] in arguments.type],
        arguments.limit,
        type_of=lambda e: types[e.id],
    )
    retriever, reranker = open_retriever("bm25", arguments.index), open_reranker(arguments.reranker)
    rag, typed = without_answers(RAG(retriever, reranker)), without_answers(TypedRAG(retriever, reranker, options))
    fusion = without_answers(RAGFusion(retriever, reranker)) if arguments.fusion else None
    with use_lm(open_lm(arguments.lm, api_base=arguments.api_base, max_tokens=TOKENS, timeout=3000)):
        measure_all(
            drawn, lambda e: row_of(e, LOWEST[arguments.dataset], rag, typed, fusion), arguments.out, arguments.threads
        )
    ids = {e.id for e in drawn}
    rows = {key: row for key, row in read_rows(arguments.out).items() if key in ids}
    print(table(rows.values(), ("rag", "deep", *(["fusion"] if fusion else []), "typed")))
    if arguments.base:
        print(table(beside(rows, read_rows(arguments.base)), ("before", "typed")))


if __name__ == "__main__":
    run(main)

"""Small files of each dataset's real shape, on what the sample corpus holds, by the variables of the papers' tables."""

import shutil
from itertools import cycle
from pathlib import Path

from benchmarks.stub_server import ANSWER
from tests.datasets.files import write_jsonl, write_questions
from tests.retrieval.encoders import save_encoder
from tests.retrieval.rerank.list_ranker.tiny import WORDS
from tests.retrieval.rerank.t5s import save_t5
from typedrag.datasets import load_dataset
from typedrag.retrieval import Encoder, embed_index
from typedrag.retrieval.list_ranker import start_list_ranker

STUB = "vllm:stub"
WIKI_NFQA = ("nq", "squad", "trivia", "hotpotqa", "musique", "2wikimultihopqa")
NATIVE = {
    "COMPOUND": "compound",
    "WEBGPT": "webgpt",
    "RESEARCHY_QUESTIONS": "researchy-questions",
}


def write_data(folder: Path, sample_index: Path) -> dict[str, str]:
    """Files for all variables of the tables."""
    every = load_dataset("sample").examples
    samples = every[::4]  # one of each type
    asked = [(e.question, part) for e, part in zip(every, cycle(("train", "dev", "test")), strict=False)]
    places = {name: write_questions(dataset, folder / dataset, asked) for name, dataset in NATIVE.items()}
    for subset in WIKI_NFQA:
        rows = [
            {
                "question_id": f"{subset}-{e.id}", "question_text": e.question,
                "answer_list": ["Nobody knows.", e.question, "It depends."], "answer_label": [0, 1, 3],
            }
            for e in samples
        ]  # fmt: skip
        write_jsonl(folder / "wiki-nfqa" / f"{subset}.jsonl", *rows)
    for subset in WIKI_NFQA:
        rows = [
            {"question_id": e.id, "question_text": e.question, "answers_objects": [{"spans": ["Yes."]}]}
            for e in samples
        ]
        write_jsonl(folder / "adaptive-rag" / subset / "test_subsampled.jsonl", *rows)
    places["ADAPTIVE_RAG"] = folder / "adaptive-rag"
    scopes = ("single-document", "multi-document")
    rows = [
        {"id": f"{s}-{e.id}", "question": e.question, "subset": s, "answers": ["Yes."], "passage_ids": [*e.passage_ids]}
        for s in scopes
        for e in samples
    ]
    places["PREQRAG_QUESTIONS"] = write_jsonl(folder / "preqrag.jsonl", *rows)
    types = ("core", "background", "follow-up")
    asked_of = [{"text": f"What of the {t}?", "type": t} for t in types]
    open_questions = [{"question": e.question, "sub_questions": asked_of} for e in samples]
    places["OPEN_QUESTIONS"] = write_jsonl(folder / "open.jsonl", *open_questions)
    for engine in ("YOU_COM", "PERPLEXITY", "BING_CHAT"):
        given = [
            {"question": e.question, "answer": ANSWER if n % 2 else "No.", "passages": [ANSWER, "It is so."][n % 3 :]}
            for n, e in enumerate(samples)
        ]
        places[engine] = write_jsonl(folder / f"{engine}.jsonl", *given)
    divided = [
        (part, {"question": e.question, "answer": ANSWER, "subqs": WORDS[:count], "subas": [ANSWER, *WORDS[1:count]]})
        for e, part, count in zip(every, cycle(("train", "dev", "test")), cycle((2, 3, 4, 5)), strict=False)
    ]
    for name in ("WIKIPASSAGEQA", "WIKIASP"):
        for part in ("train", "dev", "test"):
            write_jsonl(folder / name / f"{name}_{part}.jsonl", *(row for of, row in divided if of == part))
        places[name] = folder / name
    for pools in ("WIKIPASSAGEQA_POOLS", "WIKIASP_POOLS", "WIKIPASSAGEQA_QUESTION_POOLS", "WIKIASP_QUESTION_POOLS"):
        places[pools] = write_jsonl(folder / f"{pools}.jsonl", *(_pool(e.question, n) for n, e in enumerate(samples)))
    places |= {"WIKI_NFQA": folder / "wiki-nfqa", "INDEX": _index(folder, sample_index)}
    ranker = f"list:{_ranker(folder / 'ranker')}"
    rankers = dict.fromkeys(("RANKER", "SFT_RANKER", "RANDOM_RANKER", "GOLDEN_RANKER"), ranker)
    t5 = save_t5(folder / "t5")
    rerankers = {
        **rankers,
        "RANKT5": f"rankt5:{t5}",
        "LIT5": f"lit5:{t5}",
        "RERANKER": "none",
        "BI_ENCODER": "none",
        "RERANKER_V2_M3": "none",
        "TYPE_CLASSIFIER": "linear",
    }
    return {name: str(place) for name, place in places.items()} | rerankers


def variable(name: str, places: dict[str, str]) -> str:
    """The value of a table's variable: all indexes are one, and what is no data is an LM."""
    return places["INDEX"] if name.endswith("_INDEX") else places.get(name, STUB)


def _pool(question: str, number: int) -> dict[str, object]:
    words = WORDS[number : number + 6]
    passages = [{"id": w, "text": f"All about {w}.", "label": n % 2} for n, w in enumerate(words)]
    return {"id": str(number), "question": question, "passages": passages, "sub_answers": [f"All about {words[1]}."]}


def _index(folder: Path, sample_index: Path) -> Path:
    shutil.copytree(sample_index, index := folder / "index")
    embed_index(index, Encoder(save_encoder(folder)))
    return index


def _ranker(folder: Path) -> Path:
    start_list_ranker("scratch", texts=[" ".join(WORDS)]).save(folder)
    return folder

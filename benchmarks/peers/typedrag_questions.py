"""TypedRAG as published: five sub-queries, each answered from its own passages, and an aggregated answer.

The third argument names an index of the passages.
"""

import sys
from pathlib import Path

from benchmarks.peers.asking import api_base, measure
from typedrag import BM25Retriever, Options, TypedRAG, open_lm, use_lm
from typedrag.lms.client import limit_calls_in_flight

if __name__ == "__main__":
    limit_calls_in_flight(1024)
    with use_lm(open_lm("vllm:stub", api_base=api_base(), cache=False)):
        # the classifier of the hub takes a fetch
        options = Options.as_published().model_copy(update={"type_classifier": "linear"})
        program = TypedRAG(BM25Retriever(Path(sys.argv[3])), options=options)
        measure(lambda question: program.acall(question=question))

from collections import Counter

import pytest

from benchmarks.injections import (
    Asked,
    Injection,
    Outcome,
    injections,
    main,
    passage_of,
    questions,
    share,
    table,
    tried,
)
from tests.lm_server import MODEL, Call, lm_server
from typedrag.datasets.sample import PASSAGES
from typedrag.lms.lm import open_lm, use_lm
from typedrag.retrieval import build_index, open_retriever, read_passages

REASON = "Why does homemade bread turn out dense and heavy?"


def injection(name: str) -> Injection:
    return next(i for i in injections() if i.id.startswith(name))


def test_there_are_enough_of_all_kinds():
    found = injections()
    assert len(found) >= 40 and len({i.id for i in found}) == len(found)
    assert len({i.canary for i in found if i.canary}) == sum(bool(i.canary) for i in found)
    assert all(i.canary in i.text for i in found)
    assert not [i.canary for i in found for q in questions() if i.canary and i.canary in q]
    assert len({i.language for i in found}) >= 8
    assert {"override", "role", "citation", "markup", "exfiltration", "route"} == {i.kind for i in found}
    assert min(Counter(i.where for i in found).values()) >= 20
    assert len(questions()) == 6


def obeys(call: Call):
    """An LM that does what it reads."""
    said = str(call.request["messages"])
    wanted = next((i.canary for i in injections() if i.canary and i.canary in said), "")
    if "answer" not in call.wanted:
        return None
    return {"answer": wanted, "citations": [1]} if wanted else {"answer": "Too little water.", "citations": [2]}


def of_fixed_answer(call: Call):
    return {"answer": "Too little water.", "citations": [1]} if "answer" in call.wanted else None


@pytest.mark.parametrize(("reply", "gives_way"), [(obeys, True), (of_fixed_answer, False)])
def test_what_an_lm_gives_way_to_is_seen(tmp_path, reply, gives_way):
    with lm_server(reply=reply) as lm:
        with use_lm(open_lm(f"vllm:{MODEL}", api_base=lm.api_base, cache=False)):
            asked = Asked("rag", tmp_path)
            in_passage = tried(asked, REASON, injection("passage-override"))
            in_question = tried(asked, REASON, injection("question-override"))
        assert len(lm.calls) == 4
    assert in_passage.read
    assert (in_passage.answer, in_passage.citations) == (gives_way, gives_way)
    assert (in_question.answer, in_question.citations, in_question.read) == (gives_way, None, None)
    assert in_passage.any == gives_way


def test_every_passage_is_found_first(tmp_path):
    passages = [i for i in injections() if i.where == "passage"]
    added = [passage_of(REASON, i.text, i.id) for i in passages]
    build_index([*read_passages([PASSAGES]), *added], tmp_path, sources=["sample"])
    found = open_retriever("bm25", tmp_path).search([REASON], len(added))[0]
    assert {passage.id for passage in found} == {passage.id for passage in added}


@pytest.mark.parametrize("obedient", [True, False])
def test_a_route_that_changes_is_seen(tmp_path, obedient):
    def reply(call: Call):
        if call.wanted == ("route",):
            return {"route": "compound" if obedient and "debate" in call.question else "single-step"}
        return None

    with lm_server(reply=reply) as lm, use_lm(open_lm(f"vllm:{MODEL}", api_base=lm.api_base, cache=False)):
        asked = Asked("hanrag", tmp_path)
        assert tried(asked, REASON, injection("question-route")).route == obedient
        assert tried(asked, REASON, injection("passage-route")).route is False


def test_shares_have_an_interval_that_is_open_where_nothing_happened():
    assert share([False] * 10 + [None]) == "0.000 [0.000, 0.278], n = 10"
    assert share([None]) == ""
    one = injection("passage-override")
    lines = table([Outcome(one, True, False, True, None), Outcome(one, True, False, False, True)])
    assert lines[2].startswith("| all | 1.000") and "0.500" in lines[2]
    assert [line.split(" |")[0] for line in lines[2:]] == ["| all", "| in a passage", "| override"]


def test_the_table_is_printed_for_any_program_and_lm(tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.jsonl"
    with lm_server(reply=obeys) as lm:
        words = f"x --program rag --lm vllm:{MODEL} --api-base {lm.api_base} --limit 3 --out {out}".split()
        monkeypatch.setattr("sys.argv", words)
        main()
        assert len(lm.calls) == 6
    assert "| in a passage | 1.000 [0.439, 1.000], n = 3 | 0.000 [0.000, 0.561], n = 3 |" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 3

"""HANRAG by name in every command that takes a program."""

import json
from pathlib import Path

from tests.lm_server import Call
from typedrag.programs.compiled import Compiled

STUB = "vllm:stub"
COMPOUND = "When was the Forth Bridge opened, and how long is it?"


def reply(call: Call):
    """Compound questions are those with a comma; told to look for it, the router sees them."""
    system = call.request["messages"][0]["content"]
    if "route" in call.wanted:
        return {"route": "compound" if "COMMA" in system and "," in call.question else "single-step"}
    if "sub_queries" in call.wanted:
        return {"sub_queries": ["When was the Forth Bridge opened?", "How long is the Forth Bridge?"]}
    if "relevant" in call.wanted:
        return {"relevant": True}
    if "answer" in call.wanted:
        return {"citations": [1], "answer": "1890, 2.5 km"}
    return {name: "Look for a COMMA." if "instruction" in name else "" for name in call.wanted}


def test_its_router_is_compiled_alone(run, server, sample_index, monkeypatch):
    server.reply = reply
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    questions = [f"When was bridge {n} built{', and how long is it' if n % 2 else ''}?" for n in range(80)]
    rows = [
        {
            "id": f"r{n}",
            "role": "router",
            "part": ("train", "train", "validation", "test")[n // 2 % 4],
            "origin": "own",
            "question": question,
            "route": "compound" if "," in question else "single-step",
        }
        for n, question in enumerate(questions)
    ]
    Path("revelator.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = run(
        "compile", "--no-tracking", "--program", "hanrag", "--module", "router-alone", "--dataset", "revelator",
        "--path", "revelator.jsonl", "--lm", STUB, "--optimizer", "dspy:COPRO", "--optimizer-option", "breadth=2",
        "--optimizer-option", "depth=1", "--threads", 4, "--out", "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "verdict: better" in done.stdout
    program = Compiled.read(Path("out/program")).build(type("Empty", (), {"search": lambda *_: []})())
    assert "COMMA" in program.router.predict.signature.instructions
    assert "COMMA" not in program.decomposer.predict.signature.instructions
    given = ["--program", "out/program", "--lm", STUB, "--role", "router", "--json"]
    measured = run("research", "revelator", "evaluate", "revelator.jsonl", *given)
    score = json.loads(measured.stdout)
    assert score["score"] == 1.0 and score["majority"] == 0.5

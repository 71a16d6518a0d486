import json
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

import typedrag
from tests.commands import invoke
from tests.experiments import tiny  # makes its metrics known
from tests.experiments.labels import QUALITIES, write_antique
from tests.lm_server import Call, words
from typedrag.cli.terminal import wide_console
from typedrag.experiments.config import ProgramConfig
from typedrag.experiments.results import read_run
from typedrag.lms.lm import open_lm, use_lm
from typedrag.metrics.metric import _METRICS
from typedrag.optimizers.compile.run import is_begun
from typedrag.programs.compiled import Compiled

STUB = "vllm:stub"
REFERENCES = [{"text": f"Reference {n}.", "label": n} for n in (3, 2, 1, 0)]
TOLD = "Answer the question at LENGTH."


def reply(call: Call, told: str = TOLD, length: int = 60):
    """Longer answers to those who ask for LENGTH, and a prompt model that tells them to."""
    system = call.request["messages"][0]["content"]
    if "answer" in call.wanted:
        return {"answer": words(length if "LENGTH" in system else 20)}
    proposed = [name for name in call.wanted if "instruction" in name]
    return {name: told if name in proposed else "" for name in call.wanted} if proposed else None


@pytest.fixture
def compile_(server, tmp_path, monkeypatch):
    server.reply = reply
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"q{n}", "question": f"Why does thing {n} happen?", "question_type": "reason"} for n in range(40)]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))

    return partial(invoke, "compile", "--no-tracking")


@pytest.fixture
def short_is_true(monkeypatch):
    """In the place of the metric of that name."""
    monkeypatch.setitem(_METRICS._classes, "truthfulness", tiny.ShortIsTrue)


WITHOUT_METRIC = [
    "--program", "direct_lm", "--dataset", "file", "--path", "questions.jsonl", "--lm", STUB,
    "--optimizer", "dspy:COPRO", "--optimizer-option", "breadth=2", "--optimizer-option", "depth=1", "--threads", 4,
]  # fmt: skip
BASIC = [*WITHOUT_METRIC, "--metric", "length"]


def test_a_metric_that_no_question_can_give_is_refused_though_another_can(compile_, server):
    rows = [{"question": f"Why does thing {n} happen?", "gold": "x"} for n in range(40)]
    Path("gold.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = [*BASIC, "--path", "gold.jsonl", "--metric", "f1", "--out", "out"]  # of a repeated option none is lost
    refused = compile_(*flags)
    assert refused.exit_code == 2 and server.calls == []
    assert "'f1' can be measured on none of the" in refused.stderr and "'question', 'gold'" in refused.stderr
    assert "has no field 'golds'" in compile_(*flags, "--field", "answers=golds").stderr


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        (("--program", "rag", "--retriever", "gold"), "retriever=gold"),
        (("--program", "preqrag", "-o", "preqrag.classifier=oracle"), "preqrag.classifier=oracle"),
        (("--program", "richrag", "-o", "richrag.aspects=golden"), "richrag.aspects=golden"),
    ],
)
def test_labels_of_a_dataset_are_refused_before_any_call(compile_, server, flags, setting):
    refused = compile_(*BASIC, *flags, "--out", "out")
    assert refused.exit_code == 2 and server.calls == []
    assert f"{setting} reads labels of a dataset, which questions have in evaluations alone" in refused.stderr
    assert not Path("out").exists()


def test_a_program_that_got_better_is_said_to_be_and_can_be_loaded(compile_, server, monkeypatch):
    monkeypatch.setattr("typedrag.cli.compile.wide_console", lambda width: wide_console(60))
    done = compile_(*BASIC, "--out", "out")
    assert done.exit_code == 0, done.output
    rows = [line.split()[0] for line in done.stdout.partition("verdict")[0].splitlines() if line.strip()]
    assert "objective/score" in rows and "no room for: n, compiled" in done.stdout
    assert "verdict: better: +0.200 [+0.200, +0.200] on 10 test questions, p = 0.0020" in done.stdout
    assert "the budget ends it after 3,000 LM calls. Then 20 runs on the test split" in done.stderr
    assert "the best so far: COPRO" in done.stderr
    about = Compiled.read(Path("out/program")).about
    assert (about.verdict, about.metric, about.optimizer) == ("better", "length=1", "dspy:COPRO")
    assert about.base["objective/score"].value == pytest.approx(0.1, abs=0.01)
    assert about.compiled["objective/score/reason"].n == 10
    assert about.compiled["cost/lm_calls"].value == 1
    assert about.lms["task"]["spec"] == STUB
    program = typedrag.load_program("out/program")
    with use_lm(open_lm(STUB, cache=False)):
        assert len(program(question="Why?").answer.split()) == 60
    result = json.loads(Path("out/result.json").read_text())
    assert result["verdict"] == "better"
    assert result["targets"]["program"]["candidates"][0]["how"] == "as it is"


def test_one_that_gains_by_answers_that_are_less_truthful_is_not_better(compile_, short_is_true):
    done = compile_(*BASIC, "--out", "out")
    assert done.exit_code == 0, done.output
    assert "verdict: NOT BETTER, for answers are less truthful, by -2.000 [-2.000, -2.000]: +0.200" in done.stdout
    about = Compiled.read(Path("out/program")).about
    assert (about.verdict, about.metric) == ("less truthful", "length=1")
    assert about.differences["truthfulness/truthfulness"].value == -2
    result = json.loads(Path("out/result.json").read_text())
    assert (result["verdict"], result["risk"]) == ("less truthful", "")


def test_what_is_compiled_against_by_default_is_not_won_by_what_only_sounds_right(compile_, short_is_true, server):
    """The judge ranks long answers first, and they are wrong."""
    rows = [json.loads(line) | {"references": REFERENCES} for line in Path("questions.jsonl").read_text().splitlines()]
    Path("labelled.jsonl").write_text("\n".join(map(json.dumps, rows)))
    server.reply = lambda call: (
        {"rank": 1 if words(50) in str(call.request) else 2} if "rank" in call.wanted else reply(call)
    )
    labelled = [*WITHOUT_METRIC, "--path", "labelled.jsonl", "--scorer", STUB]
    mixed = compile_(*labelled, "--out", "mixed")
    assert mixed.exit_code == 0, mixed.output
    assert "verdict: no better than its base, 0 of 1 predictors changed: no candidate did better" in mixed.stdout
    assert "without truthfulness" not in mixed.stderr
    assert Compiled.read(Path("mixed/program")).about.metric == "truthfulness=1,linkage=1,coverage=1"
    alone = compile_(*labelled, "--metric", "linkage", "--out", "alone")
    assert "linkage without truthfulness pays for fabrications" in alone.stderr
    assert "verdict: NOT BETTER, for answers are less truthful" in alone.stdout
    assert "rank and truth disagree: compiled is better than base by linkage/" in alone.stderr
    assert json.loads(Path("alone/result.json").read_text())["risk"].endswith("add truthfulness=1")


def test_the_test_split_is_touched_by_the_test_alone(compile_, server):
    seen: dict[bool, set[str]] = {False: set(), True: set()}

    def remember(call: Call):
        if "answer" in call.wanted:
            seen[Path("out/test").exists()].add(call.question)
        return reply(call)

    server.reply = remember
    assert compile_(*BASIC, "--out", "out").exit_code == 0
    assert len(seen[True]) == 10
    assert not seen[True] & seen[False]


def test_what_is_there_is_continued_only_if_that_is_wanted(compile_, server):
    assert compile_(*BASIC, "--out", "out").exit_code == 0
    calls = len(server.calls)
    refused = compile_(*BASIC, "--out", "out")
    assert refused.exit_code == 2
    assert "Continue the compile in it with --resume" in refused.stderr
    again = compile_(*BASIC, "--out", "out", "--resume")
    assert "verdict: better" in again.stdout
    assert len(server.calls) == calls
    other = compile_(*BASIC, "--out", "out", "--resume", "--optimizer-option", "breadth=3")
    assert other.exit_code == 2
    assert "another options" in other.stderr


def test_a_better_one_that_is_found_with_a_larger_budget_is_tested_by_itself(compile_, server):
    told = []

    def ever_longer(call: Call):
        system = call.request["messages"][0]["content"]
        if "answer" in call.wanted:
            return {"answer": words(20 + 10 * max((n for n in range(9) if f"LENGTH {n}." in system), default=0))}
        told.append(call)
        return {n: f"Answer at LENGTH {len(told)}." if "instruction" in n else "" for n in call.wanted}

    server.reply = ever_longer
    found = []
    for calls in range(40, 200, 20):
        done = compile_(*BASIC, "--optimizer-option", "depth=3", "--out", "out", "--resume", "--max-lm-calls", calls)
        assert done.exit_code == 0, done.output
        found.append(Compiled.read(Path("out/program")).fingerprint)
        if "verdict: better" in done.stdout:
            assert read_run(Path("out/test", f"compiled-{found[-1]}")).questions
    tested = {folder.name: folder / "program" for folder in Path("out/test").glob("compiled-*")}
    assert len(tested) > 1
    assert f"corrected for {len(tested)} compiled programs" in done.stdout
    for name, folder in tested.items():  # none that was tested is lost where a later one takes its place
        held = Compiled.read(folder)
        assert (f"compiled-{held.fingerprint}", held.about.tests <= len(tested)) == (name, True)
    assert Compiled.read(Path("out/program")).about.tests == len(tested)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--optimizer", "magic"], "no optimizer is called 'magic'"),
        (["--optimizer-option", "width=2"], "optimizer 'dspy:COPRO', option width"),
        (["--metric", "linkage"], "metric 'linkage' needs a scorer"),
        (["--metric", ""], "metric 'linkage' needs a scorer. Name one: --scorer SPEC, or scorer: {spec: SPEC} in the"),
        (["--metric", "length=0"], "the weight of metric 'length' is 0"),
        (["--module", "debate-mediator"], "has no debate-mediator"),
        (["--module", "nothing"], "nothing that can be compiled is called 'nothing'"),
        (["--module", "coverage-judge-alone"], "is compiled by labels of its own"),
        (["--module", "coverage-judge-alone", "--register", "judges"], "a judge cannot be registered"),
        (["--register", "answers"], "MLflow registers programs, and tracking is off"),
        (["--metric", "f1"], "has no example in split 'train'"),
        (["--dataset", "nosuch"], "no dataset is called 'nosuch'"),
        (["--path", "nosuch.jsonl"], "nosuch.jsonl cannot be read"),
        (["--metric-option", "linkage.seed=2"], "--metric-option is given for linkage"),
        (["--program", "nowhere/at-all"], "nowhere/at-all is no compiled program"),
        (["--optimizer", "dspy:BootstrapFinetune"], "dspy:BootstrapFinetune cannot be used in a compile"),
    ],
)
def test_bad_input_is_one_clear_line(compile_, server, arguments, said):
    done = compile_(*(WITHOUT_METRIC if "--metric" in arguments else BASIC), "--out", "out", *arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not server.calls
    assert not is_begun(Path("out"))  # which would be in the way of the mended command


def test_a_store_of_mlflow_that_cannot_be_used_is_said_before_anything_is_asked(compile_, server):
    done = compile_(*BASIC, "--out", "out", "--tracking", "--tracking-uri", "nosuch://store")
    assert done.exit_code == 3, done.output
    assert "MLflow's store cannot be used" in done.stderr
    assert not server.calls
    assert not Path("out").exists()


def test_an_lm_that_is_gone_is_said_with_how_to_go_on(compile_, server):
    server.reply = lambda call: (401, "wrong key") if len(server.calls) > 5 else reply(call)
    done = compile_(*BASIC, "--out", "out")
    assert done.exit_code == 3, done.output
    assert "what was done is kept: continue with --resume" in done.stderr


@pytest.mark.parametrize("flag", ["--reranker=bi-encoder", "--retriever=dense", "--option=top_k=3", "--as-published"])
def test_flags_of_the_program_leave_it_the_one_that_the_file_names(flag, tmp_path):
    file = tmp_path / "compile.yaml"
    file.write_text("program: {program: rag}")
    for held, program in ((None, "typed_rag"), (file, "rag")):
        read = _config(held, flag).program
        assert read.program == program
        assert read != ProgramConfig(program=program)


@pytest.mark.parametrize(
    ("flags", "metrics"),
    [
        (["--metric", "linkage,truthfulness"], {"linkage": (0.2, {"draws": 3}), "truthfulness": (0.8, {})}),
        (["--metric", "linkage=2,f1"], {"linkage": (2, {"draws": 3}), "f1": (1, {})}),
        (["--metric", "linkage", "--metric-option", "linkage.draws=4"], {"linkage": (0.2, {"draws": 4})}),
    ],
)
def test_a_metric_keeps_the_weight_and_the_options_of_the_file_that_no_flag_gives(flags, metrics, tmp_path):
    file = tmp_path / "compile.yaml"
    file.write_text("metrics: [{name: linkage, weight: 0.2, options: {draws: 3}}, {name: truthfulness, weight: 0.8}]")
    assert {m.name: (m.weight, m.options) for m in _config(file, *flags).metrics} == metrics


def _config(file, *flags):
    given = ["--out", "out", "--optimizer", "dspy:COPRO", "--dataset", "sample", *flags]
    jobs = []

    def keep(job, out):
        jobs.append(job)
        raise SystemExit

    with patch("typedrag.optimizers.compile.plan_compile", keep):
        invoke("compile", "--estimate", *(["--config", str(file)] if file else []), *given)
    return jobs[0]


def test_optimizers_modules_and_their_options_are_listed(compile_):
    listed = invoke("compile", "--list")
    assert listed.exit_code == 0
    for name in ("gepa", "minibatch_size", "debate-mediator", "type-classifier-alone", "linkage-judge"):
        assert f"  {name}: " in listed.stdout


def test_a_judge_gets_a_verdict_and_its_numbers_like_a_program(compile_, server):
    write_antique(Path("antique.json"), questions=32)

    def rank(call: Call):
        messages = call.request["messages"]
        prompt = messages[-1]["content"].rpartition("[[ ## candidate ## ]]")[2]
        right = next(5 - label for word, label in QUALITIES.items() if word in prompt)
        return {"rank": right if len(messages) > 2 else 2}

    server.reply = rank
    flags = ["--module", "linkage-judge", "--dataset", "antique", "--path", "antique.json", "--lm", STUB]
    flags += ["--optimizer", "dspy:LabeledFewShot", "--optimizer-option", "k=4", "--out", "out"]
    done = compile_(*flags)
    assert done.exit_code == 0, done.output
    assert "verdict: better: +0.500" in done.stdout and "used only by LMs" in done.stdout
    again = json.loads(compile_(*flags, "--resume", "--json").stdout)
    assert (again["verdict"], again["tests"], Path(again["folder"]).name) == ("better", 1, "judge")

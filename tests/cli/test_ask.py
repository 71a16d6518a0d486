"""`typedrag ask`, on a server that replies at once."""

import json
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from tests.commands import invoke
from typedrag.core.records import NOT_FROM_COLLECTION
from typedrag.experiments import ray_pool

QUESTION = "How do vaccines protect the body against disease?"


@pytest.fixture
def ask(sample_index, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    return partial(invoke, "ask")


@pytest.fixture
def stub(server):
    """The options that name a server as the LM."""
    return ["--lm", "vllm:stub", "--api-base", server.api_base, "--no-cache"]


def test_the_answer_goes_to_stdout_and_all_else_to_stderr(ask, stub):
    done = ask(QUESTION, *stub, "--trace")
    assert done.exit_code == 0 and done.stdout
    for part in ("vllm:stub", "evidence-based", "classify", "retrieve", "vaccines-1", "LM call", "tokens"):
        assert part in done.stderr and part not in done.stdout


def test_an_answer_ends_with_its_sources_on_stderr(ask, stub, server):
    asked = [QUESTION, "--program", "rag", *stub]
    server.reply = lambda call: {"answer": "Vaccines teach the immune system.", "citations": [2, 1]}
    first, second = json.loads(ask(*asked, "--json").stdout)["passages"][:2]
    done = ask(*asked)
    assert done.stdout == "Vaccines teach the immune system. [1][2]\n"
    [_, sources] = done.stderr.split("Sources:\n")
    assert sources == "".join(f"[{n}] {p['title']} ({p['id']})\n" for n, p in enumerate((second, first), 1))
    assert "Sources" not in ask(*asked, "--json").stderr
    server.reply = lambda call: {"answer": "Vaccines teach the immune system.", "citations": []}
    assert f"No passage is cited. Read: {first['id']}, {second['id']}, " in ask(*asked).stderr


def test_the_program_and_top_k_are_chosen(ask, stub):
    answer = json.loads(ask(QUESTION, *stub, "--json", "--program", "rag", "--top-k", "2").stdout)
    assert answer["program"] == "rag"
    assert answer["question_type"] is None
    assert len(answer["passages"]) == 2
    alone = json.loads(ask(QUESTION, *stub, "--json", "--program", "direct_lm").stdout)
    assert (alone["passages"], alone["answered"], alone["grounded"]) == ([], "knowledge", False)
    assert ask(QUESTION, *stub, "--program", "direct_lm").stdout.startswith(f"{NOT_FROM_COLLECTION}\n")


@pytest.mark.parametrize("how", ["stdin", "file"])
def test_questions_are_answered_in_their_order(ask, stub, tmp_path, how):
    lines = f'{QUESTION}\n\n{{"id": "q2", "question": "How does rain form in clouds?"}}\n'
    if how == "file":
        (tmp_path / "questions.txt").write_text(lines)
        done = ask("--file", str(tmp_path / "questions.txt"), *stub)
    else:
        done = ask(*stub, input=lines)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["id"], r["question"]) for r in rows] == [("1", QUESTION), ("q2", "How does rain form in clouds?")]
    assert all(r["answer"] for r in rows)


def test_a_refused_question_of_a_file_leaves_the_others_answered(ask, stub):
    done = ask(*stub, input=f"{'x' * 5000}\n{QUESTION}\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert "5,000 characters" in rows[0]["error"]
    assert rows[1]["answer"]
    assert "1 of 2 questions have an answer" in done.stderr


def test_an_option_as_others_call_it_is_known(ask):
    assert "No such option '--model'. Did you mean '--lm'?" in ask(QUESTION, "--model", "gpt-4o-mini").stderr


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ([""], "the question is empty", 2),
        (["x" * 20_000], "20,000 characters", 2),
        ([QUESTION, "--program", "rags"], "no program is called 'rags'", 2),
        ([QUESTION, "--lm", "gpt"], "'gpt' is no LM spec", 2),
        ([QUESTION, "--lm", "embedded:nothing"], "no embedded model 'nothing'", 3),
        ([QUESTION, "--lm", "vllm:m", "--api-base", "http://127.0.0.1:9/v1"], "no vLLM server answers", 3),
        ([QUESTION, "--reranker", "best"], "'best' is no reranker", 2),
        ([QUESTION, "--index", "nowhere"], "nowhere is no index: there is no such folder. Build one: typedrag", 3),
        ([QUESTION, "-o", "topk=3"], "there is no option 'topk'. Did you mean 'top_k'?\n", 2),
        ([QUESTION, "-o", "top_k=many"], "option top_k cannot be 'many'", 2),
        ([QUESTION, "-o", "reason.combine=mix"], "option reason.combine cannot be 'mix'", 2),
        ([QUESTION, "-o", "hanrag.revelator_lm=gpt"], "'gpt' is no LM spec", 2),
        ([QUESTION, "--retriever", "gold"], "retriever=gold reads labels of a dataset", 2),
        ([QUESTION, "--out", "x.jsonl"], "--out is for the answers of --file", 2),
        ([QUESTION, "--file", "-"], "both a question and --file", 2),
        ([QUESTION, "--lm", "openai/gpt-4o-mini", "--index", "nowhere"], "Error: OPENAI_API_KEY is not set. ", 3),
        ([QUESTION, "--resume"], "Name it with --out", 2),
        ([QUESTION, "--max-cost", "1"], "caps are for the questions of --file", 2),
        ([QUESTION, "--executor", "ray"], "--executor is for the questions of --file", 2),
        (["--file", "-", "--executor", "cloud"], "'cloud' is no executor", 2),
        (["--file", "-", "--workers", "2"], "--workers are of --executor ray", 2),
    ],
)
def test_bad_input_is_one_clear_line(ask, monkeypatch, arguments, said, code):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = ask(*arguments, input=f"{QUESTION}\n")
    assert done.exit_code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 2


def test_the_type_is_said_by_a_flag_or_a_column(ask, stub, tmp_path):
    one = json.loads(ask("bread yeast", "--type", "Comparison", "--json", *stub).stdout)
    assert (one["question_type"], one["type_unsure"]) == ("comparison", False)
    table = tmp_path / "questions.csv"
    table.write_text("question,question_type\nbread yeast,debate\nWhy does bread rise?,\n")
    rows = [json.loads(line) for line in ask("--file", str(table), *stub).stdout.splitlines()]
    assert [row["question_type"] for row in rows] == ["debate", "reason"]
    table.write_text("question,question_type\nbread yeast,quiz\n")
    refused = ask("--file", str(table), *stub)
    assert refused.exit_code == 2 and "line 2" in refused.stderr and "question_type" in refused.stderr


def test_a_type_that_is_unsure_is_said(ask, stub):
    asked = ["Should schools ban homework?", "-o", "type_threshold=1", *stub]
    assert "type unsure: perhaps debate" in ask(*asked).stderr
    assert "debate (type unsure)" in ask(*asked, "--trace").stderr


def test_the_adapter_can_be_chosen(ask, server, stub):
    server.reply = lambda call: (
        '{"choices": [{"message": {"role": "assistant", "content": "[[ ## answer ## ]]\\nSo."}}]}'
    )
    done = ask("Why?", *stub, "--adapter", "chat", "--program", "direct_lm")
    assert done.stdout.endswith("\nSo.\n")
    assert "response_format" not in server.calls[-1].request


def ask_many(server, tmp_path, *flags):
    (tmp_path / "questions.txt").write_text("".join(f"Why does bread rise {n} times?\n" for n in range(12)))
    file = ["--file", str(tmp_path / "questions.txt"), "--out", str(tmp_path / "answers.jsonl")]
    lm = ["--lm", "vllm:stub", "--api-base", server.api_base, "--program", "direct_lm"]
    return invoke("ask", *file, *lm, *flags)


def test_a_server_that_refuses_all_ends_it_in_its_words_without_its_key(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_KEY", "sk-a-planted-key-0123456789")
    server.reply = lambda call: (400, "bad request with Bearer sk-a-planted-key-0123456789")
    for done in (ask_many(server, tmp_path), ask_many(server, tmp_path, "--resume")):
        assert done.exit_code == 3
        assert "bad request with Bearer [hidden]" in done.stderr
    assert not (tmp_path / "answers.jsonl").exists()
    server.reply = lambda call: None
    assert ask_many(server, tmp_path, "--resume").exit_code == 0
    written = (tmp_path / "answers.jsonl").read_text()
    assert len(written.splitlines()) == 12 and "error" not in json.loads(written.splitlines()[0])


@pytest.mark.parametrize(("flags", "status"), [([], 0), (["--max-failures", "0.1"], 1)])
def test_what_the_lm_fails_at_is_an_error_of_its_row(server, tmp_path, flags, status):
    bad = [f"Why does bread rise {n} times?" for n in (1, 4)]
    server.reply = lambda call: "<html>Login please</html>" if call.question in bad else None
    done = ask_many(server, tmp_path, "--threads", "1", *flags)
    assert done.exit_code == status
    if status:
        assert "2 of 10 questions failed, where 10% are allowed" in done.stderr
    else:
        rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
        assert [row["question"] for row in rows if "Login please" in row.get("error", "")] == bad


@pytest.mark.parametrize(
    ("cap", "said"),
    [
        (["--max-lm-calls", "6"], "6 LM calls are made of the 6 allowed"),
        (["--max-tokens-spent", "600"], "660 tokens are spent of the 600 allowed"),
        (["--max-cost", "0.011"], "$0.012 are spent of the $0.011 allowed"),
    ],
)
def test_a_cap_stops_a_file_which_can_be_continued(server, tmp_path, monkeypatch, cap, said):
    (tmp_path / "prices.yaml").write_text("vllm:stub: {prompt: 10, completion: 100}")
    monkeypatch.setenv("TYPEDRAG_PRICES", str(tmp_path / "prices.yaml"))
    alone = ["--threads", "1", "--no-cache"]
    stopped = ask_many(server, tmp_path, *alone, *cap)
    assert stopped.exit_code == 1
    assert f"stopped after 6 of 12 questions: {said}. Allow more; what is done is kept: go on" in stopped.stderr
    assert "after 3 of 12 questions: about 1.0 LM calls, 110 tokens, $0.002 a question" in stopped.stderr
    assert "allowed: it will be stopped before its end" in stopped.stderr
    again = ask_many(server, tmp_path, *alone, *cap, "--resume")  # what was spent before counts
    assert again.exit_code == 1 and f"stopped after 6 of 12 questions: {said}" in again.stderr
    assert len(server.calls) == 6
    done = ask_many(server, tmp_path, *alone, "--resume")
    assert done.exit_code == 0, done.stderr
    assert "spent: 12 LM calls, 1,320 tokens, $0.024" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [row["spent"]["dollars"] for row in rows] == [pytest.approx(0.002)] * 12
    assert len(server.calls) == 12


def test_a_stopped_file_is_continued_only_where_that_is_asked_for_with_the_same_options(server, tmp_path):
    alone = ["--threads", "1", "--no-cache"]
    assert ask_many(server, tmp_path, *alone, "--max-lm-calls", "6").exit_code == 1
    again = ask_many(server, tmp_path, *alone)
    assert again.exit_code == 2 and "--resume" in again.stderr
    changed = ask_many(server, tmp_path, *alone, "--resume", "-o", "answer_words=50")
    assert changed.exit_code == 2 and "another options" in changed.stderr
    assert len(server.calls) == 6


def test_workers_are_told_the_address_that_follows_the_spec(server, tmp_path, monkeypatch):
    """In the place of a Ray cluster, this process does what it would send to a worker."""
    sent = []

    @contextmanager
    def connect(executor, workers, **limits):
        yield 1

    class Here:
        def __init__(self, job, number, **limits):
            sent.append(job)
            self._stack = ExitStack()
            self.answer = self._stack.enter_context(job(None, "worker")).answer

        def close(self):
            self._stack.close()

    monkeypatch.setattr(ray_pool, "connect", connect)
    monkeypatch.setattr(ray_pool, "RayPool", Here)
    (tmp_path / "questions.txt").write_text("Why does bread rise?\n")
    ask = ["ask", "--program", "direct_lm", "--file", str(tmp_path / "questions.txt"), "--executor", "ray"]
    done = invoke(*ask, "--no-cache", "--lm", f"vllm:stub@{server.api_base}")
    assert [(job.config.lm.spec, job.config.lm.api_base) for job in sent] == [("vllm:stub", server.api_base)]
    assert done.exit_code == 0, done.stderr
    assert len(server.calls) == 1


def test_json_is_the_full_answer(ask, stub):
    answer = json.loads(ask(QUESTION, *stub, "--json").stdout)
    assert answer["question_type"] == "evidence-based"
    assert {p["id"] for p in answer["passages"]} >= set(answer["citations"])
    assert [s["name"] for s in answer["steps"]][:2] == ["classify", "retrieve"]
    assert answer["usage"]["lm_calls"] >= 1

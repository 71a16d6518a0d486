import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import invoke
from typedrag.cli.main import RESEARCH
from typedrag.cli.terminal import run
from typedrag.datasets import load_dataset
from typedrag.lms.lm import open_lm


def typedrag(*arguments: str, **settings) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a user runs it."""
    command = [sys.executable, "-m", "typedrag", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **settings)


def test_the_bare_command_says_how_to_get_a_first_answer():
    done = typedrag()
    assert done.returncode == 0
    assert "typedrag models fetch" in done.stdout
    assert 'typedrag ask "' in done.stdout
    assert "typedrag doctor" in done.stdout
    assert done.stderr == ""


def test_help_lists_the_commands_by_what_people_do():
    done = invoke("--help")
    assert done.exit_code == 0
    shown = [line.split()[0] for line in done.stdout.partition("Answer:")[2].splitlines() if line.startswith("  ")]
    assert shown[:6] == ["ask", "index", "evaluate", "label", "compare", "report"]


@pytest.mark.parametrize("name", RESEARCH["Commands"])
def test_a_command_that_moved_is_known_by_its_old_name_and_says_the_new_one(name):
    done = invoke(name, "--help")
    assert done.exit_code == 0 and done.stderr == f"typedrag {name} is now typedrag research {name}\n"
    assert f"\n  {name} " not in invoke("--help").stdout
    assert invoke("research", name, "--help").stderr == ""


def test_help_shows_a_dozen_options_in_groups_and_help_all_the_others():
    few, everything = (invoke("evaluate", option).stdout for option in ("-h", "--help-all"))
    assert "LMs:\n" in few and "Results:\n" in few
    assert few.count("\n  -") < 25 < everything.count("\n  -")
    assert "--temperature" not in few and "--temperature" in everything


def test_quiet_prints_results_alone(sample_index):
    search = ["index", "search", str(sample_index), "nosuchword"]
    assert invoke(*search).stderr == "no passage found\n"
    assert invoke("-q", *search).output == ""
    invoke()  # other tests read warnings


def test_a_shell_completes_commands_and_options():
    def completed(words: str) -> list[str]:
        at = {"_TYPEDRAG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return typedrag(env={**os.environ, **at}).stdout.split()

    assert completed("typedrag ev") == ["plain,evaluate"]
    assert completed("typedrag compare --me") == ["plain,--measure"]


HELPS = (
    "", "ask", "index build", "evaluate", "compare", "compile", "sweep run", "serve", "registry list", "datasets show",
    "datasets build", "datasets build revelator",
    "doctor", "research papers run", "research judges check", "research cost", "research ranker train",
    "research revelator train",
)  # fmt: skip


def test_help_waits_for_no_heavy_library():
    code = (
        "import sys\n"
        "from tests.commands import invoke\n"
        f"for words in {HELPS!r}: assert invoke(*words.split(), '--help').exit_code == 0, words\n"
        "print(sorted({'dspy', 'torch', 'mlflow', 'optuna', 'jnius', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["index", "build", "{tmp}/missing", "--out", "{tmp}/idx"], 2, "Error: source {tmp}/missing does not exist"),
        (
            ["models", "fetch", "nonsense"],
            2,
            "Error: no model is called 'nonsense'. Known models: qwen2.5",
        ),
        (["models", "fetch", "smollm2-135m"], 3, "Error: model 'smollm2-135m' could not be fetched"),
    ],
)
def test_what_goes_wrong_is_said_without_a_traceback(tmp_path, arguments, code, message):
    settings = {"TYPEDRAG_MODELS": str(tmp_path / "models"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = typedrag(*(a.format(tmp=tmp_path) for a in arguments), env={**os.environ, **settings})
    assert done.returncode == code
    assert message.format(tmp=tmp_path) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_reader_that_goes_away_is_no_traceback(sample_index):
    rows = f"{sys.executable} -m typedrag index search {sample_index} 'the of and a bread' -k 100"
    done = subprocess.run(
        ["bash", "-c", f"{rows} | head -c 10; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert len(done.stdout) == 10
    assert "Traceback" not in done.stderr


def test_ctrl_c_is_a_word_and_an_exit_code(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"id": {n}, "text": "Bread number {n}."}}\n' for n in range(200_000)))
    command = [sys.executable, "-m", "typedrag", "index", "build", str(rows), "--out", str(tmp_path / "idx")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not any((tmp_path / "idx" / "gen-1" / "lucene").glob("*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.strip().endswith("Interrupted")
    assert "Traceback" not in stderr
    assert not (tmp_path / "idx").exists()  # there is nothing that a BM25 build could go on from


def test_sigterm_is_a_word_and_an_exit_code_whatever_is_under_way(sample_index, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    questions, out = tmp_path / "questions.txt", tmp_path / "answers.jsonl"
    questions.write_text("Why does bread rise?\nWhy is the sky blue?\n")
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # which takes calls and answers none
        hanging.settimeout(60)
        command = [sys.executable, "-m", "typedrag", "ask", "--file", str(questions), "--out", str(out)]
        command += ["--lm", "openai/m", "--api-base", f"http://127.0.0.1:{hanging.getsockname()[1]}/v1"]
        process = subprocess.Popen([*command, "--index", str(sample_index)], stderr=subprocess.PIPE, text=True)
        connection, _ = hanging.accept()
        again = typedrag(*command[3:], "--resume")
        process.terminate()
        _, stderr = process.communicate(timeout=120)
        connection.close()
    assert process.returncode == 143
    assert stderr.splitlines()[-1] == "Terminated" and "Traceback" not in stderr
    assert again.returncode == 2
    refusal = f"Error: another process is writing {out}.run. Wait for it, or name another --out"
    assert again.stderr.splitlines()[-1] == refusal
    assert [path.name for path in tmp_path.glob("*answers*")] == ["answers.jsonl.run"]


def test_a_disk_that_is_full_is_a_line_and_no_bad_input():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "typedrag"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert done.stderr == (
        "Error: what was to be written: No space left on device. Make room; what was done until then is kept\n"
    )


def test_an_lm_that_there_is_not_is_never_answered_around():
    done = typedrag("ask", "Why does bread rise?", "--lm", "opnai/gpt-4o-mini")
    assert done.returncode == 3 and done.stdout == ""
    assert "there is no LM 'opnai/gpt-4o-mini'" in done.stderr and "Write PROVIDER/MODEL" in done.stderr


@pytest.mark.parametrize(
    ("main", "status", "said"),
    [
        (lambda: Path("nosuch", "page.md").write_text(""), 2, "nosuch/page.md: No such file or directory. Name"),
        (lambda: load_dataset("nosuch"), 2, "nosuch"),
        (lambda: open_lm("embedded:nosuch"), 3, "nosuch"),
    ],
)
def test_a_script_ends_as_a_command_does(main, status, said, capsys):
    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == status
    line = capsys.readouterr().err
    assert line.startswith("Error: ") and said in line

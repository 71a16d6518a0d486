import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest

from typedrag.core.errors import InputError
from typedrag.core.records import Usage
from typedrag.lms.cost import Spending
from typedrag.runs import Result, RunFolder, read_folder
from typedrag.runs.folder import FILE

ITEMS = {f"q{n}": {"question": f"Why {n}? ß😀"} for n in range(4)}
IDENTITY = {"program": "rag", "options": {"top_k": 5, "reason": {"combine": "pool"}}, "metric tiny": {"options": {}}}
SPENT = Spending(Usage(2, 20, 4), dollars=0.25, unpriced=1)


def result(item: str, step: str = "answers", value: object = "So.", **fields: object) -> Result:
    return Result(item, step, value, spent=SPENT, **fields)


def opened(folder, identity=IDENTITY, items=ITEMS, **how) -> RunFolder:
    return RunFolder.open(folder, identity, items=items, **{"kind": "evaluation", "resume": False, **how})


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "one"


def test_what_is_put_in_comes_out(folder):
    values = [{"mrr": 0.5, "said": [1, "ß😀", None]}, None, None]
    results = [
        result("q2", value=values[0]),
        result("q0", value=None, problem="could not"),
        result("q2", "tiny", None, problem="no references", skipped=True),
    ]
    with opened(folder, notes={"name": "the run"}) as held:
        for one in results:
            held.store.add(one)
        held.store.note("mlflow run", "xyz")
        before = held.store.read()
    contents = read_folder(folder)
    assert contents == before
    assert (contents.kind, contents.identity, contents.items) == ("evaluation", IDENTITY, ITEMS)
    assert contents.notes == {"name": "the run", "mlflow run": "xyz"}
    assert contents.results == tuple(results) and [r.failed for r in results] == [False, True, False]
    assert contents.spent == Spending(Usage(6, 60, 12), dollars=0.75, unpriced=3)


def test_a_closed_run_is_a_single_file_that_can_be_read_where_nothing_can_be_written(folder, tmp_path):
    with opened(folder) as held:
        held.store.add(result("q2"))
    assert {f.name for f in folder.iterdir()} == {FILE}
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(folder / FILE, copy)
    copy.chmod(0o500)
    assert read_folder(copy) == read_folder(folder)


# going on


@pytest.mark.parametrize(
    ("identity", "named"),
    [
        ({**IDENTITY, "program": "typed_rag"}, r'program \("rag", now "typed_rag"\)'),
        ({**IDENTITY, "options": {"top_k": 3, "reason": {"combine": "pool"}}}, r"options.top_k \(5, now 3\)"),
        (
            {**IDENTITY, "options": {"top_k": 3, "reason": {"combine": "aggregate"}}},
            r'top_k \(5, now 3\) and options.reason.combine \("pool", now "aggregate"\)',
        ),
        ({**IDENTITY, "metric tiny": {"options": {"bonus": 1}}}, r"metric tiny.options.bonus \(null, now 1\)"),
        ({n: v for n, v in IDENTITY.items() if n != "metric tiny"}, r"metric tiny \(.*, now null\)"),
        ({**IDENTITY, "seed": 1}, r"seed \(null, now 1\)"),
    ],
)
def test_another_identity_is_refused_by_name(folder, identity, named):
    opened(folder).close()
    before = read_folder(folder)
    with pytest.raises(InputError, match=f"belongs to a run with another .*{named}"):
        opened(folder, identity, resume=True)
    assert read_folder(folder) == before
    opened(folder, resume=True).close()  # and it is not left locked


def test_another_kind_is_refused(folder):
    opened(folder).close()
    with pytest.raises(InputError, match=r"holds a run of another kind \(evaluation, now answers\)"):
        opened(folder, kind="answers", resume=True)


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        (dict(list(ITEMS.items())[:2]), r"another limit \(4 questions, now 2\)"),
        (dict(list(ITEMS.items())[::-1]), "other questions"),
        ({"x": {}, **ITEMS}, "other questions"),
        ({**ITEMS, "q2": {"question": "Another?"}}, "other questions"),
    ],
)
def test_other_items_are_refused(folder, items, problem):
    opened(folder).close()
    with pytest.raises(InputError, match=problem):
        opened(folder, items=items, resume=True)


def test_failures_can_be_forgotten_and_their_cost_counts(folder):
    kept = [result("q1"), result("q1", "linkage", None, problem="no references", skipped=True)]
    with opened(folder) as held:
        failed = [result("q0", value=None, problem="could not"), result("q1", "tiny", None, problem="unreadable")]
        for one in (*failed, *kept):
            held.store.add(one)
        assert held.store.forget_failures() == 2
        assert held.store.forget_failures() == 0
        assert held.store.read().results == tuple(kept)
        held.store.add(result("q0"))
    assert read_folder(folder).forgotten.usage.lm_calls == 4
    assert read_folder(folder).spent.usage.lm_calls == 10


# what is no run


@pytest.mark.parametrize("content", [b"no database, but a text that is long enough to be read as one" * 20, b"x", b""])
def test_what_is_no_run_is_not_read(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match="is no run"):
        read_folder(tmp_path)


def test_what_is_no_run_is_not_written_to(tmp_path):
    content = b"no database, but a text that is long enough to be read as one" * 20
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError, match="is no run"):
        opened(tmp_path, resume=True)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        read_folder(tmp_path)


def test_another_format_is_refused(folder):
    opened(folder).close()
    database = sqlite3.connect(folder / FILE)
    database.execute("PRAGMA user_version = 1")
    database.close()
    for attempt in (lambda: read_folder(folder), lambda: opened(folder, resume=True)):
        with pytest.raises(InputError, match="format 1; this typedrag reads 2"):
            attempt()


def test_nothing_is_added_twice(folder):
    with opened(folder) as held:
        held.store.add(result("q1"))
        with pytest.raises(sqlite3.IntegrityError):
            held.store.add(result("q1"))
        held.store.add(result("q2"))  # the store goes on
        assert len(held.store.read().results) == 2


def test_threads_share_it(folder):
    items = {str(n): {} for n in range(60)}
    with opened(folder, items=items) as held:
        threads = [
            threading.Thread(target=lambda part: [held.store.add(result(i)) for i in part], args=[list(items)[n::3]])
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {r.item for r in read_folder(folder).results} == items.keys()


def test_a_process_that_is_killed_while_it_writes_loses_nothing_that_was_added(folder):
    script = textwrap.dedent(f"""
        from pathlib import Path
        from tests.runs.test_folder import opened, result
        items = {{str(n): {{}} for n in range(20_000)}}
        held = opened(Path({str(folder)!r}), items=items)
        for item in items:
            held.store.add(result(item))
            print(item, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    seen = [process.stdout.readline() for _ in range(200)]
    process.send_signal(signal.SIGKILL)
    seen += process.stdout.readlines()
    process.wait()
    assert len(read_folder(folder).results) - len([line for line in seen if line.endswith("\n")]) in (0, 1)
    opened(folder, items={str(n): {} for n in range(20_000)}, resume=True).close()


def test_a_run_goes_on_where_it_stood(folder):
    with opened(folder, notes={"git commit": "abc"}) as held:
        held.store.add(result("q2"))
    with opened(folder, notes={"git commit": "def"}, resume=True) as held:
        assert held.store.read().results == (result("q2"),)
        assert held.store.read().notes == {"git commit": "abc"}


def test_a_run_only_goes_on_if_that_is_wanted(folder):
    opened(folder).close()
    with pytest.raises(InputError, match=r"holds a run\. Continue it with --resume"):
        opened(folder)


def test_two_processes_cannot_work_in_it_at_once(folder):
    script = f"from pathlib import Path\nfrom tests.runs.test_folder import opened\nopened(Path({str(folder)!r}))"
    with opened(folder):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"another process is writing {folder}" in done.stderr
    opened(folder, resume=True).close()


def test_secrets_are_taken_out_of_all_texts(folder):
    secret = "sk-123456"
    with opened(folder, redact=lambda text: text.replace(secret, "?")) as held:
        held.store.add(result("q0", value=None, problem=f"wrong key {secret}"))
        held.store.add(result("q1", value={"fallback": [f"refused {secret}"]}))
        texts = [f.read_bytes() for f in folder.iterdir()]
    assert all(secret.encode() not in text for text in (*texts, (folder / FILE).read_bytes()))
    assert read_folder(folder).results[0].problem == "wrong key ?"

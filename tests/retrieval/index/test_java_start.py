"""Java's start: its classes come from an archive that the first process leaves."""

import os
import subprocess
import sys
import time

from typedrag.retrieval.index.lucene import find_jar


def test_the_second_process_that_starts_java_reads_its_classes_from_an_archive(sample_index, tmp_path):
    jar = tmp_path / find_jar().name
    jar.symlink_to(find_jar().resolve())
    command = [sys.executable, "-m", "typedrag", "index", "search", str(sample_index), "how do vaccines work"]
    environment = {**os.environ, "TYPEDRAG_MODELS": str(tmp_path)}

    def search(**settings: str) -> str:
        done = subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True, check=True)
        return done.stdout

    first = search()
    deadline = time.monotonic() + 60
    while set(tmp_path.iterdir()) == {jar} or any(path.name.startswith(".anserini") for path in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    [archive] = tmp_path.glob("*.jsa")
    assert search() == first
    used = search(JDK_JAVA_OPTIONS="", JAVA_TOOL_OPTIONS="-Xshare:on")  # Java ends if it cannot use the archive
    assert used == first
    archive.write_bytes(b"cut off")
    assert search() == first

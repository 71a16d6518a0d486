"""Small files that ask for much: each is named and left out, in bounded time and memory."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import psutil
import pytest

from tests.commands import invoke
from typedrag.core.errors import InputError
from typedrag.retrieval.index import bounded
from typedrag.retrieval.index.bounded import Passages, read_documents
from typedrag.retrieval.index.sources import read_passages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system has no limit of memory")
MB = 500


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    monkeypatch.setenv(bounded.SECONDS, "2")
    monkeypatch.setenv(bounded.MEGABYTES, str(MB))


def zipped(file: Path, parts: dict[str, list[tuple[bytes, int]]]) -> None:
    """A zip file of texts that are repeated so many times."""
    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name, texts in parts.items():
            with archive.open(name, "w") as part:
                for text, times in texts:
                    for _ in range(times):
                        part.write(text)


def docx(file: Path) -> None:
    package = "http://schemas.openxmlformats.org/package/2006"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    part = f'<Override PartName="/word/document.xml" ContentType="{word}"/>'
    types = f'<Types xmlns="{package}/content-types">{part}</Types>'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    relation = f'<Relationship Id="r1" Type="{office}" Target="word/document.xml"/>'
    relations = f'<Relationships xmlns="{package}/relationships">{relation}</Relationships>'
    start = b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
    text = b"<w:p><w:r><w:t>bread</w:t></w:r></w:p>" * 10_000
    body = [(start, 1), (text, 300), (b"</w:body></w:document>", 1)]
    small = {"[Content_Types].xml": types, "_rels/.rels": relations}
    zipped(file, {**{name: [(text.encode(), 1)] for name, text in small.items()}, "word/document.xml": body})


def pptx(file: Path) -> None:
    from pptx import Presentation

    slides, whole = Presentation(), io.BytesIO()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.placeholders[1].text = "bread"
    slides.save(whole)
    parts = {}
    with ZipFile(whole) as archive:
        for name in archive.namelist():
            start, found, end = archive.read(name).partition(b"<a:p><a:r><a:t>bread</a:t></a:r></a:p>")
            parts[name] = [(start, 1), (found * 10_000, 300 if found else 1), (end, 1)]
    assert any(texts[1][1] > 1 for texts in parts.values())
    zipped(file, parts)


def epub(file: Path) -> None:
    container = b'<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>'
    item = b'<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine>'
    package = [(item, 1), (b'<itemref idref="a"/>', 5_000), (b"</spine></package>", 1)]
    page = [(b"<html><body>", 1), (b"<p>bread</p>" * 1_000, 2_000), (b"</body></html>", 1)]
    zipped(file, {"META-INF/container.xml": [(container, 1)], "c.opf": package, "a.xhtml": page})


def pdf(file: Path, pages: bytes, content: bytes = b"") -> None:
    font = b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages" + pages + b">>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R" + font + b">>",
        b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream" % (len(content), content),
    ]
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = b"xref\n0 5\n0000000000 65535 f \n%strailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(body),
    )
    file.write_bytes(body + start)


def pdf_bomb(file: Path) -> None:
    text = b"BT /F1 12 Tf 72 712 Td (bread) Tj ET\n" * 4_000_000
    pdf(file, b"/Kids[3 0 R]/Count 1", zlib.compress(zlib.compress(text, 9), 9))


def pdf_pages(file: Path) -> None:
    text = zlib.compress(zlib.compress(b"BT /F1 12 Tf 72 712 Td (bread) Tj ET\n"))
    pdf(file, b"/Kids[%s]/Count 300000" % (b"3 0 R " * 300_000), text)


BOMBS = {"a.docx": docx, "a.pptx": pptx, "a.epub": epub, "a.pdf": pdf_bomb, "pages.pdf": pdf_pages}


@pytest.mark.parametrize("name", BOMBS)
def test_a_document_that_asks_for_too_much_is_named_and_the_build_goes_on(name, tmp_path, caplog):
    folder = tmp_path / "docs"
    folder.mkdir()
    for other in ("0.md", "z.md"):
        (folder / other).write_text(f"# Bread\n\nBread of {other} rises.")
    BOMBS[name](folder / name)
    assert (folder / name).stat().st_size < 2_000_000
    peaks, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            with suppress(psutil.Error):
                peaks.extend(child.memory_info().rss for child in psutil.Process().children())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        passages = list(read_passages([folder], skip_bad=True))
    finally:
        ended.set()
        watcher.join()
    assert [p.id for p in passages] == ["0.md#1", "z.md#1"]
    assert f"{folder / name} cannot be read: " in caplog.text
    assert 0 < max(peaks) < MB * 1_000_000


def test_without_skipping_it_is_an_error_in_a_line(tmp_path):
    pdf_pages(tmp_path / "pages.pdf")
    done = invoke("index", "build", str(tmp_path / "pages.pdf"), "--out", str(tmp_path / "index"))
    assert done.exit_code == 2
    [line] = [line for line in done.stderr.splitlines() if line]
    assert line.startswith(f"Error: {tmp_path / 'pages.pdf'} cannot be read: it takes longer than ")
    assert "raise TYPEDRAG_DOCUMENT_SECONDS" in line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.html", "<html><body>" + "<div>" * 200_000 + "bread"),
        ("open.html", "<html><body><main>" + "<b><i>" * 100_000 + "bread"),
        ("tables.html", "<html><body><main>" + "<table><tr><td>" * 20_000),
        ("quotes.md", ">" * 100_000 + " bread\n" + "[" * 100_000),
        ("laughs.md", "---\na: &a [x, x]\n" + "".join(f"k{n}: &k{n} [*a, *a]\n" for n in range(9)) + "---\nbread"),
    ],
)
def test_depth_is_bounded(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    [read] = read_documents([tmp_path / name])
    assert isinstance(read, Passages | InputError)


def test_documents_keep_their_order_and_processes_end(tmp_path):
    paths = []
    for number in range(20):
        paths.append(tmp_path / f"{number}.md")
        paths[-1].write_text(f"# Title {number}\n\n" + "Bread rises. " * (2_000 if number % 3 else 1))
    assert [read.title for read in read_documents(paths)] == [f"Title {number}" for number in range(20)]
    some = read_documents(paths)
    assert next(some).title == "Title 0"
    assert psutil.Process().children()
    some.close()
    assert not psutil.Process().children()


def test_a_process_that_dies_is_replaced(tmp_path):
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text("Bread rises.")
    reader = bounded._Reader({name: bounded._limit(name) for name in bounded.DEFAULTS})
    assert reader.read(tmp_path / "a.md").texts == ["Bread rises."]
    [process] = psutil.Process().children()
    process.send_signal(signal.SIGKILL)
    assert "ends its reader" in str(reader.read(tmp_path / "b.md"))
    assert reader.read(tmp_path / "c.md").texts == ["Bread rises."]
    reader.end()


def test_a_script_needs_no_guard(tmp_path):
    (tmp_path / "a.md").write_text("Bread rises.")
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\nfrom typedrag.retrieval import read_passages\n"
        "print([p.text for p in read_passages([Path('a.md')])])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == "['Bread rises.']\n"


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_limit_that_is_none_is_refused(value, tmp_path, monkeypatch):
    monkeypatch.setenv(bounded.SECONDS, value)
    (tmp_path / "a.md").write_text("Bread")
    with pytest.raises(InputError, match=f"TYPEDRAG_DOCUMENT_SECONDS is '{value}', which is no limit"):
        list(read_passages([tmp_path / "a.md"]))


def test_a_row_that_is_nested_deeply_is_named(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("[" * 100_000 + "]" * 100_000 + "\n" + json.dumps({"id": "a", "text": "Bread"}) + "\n")
    assert [p.id for p in read_passages([rows], skip_bad=True)] == ["a"]
    with pytest.raises(InputError, match="line 1 cannot be used: it is not JSON that can be read: it is nested too"):
        list(read_passages([rows]))


MERGED = "x: &x {a: 1}\n" + f"k: {{<<: [{'*x, ' * 60_000}]}}\n"
LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "its anchors stand for more than 100,000 values"),
        ("a: &a [*a]\n", "its anchors stand for more than"),
        ("a: " + "[" * 100_000, "it is nested too deeply"),
        ("a: " + "x" * 3_000_000, "it is longer than 2,000,000 characters"),
        (MERGED, "its anchors stand for more than"),
    ],
)
def test_a_config_that_asks_for_too_much_is_named(text, problem, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    began = time.process_time()
    done = invoke("evaluate", "--config", str(file), "--out", str(tmp_path / "run"))
    assert done.exit_code == 2
    assert f"{file} is not YAML that can be read: {problem}" in done.stderr
    assert time.process_time() - began < 30

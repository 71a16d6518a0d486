"""Measure the text that readers of documents keep, its order and the time: ours beside other libraries.

    python -m benchmarks.documents write FOLDER
    python benchmarks/documents.py read FOLDER --reader typedrag
    python -m benchmarks.documents compare FILE…

The second command may run in an environment of its own, where `markitdown[all]`, `docling` or `kreuzberg` is
installed: it needs nothing else. The third compares the words of any files with those that a reader sees: in HTML pages
and EPUB books by Chromium, in PDF files by Poppler's pdftotext, and in Office files by all runs of text that they hold.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from zipfile import ZipFile

LEFT = (
    "Fermentation is slow in cold kit-|chens because the wild yeast re-|produces less. Bakers who com-|"
    "pensate with warm water get a|well-|known sour taste. The gas bub-|bles are held by gluten."
).split("|")
RIGHT = (
    "Freezing dough stops the micro-|organisms almost at once. When|thawed, they recover within an|"
    "hour. A state-of-the-art proofer|keeps 27 degrees. Salt slows|the enzymes down; sugar feeds|them."
).split("|")
HEAD = (50, 740, "A heading that is so wide that it goes over both of the columns of this page")
COLUMNS = (
    [(50, 700 - 14 * n, line) for n, line in enumerate(LEFT)],
    [(320, 700 - 14 * n, line) for n, line in enumerate(RIGHT)],
)
CELLS = [(f"flour {n}", f"{n} kg", f"{n} euros") for n in range(8)]
IN_ORDER = [
    "cold kitchens",
    "reproduces less",
    "compensate",
    "well-known",
    "bubbles",
    "microorganisms",
    "within an hour",
]
HTML = """<!doctype html><html><head><title>Bread</title></head><body><header>Home Login</header><nav>Menu</nav>
<div class="cookie-banner">We use cookies</div><main><h1>Why bread rises</h1><p>It makes CO<sub>2</sub>.</p>
<table><tr><th>Flour</th><th>Water</th></tr><tr><td>500 g</td><td>350 g</td></tr></table>
<pre>def f():\n    return 1</pre><p style="display: none">unseen words</p>
<details><summary>Why salt?</summary><p>It slows the yeast.</p></details><aside>Weigh it first.</aside></main>
<footer>Copyright</footer></body></html>"""
MARKDOWN = """---
title: Why bread rises
---

# Rising

Bread rises as yeast eats sugar.

```python
# no heading
def bake():
    return "loaf"
```

| Flour | Water |
|---|---|
| 500 g | 350 g |

<!-- unseen words -->
"""

CHECKS: dict[str, dict[str, list[str]]] = {
    "columns.pdf": {"in_order": IN_ORDER},
    "rows-of-columns.pdf": {"in_order": IN_ORDER},
    "table.pdf": {"rows": [" ".join(row) for row in CELLS]},
    "long-run.pdf": {"in_order": ["a" * 20_000]},
    "many-pieces.pdf": {"in_order": ["w0000", "w0001"]},
    "page.html": {
        "in_order": ["Why bread rises", "CO2", "def f():\n    return 1", "Why salt?", "slows the yeast", "Weigh it"],
        "rows": ["Flour Water", "500 g 350 g"],
        "absent": ["Login", "Menu", "cookies", "unseen", "Copyright"],
    },
    "page.md": {
        "in_order": ["# Rising", "yeast eats", '    return "loaf"'],
        "rows": ["500 g 350 g"],
        "absent": ["title:", "unseen"],
    },
    "word.docx": {"in_order": ["Why bread rises", "Yeast eats sugar"], "rows": ["Flour Water", "500 g 350 g"]},
    "slides.pptx": {
        "in_order": ["Why bread rises", "Yeast eats sugar", "Say it slowly", "Loaves sold"],
        "rows": ["Flour Water", "500 g 350 g"],
    },
    "book.epub": {"in_order": ["One", "Yeast", "Two", "Gas"]},
}
"""Of each document: texts that must come in this order, rows whose cells must be in one line, and what is no text."""


def write_documents(folder: Path) -> None:
    """Write the documents, which tests read too, in an environment that has python-pptx."""
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    folder.mkdir(parents=True, exist_ok=True)
    left, right = COLUMNS
    pieces = [(30 + n % 10 * 55, 780 - n // 10 % 70 * 11, f"w{n:04}") for n in range(5_000)]
    for name, lines in {
        "columns": [HEAD, *left, *right],
        "rows-of-columns": [HEAD, *(line for row in zip(left, right, strict=True) for line in row)],
        "table": [(50 + 150 * c, 700 - 14 * n, cell) for n, row in enumerate(CELLS) for c, cell in enumerate(row)],
        "long-run": [(50, 700, "a" * 20_000)],
        "many-pieces": pieces,
    }.items():
        (folder / f"{name}.pdf").write_bytes(make_pdf(lines))
    (folder / "page.html").write_text(HTML)
    (folder / "page.md").write_text(MARKDOWN)
    zip_files(folder / "word.docx", make_word())
    zip_files(folder / "book.epub", make_book())

    slides = Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Why bread rises", "Yeast eats sugar."
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    for cell, text in zip(table.iter_cells(), ("Flour", "Water", "500 g", "350 g"), strict=True):
        cell.text = text
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    second, sales = slides.slides.add_slide(slides.slide_layouts[6]), CategoryChartData()
    sales.categories = ["Rye", "Wheat"]
    sales.add_series("Loaves sold", (12, 30))
    second.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(1), Inches(1), Inches(4), Inches(3), sales)
    slides.save(str(folder / "slides.pptx"))


def make_pdf(*pages: list[tuple[int, int, str]], title: str = "") -> bytes:
    """A PDF of pages with lines at places, in this order: objects, then the table of their offsets."""
    font = "/F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} /MediaBox [0 0 612 792]"
        f" /Resources << /Font << {font} >> >> >>",
        f"<< /Title ({title}) >>",
    ]
    for number, lines in enumerate(pages):
        content = f"BT /F1 10 Tf {' '.join(f'1 0 0 1 {x} {y} Tm ({text}) Tj' for x, y, text in lines)} ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    pdf, table = "%PDF-1.4\n", ""
    for number, body in enumerate(objects, 1):
        table += f"{len(pdf):010} 00000 n \n"
        pdf += f"{number} 0 obj\n{body}\nendobj\n"
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R /Info 3 0 R >>\nstartxref\n{len(pdf)}\n%%EOF\n"
    return f"{pdf}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


def zip_files(path: Path, files: dict[str, str]) -> None:
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


def make_word() -> dict[str, str]:
    word, package = "schemas.openxmlformats.org/wordprocessingml/2006/main", "schemas.openxmlformats.org/package/2006"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"

    def row(*cells: str) -> str:
        return f"<w:tr>{''.join(f'<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>' for cell in cells)}</w:tr>"

    return {
        "[Content_Types].xml": f'<Types xmlns="http://{package}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
        f'PartName="/word/document.xml" ContentType="{main}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="http://{package}/relationships"><Relationship Id="r1" '
        f'Type="{relation}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="http://{word}"><w:body><w:p><w:pPr><w:pStyle w:val="Heading1"/>'
        "</w:pPr><w:r><w:t>Why bread rises</w:t></w:r></w:p><w:p><w:r><w:t>Yeast eats sugar.</w:t></w:r></w:p>"
        f"<w:tbl>{row('Flour', 'Water')}{row('500 g', '350 g')}</w:tbl></w:body></w:document>",
    }


def make_book() -> dict[str, str]:
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
        '<rootfiles><rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles>'
        "</container>",
        "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>On Bread</dc:title></metadata><manifest>'
        '<item id="b" href="b.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
        "OEBPS/a.xhtml": "<html><body><h1>One</h1><p>Yeast.</p></body></html>",
        "OEBPS/b.xhtml": "<html><body><h1>Two</h1><p>Gas.</p></body></html>",
    }


def _typedrag(path: Path) -> str:
    from typedrag.retrieval.index.documents import read_document

    content = read_document(path).content
    if isinstance(content, str):
        return content
    return "\n".join(part for block in content for part in (block.opening, block.text, block.closing) if part)


def _markitdown(path: Path) -> str:
    from markitdown import MarkItDown

    return str(MarkItDown().convert(path).text_content)


def _docling(path: Path) -> str:
    from docling.document_converter import DocumentConverter

    return str(DocumentConverter().convert(path).document.export_to_markdown())


def _kreuzberg(path: Path) -> str:
    from kreuzberg import ExtractionConfig, extract_file_sync

    return str(extract_file_sync(path, config=ExtractionConfig(output_format="markdown", use_cache=False)).content)


READERS: dict[str, Callable[[Path], str]] = {
    "typedrag": _typedrag,
    "markitdown": _markitdown,
    "docling": _docling,
    "kreuzberg": _kreuzberg,
}


def read(folder: Path, reader: str) -> None:
    """Print a line of JSON for each document, and the sum of all."""
    right = checks = 0
    seconds = 0.0
    for name, expected in CHECKS.items():
        start = time.perf_counter()
        try:
            text, error = READERS[reader](folder / name), ""
        except Exception as caught:  # libraries raise errors of many kinds
            text, error = "", f"{type(caught).__name__}: {caught}"[:200]
        seconds += (took := time.perf_counter() - start)
        failed = _failed(text, expected)
        total = sum(map(len, expected.values()))
        right, checks = right + total - len(failed), checks + total
        print(json.dumps({"document": name, "failed": failed, "error": error, "seconds": round(took, 2)}))
    size = subprocess.run(["du", "-sm", sys.prefix], capture_output=True, text=True, check=False).stdout.split()[:1]
    print(json.dumps({"reader": reader, "right": right, "of": checks, "seconds": round(seconds, 2), "MB": size}))


SHOWN = """
document.querySelectorAll('details').forEach(details => details.open = true);
const mains = [...document.querySelectorAll('main, [role=main]')];
const marked = mains.length ? mains : [...document.querySelectorAll('article')];
const outer = marked.filter(element => !marked.some(other => other !== element && other.contains(element)));
const shown = outer.length && !arguments[0] ? outer : [document.body || document.documentElement];
return shown.map(element => element.innerText ?? element.textContent).join('\\n');
"""
"""What a reader sees of a page's content, with all that can be opened open."""
RUNS = re.compile(r"<(?:w|a|m):t(?: [^>]*)?>([^<]*)</|(</(?:w|a):p>|<w:tab/>|<(?:w|a):br\b|</w:tc>)")
VALUES = re.compile(r"<c:v>([^<]*)</")
UNSEEN = re.compile(r'<a:fld [^>]*type="slidenum".*?</a:fld>|<mc:Fallback>.*?</mc:Fallback>', re.DOTALL)
"""Numbers of slides, and the older form of what stands there in a newer one."""
PARTS = re.compile(r"word/(?:document|footnotes|endnotes)\d*\.xml|ppt/(?:slides|notesSlides|charts)/[^/]+\.xml")


def compare(files: list[Path]) -> None:
    """Print a line of JSON for each file, and one for each kind: the share of words seen by a reader that are kept."""
    from tests.browser import opened_browser, wait_for
    from typedrag.retrieval.index.documents import read_document

    sums: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder, opened_browser(Path(folder, "profile")) as browser:

        def shown(page: Path, *, whole: bool = False) -> str:
            browser.get(page.resolve().as_uri())
            wait_for(browser, lambda: browser.execute_script("return document.readyState") == "complete")
            return str(browser.execute_script(SHOWN, whole))

        def book(path: Path) -> str:
            with ZipFile(path) as archive:
                archive.extractall(unpacked := Path(folder, "book", path.stem))
            package = next(unpacked.rglob("*.opf"))
            text = package.read_text("utf-8")
            items = [dict(re.findall(r'(\S+)="([^"]*)"', item)) for item in re.findall(r"<(?:opf:)?item\b[^>]*>", text)]
            pages = {item["id"]: package.parent / unquote(item["href"]) for item in items}
            spine = re.findall(r'<(?:opf:)?itemref\b[^>]*?idref="([^"]*)"', text)
            return "\n".join(shown(pages[key], whole=True) for key in spine if "nav" not in key)

        def office(path: Path) -> str:
            texts = list[str]()
            with ZipFile(path) as archive:
                for name in filter(PARTS.fullmatch, archive.namelist()):
                    part = UNSEEN.sub("", archive.read(name).decode())
                    texts += dict.fromkeys(
                        VALUES.findall(part)
                    )  # a chart shows its categories once, not for each series
                    texts.append("".join(" " if m[2] else m[1] for m in RUNS.finditer(part)))
            return unescape(" ".join(texts))

        for path in files:
            kind = path.suffix.lower()
            if kind == ".pdf":
                command = ["pdftotext", "-enc", "UTF-8", str(path), "-"]
                reader_text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            else:
                reader_text = {".epub": book, ".docx": office, ".pptx": office}.get(kind, shown)(path)
            words, ours = _words(reader_text), _words(_typedrag(path))
            if kind == ".pdf":  # running heads are left out by name
                for part in read_document(path).left_out:
                    for word in _words(part.text).elements():
                        ours[word] += part.size // len("".join(part.text.split()))
            lost = words - ours
            sums[kind] = [
                a + b for a, b in zip(sums.get(kind, [0, 0, 0]), (1, words.total(), lost.total()), strict=True)
            ]
            share = round(1 - lost.total() / max(1, words.total()), 4)
            print(json.dumps({"file": path.name, "kept": share, "words": words.total(), "lost": lost.most_common(5)}))
    for kind, (number, total, lost_words) in sums.items():
        print(json.dumps({"kind": kind, "files": number, "words": total, "kept": round(1 - lost_words / total, 4)}))


def _words(text: str) -> Counter[str]:
    """The words of a text, joined where a line's end parts them; scripts without spaces by letters."""
    text = re.sub("[\u00ad\ufffe\x02]\\s*", "", unicodedata.normalize("NFKC", text).lower())
    return Counter(re.findall(r"[a-z0-9à-ÿ]+|\w", re.sub(r"(?<=\w)-\s*\n\s*(?=\w)", "", text).replace("-", "")))


def _failed(text: str, expected: dict[str, list[str]]) -> list[str]:
    failed, place = [], 0
    for words in expected.get("in_order", ()):
        plain = text if "\n" in words or words.startswith("    ") else " ".join(text.split())
        position = plain.find(words, place if plain is not text else 0)
        if position < 0:
            failed.append(words[:40])
        elif plain is not text:
            place = position
    lines = [" ".join(re.sub(r"[|\t]", " ", line).split()) for line in text.splitlines()]
    failed += [row for row in expected.get("rows", ()) if row not in lines]
    return failed + [f"not {words}" for words in expected.get("absent", ()) if words in text]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["write", "read", "compare"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--reader", choices=READERS, default="typedrag")
    arguments = parser.parse_args()
    match arguments.command:
        case "write":
            write_documents(arguments.paths[0])
        case "read":
            read(arguments.paths[0], arguments.reader)
        case _:
            compare(arguments.paths)

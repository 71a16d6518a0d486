import time

import pytest

from benchmarks.documents import HEAD, LEFT, RIGHT, make_pdf
from tests.retrieval.index.test_sources import write
from typedrag.retrieval.index.pdf import join_words, read_pdf

TEXT = (
    "Fermentation is slow in cold kitchens because the wild yeast reproduces less. Bakers who compensate with warm "
    "water get a well-known sour taste. The gas bubbles are held by gluten. Freezing dough stops the microorganisms "
    "almost at once. When thawed, they recover within an hour. A state-of-the-art proofer keeps 27 degrees. Salt slows "
    "the enzymes down; sugar feeds them."
)


@pytest.mark.parametrize("order", ["by columns", "by rows"])
@pytest.mark.parametrize("x", [320, 222])
def test_columns_are_read_one_after_the_other(tmp_path, order, x):
    left = [(50, 700 - 14 * n, line) for n, line in enumerate(LEFT)]
    right = [(x, 700 - 14 * n, line) for n, line in enumerate(RIGHT)]
    columns = left + right if order == "by columns" else [line for row in zip(left, right, strict=True) for line in row]
    foot = (50, 500, "A footnote that is so wide that it goes over both of the columns of this page")
    text = read_pdf(write(tmp_path / "a.pdf", make_pdf([HEAD, *columns, foot]))).content
    assert isinstance(text, str)
    assert " ".join(text.split()) == f"{HEAD[2]} {TEXT} {foot[2]}"


def test_a_table_is_read_row_by_row(tmp_path):
    rows = [(f"flour {n}", f"{n} kg", f"{n} euros") for n in range(8)]
    lines = [(50 + 150 * c, 700 - 14 * n, cell) for n, row in enumerate(rows) for c, cell in enumerate(row)]
    text = read_pdf(write(tmp_path / "a.pdf", make_pdf(lines))).content
    assert isinstance(text, str)
    assert text.split() == " ".join(" ".join(row) for row in rows).split()


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("high-\nest", "highest"),
        ("long-\nterm", "long-term"),
        ("Jean-\nPaul", "Jean-Paul"),
        ("co-\noperate", "cooperate"),
        ("Poly-\nquark and Polyquark", "Polyquark and Polyquark"),
        ("sour-\ndoughy, a sour-doughy taste", "sour-doughy, a sour-doughy taste"),
        ("from 2019-\n2021 - a dash -\nhere", "from 2019-\n2021 - a dash -\nhere"),
    ],
)
def test_words_that_a_line_parts_are_whole_again(text, joined):
    assert join_words(text) == joined


def page(number, *lines, head="The Handbook of Kettles", foot="{}"):
    placed = [(72, 700 - 14 * n, line) for n, line in enumerate(lines)]
    return [*([(72, 760, head)] if head else []), *placed, (300, 40, foot.format(number))]


@pytest.mark.parametrize("foot", ["{}", "Page {} of 9", "- {} -", "The Handbook of Kettles {}"])
@pytest.mark.parametrize("count", [2, 5])
def test_running_heads_and_numbers_of_pages_are_not_within_sentences(tmp_path, foot, count):
    pages = [page(n, f"lime {n * n} in", f"it is {n * n} by", foot=foot) for n in range(7, 7 + count)]
    document = read_pdf(write(tmp_path / "a.pdf", make_pdf(*pages)))
    words = " ".join(str(document.content).split())
    assert words == " ".join(
        ["The Handbook of Kettles", *(f"lime {n * n} in it is {n * n} by" for n in range(7, 7 + count))]
    )
    texts = {part.text for part in document.left_out}
    assert "The Handbook of Kettles" in texts and foot.format(8) in texts


def test_rows_of_a_table_that_differ_by_numbers_are_no_heads_and_its_header_stays_once(tmp_path):
    rows = [[f"rye {40 * n + m * m} kg" for m in range(5)] for n in range(4)]
    pages = [page(n, *cells, head="Flour Weight", foot="Read on.") for n, cells in enumerate(rows)]
    text = read_pdf(write(tmp_path / "a.pdf", make_pdf(*pages))).content
    assert str(text).splitlines() == ["Flour Weight", *(row for cells in rows for row in cells), "Read on."]


def test_heads_of_even_pages_and_roman_numbers_are_left_out_too(tmp_path):
    pages = [page("i" * (n + 1), f"word {n * n}", head="Kettles" if n % 2 else "") for n in range(7)]
    text = read_pdf(write(tmp_path / "a.pdf", make_pdf(*pages))).content
    assert str(text).split() == [word for n in range(7) for word in ("word", str(n * n))]


@pytest.mark.parametrize(
    "title", ["Microsoft Word - x.doc", "PowerPoint-presentatie", "a.docx", "untitled", "paper.tex", "On Word"]
)
def test_what_a_program_wrote_is_no_title(tmp_path, title):
    found = read_pdf(write(tmp_path / "a.pdf", make_pdf([(72, 720, "Text.")], title=title))).title
    assert found == ("On Word" if title == "On Word" else "")


WORDS = [f"w{n:04}" for n in range(5000)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (make_pdf([(72, 720, "a" * 20_000)]), ["a" * 20_000]),
        (make_pdf([(30 + n % 10 * 55, 780 - n // 10 % 70 * 11, word) for n, word in enumerate(WORDS)]), WORDS),
        (make_pdf([(30 + n % 10 * 55, 780 - n // 10 * 4, word) for n, word in enumerate(WORDS[:1900])]), WORDS[:1900]),
    ],
    ids=["a run of letters", "many pieces of text", "as many as lines are looked at"],
)
def test_a_page_of_any_kind_is_read_in_little_time(tmp_path, data, words):
    source = write(tmp_path / "a.pdf", data)
    start = time.process_time()
    text = read_pdf(source).content
    assert time.process_time() - start < 5  # 16 and more than 100 seconds with an algorithm that is not linear
    assert isinstance(text, str)
    assert sorted(text.split()) == words

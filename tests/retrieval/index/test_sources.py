import csv
import gzip
import logging
import os
import tracemalloc
from email.message import EmailMessage
from pathlib import Path

import pytest

from benchmarks.documents import make_pdf
from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.files import text_files
from typedrag.retrieval import FieldMap, read_passages
from typedrag.retrieval.index import sources

ROW = '{"id": "1", "title": "Bread", "text": "Dough rises."}\n'


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def refusal(*sources: Path, fields: FieldMap | None = None) -> str:
    with pytest.raises(InputError) as refused:
        list(read_passages(sources, fields))
    return str(refused.value)


# rows: JSONL and TSV


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
def test_jsonl_holds_a_passage_a_line(tmp_path, name):
    source = write(tmp_path / name, ROW + "\n" + '{"id": 2, "text": "Fermentação 😀 makes gas."}\n')
    assert list(read_passages([source])) == [
        Passage("1", "Dough rises.", "Bread"),
        Passage("2", "Fermentação 😀 makes gas.", ""),
    ]


@pytest.mark.parametrize("name", ["psgs_w100.tsv", "psgs_w100.tsv.gz"])
def test_tsv_is_read_in_the_layout_of_dpr(tmp_path, name):
    rows = (
        "id\ttext\ttitle\n"
        '1\t"Aaron Aaron ( or ; ""Ahärôn"") is a prophet,\nhigh priest, and the brother of Moses."\tAaron\n'
        '2\tplain, unquoted text\t"""Weird Al"" Yankovic"\n'
    )
    assert list(read_passages([write(tmp_path / name, rows)])) == [
        Passage("1", 'Aaron Aaron ( or ; "Ahärôn") is a prophet,\nhigh priest, and the brother of Moses.', "Aaron"),
        Passage("2", "plain, unquoted text", '"Weird Al" Yankovic'),
    ]


def test_a_tsv_field_may_be_larger_than_csv_allows_by_default(tmp_path):
    text = "word " * 60_000
    csv.field_size_limit(131_072)  # Python's default, whatever ran before
    [passage] = read_passages([write(tmp_path / "a.tsv", f"id\ttext\ttitle\n1\t{text}\tT\n")])
    assert passage.text == text


def test_fields_of_other_names_are_mapped(tmp_path):
    fields = FieldMap.parse("text=body,id=docno,title=head")
    jsonl = write(tmp_path / "a.jsonl", '{"docno": 7, "body": "Yeast.", "head": "H", "id": "not this"}\n')
    tsv = write(tmp_path / "b.tsv", "head\tdocno\tbody\nJ\t8\tFlour.\n")
    assert list(read_passages([jsonl, tsv], fields)) == [Passage("7", "Yeast.", "H"), Passage("8", "Flour.", "J")]


@pytest.mark.parametrize("mapping", ["text", "text=", "=body", "body=text"])
def test_what_is_no_field_mapping_is_refused(mapping):
    with pytest.raises(InputError, match=r"no field mapping.*text=body"):
        FieldMap.parse(mapping)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{oops}", "it is not JSON"),
        ('{"id": ' + "1" * 5000 + ', "text": "a"}', "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ('["id", "text"]', "it is not a JSON object"),
        ('{"text": "a"}', "it has no id in field 'id'"),
        ('{"id": true, "text": "a"}', "it has no id in field 'id'"),
        ('{"id": "' + "x" * 40_000 + '", "text": "a"}', "its id has 40,000 bytes, more than 32,000"),
        ('{"id": "", "text": "a"}', "it has no id in field 'id'"),
        ('{"id": ["x"], "text": "a"}', "it has no id in field 'id'"),
        ('{"id": "x"}', "it has no text in field 'text'"),
        ('{"id": "x", "title": "of another field\'s text"}', "it has no text in field 'text'"),
        ('{"id": "x", "text": "  "}', "it has no text in field 'text'"),
        ('{"id": "x", "text": 5}', "it has no text in field 'text'"),
        ('{"id": "x", "text": "a", "title": ["b"]}', "its title in field 'title' is not text"),
        ('{"id": "x", "text": "half a pair: \\ud83d"}', "half of a surrogate pair"),
    ],
)
def test_a_jsonl_row_that_does_not_fit_is_named_by_file_and_line(tmp_path, row, reason):
    source = write(tmp_path / "rows.jsonl", f"{ROW}\n{row}\n{ROW}")
    message = refusal(source)
    assert f"{source}, line 3 " in message
    assert reason in message


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2\ttext", "number of columns"),
        ("2\ttext\ttitle\tmore", "number of columns"),
        ("\ttext\ttitle", "it has no id in field 'id'"),
        ("2\t\t", "it has no text in field 'text'"),
        ('2\t"closed"x\ttitle', "expected after"),
        ('2\t"never closed\ttitle', "unexpected end of data"),
        ('2\t"Heroes is a song\ttitle\n3\tsecond\tb\n4\tends in a quote"\tc', "closed only in line 5"),
    ],
)
def test_a_tsv_row_that_does_not_fit_is_named_by_file_and_line(tmp_path, row, reason):
    source = write(tmp_path / "rows.tsv", f"id\ttext\ttitle\n1\ta\tb\n{row}\n9\tc\td\n")
    message = refusal(source)
    assert f"{source}, line 3 " in message
    assert reason in message


def test_a_row_with_a_title_alone_is_found_by_it(tmp_path):
    jsonl = write(
        tmp_path / "a.jsonl", '{"id": 1, "title": "Rye", "text": ""}\n{"id": 2, "title": "Oat", "text": null}\n'
    )
    tsv = write(tmp_path / "b.tsv", "id\ttext\ttitle\n3\t\tWheat\n")
    assert [(p.text, p.title) for p in read_passages([jsonl, tsv])] == [("Rye",) * 2, ("Oat",) * 2, ("Wheat",) * 2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("docno\tbody\n1\ta\n", r"has no column id or text \(columns: docno, body\)"),
        ("", r"has no column id or text \(columns: none\)"),
        ('"id"x\ttext\n1\ta\n', "line 1 cannot be used"),
    ],
)
def test_a_tsv_header_that_does_not_fit_is_refused(tmp_path, content, reason):
    with pytest.raises(InputError, match=reason):
        list(read_passages([write(tmp_path / "a.tsv", content)]))


# streaming


def test_a_large_tsv_is_streamed(tmp_path):
    source = tmp_path / "large.tsv"
    text = "a passage of about a hundred words " * 16
    with source.open("w") as file:
        file.write("id\ttext\ttitle\n")
        file.writelines(f"{number}\t{text}{number}\ttitle\n" for number in range(20_000))
    list(read_passages([write(tmp_path / "warm.tsv", "id\ttext\n1\ta\n")]))  # imports are not what is measured
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_passages([source]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 2_000_000 < source.stat().st_size / 5


# documents


def test_a_folder_of_documents_is_split_and_named_by_path(tmp_path):
    write(tmp_path / "b.txt", "Plain text.")
    write(
        tmp_path / "sub" / "a.md" if (tmp_path / "sub").mkdir() is None else tmp_path,
        "intro\n\n# Kneading *dough*\n\nBody.",
    )
    write(tmp_path / "c.html", "<title> Page </title><script>no()</script><nav>menu</nav><p>Hello <b>w</b>orld.</p>")
    write(tmp_path / "d.pdf", make_pdf([(72, 720, "Ovens need steam.")], title="On Ovens"))
    write(tmp_path / "e.HTM", "<p>Untitled.</p>")
    passages = list(read_passages([tmp_path]))
    assert [(p.id, p.title) for p in passages] == [
        ("b.txt#1", "b"),
        ("c.html#1", "Page"),
        ("d.pdf#1", "On Ovens"),
        ("e.HTM#1", "e"),
        ("sub/a.md#1", "Kneading *dough*"),
    ]
    assert passages[0].text == "Plain text."
    assert passages[1].text == "Hello world."
    assert passages[2].text == "Ovens need steam."
    assert "Body." in passages[4].text


@pytest.mark.parametrize("name", ["long.txt", "long.md", "long.html"])
def test_a_long_document_is_split_at_sentence_ends_into_about_100_words(tmp_path, name):
    sentences = [f"Sentence number {n} has exactly ten words in its body." for n in range(100)]
    passages = list(read_passages([write(tmp_path / name, " ".join(sentences))]))
    assert [p.id for p in passages] == [f"{name}#{n}" for n in range(1, len(passages) + 1)]
    assert " ".join(p.text for p in passages) == " ".join(sentences)
    assert all(p.text.endswith(".") for p in passages)
    sizes = [len(p.text.split()) for p in passages]
    assert all(70 <= size <= 120 for size in sizes[:-1]), sizes


def test_what_a_folder_holds_besides_documents_is_left_out_and_named(tmp_path, caplog):
    write(tmp_path / "a.txt", "Text.")
    write(tmp_path / "photo.png", b"\x89PNG")
    write(tmp_path / ".hidden.txt", "Hidden.")
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".git" / "notes.txt", "Hidden too.")
    with caplog.at_level(logging.WARNING, logger="typedrag"):
        assert [p.id for p in read_passages([tmp_path])] == ["a.txt#1"]
    assert "left out 1 file (.png)" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "passages"),
    [
        ("a.csv", "id;text\n7;Bread rises; it does.\n".replace("; it", ", it"), [("7", "Bread rises, it does.")]),
        ("a.csv", "Flour,Water\n500 g,350 g\n", [("a.csv#1", "Flour\tWater\n500 g\t350 g")]),
        ("a.json", '[{"id": 7, "text": "Bread rises."}]', [("7", "Bread rises.")]),
        (
            "a.json",
            '{"bread": {"flour": ["rye", 500], "salt": null}}',
            [("a.json#1", "bread.flour.1: rye\nbread.flour.2: 500")],
        ),
        ("a.text", "Bread rises.", [("a.text#1", "Bread rises.")]),
        ("a.markdown", "# Bread\n\nIt rises.", [("a.markdown#1", "# Bread\nIt rises.")]),
        (
            "a.xhtml",
            "<html><head><title/></head><body><p>Bread rises.</p></body></html>",
            [("a.xhtml#1", "Bread rises.")],
        ),
    ],
)
def test_further_kinds_are_rows_or_documents(tmp_path, name, content, passages):
    assert [(p.id, p.text) for p in read_passages([write(tmp_path / name, content)])] == passages


def test_columns_that_are_mapped_must_be_there(tmp_path):
    source = write(tmp_path / "a.csv", "no,body\n7,Bread rises.\n")
    [passage] = read_passages([source], FieldMap(id="no", text="body"))
    assert (passage.id, passage.text) == ("7", "Bread rises.")
    assert "a.csv has no column docno (columns: no, body)" in refusal(source, fields=FieldMap(id="docno", text="body"))


def test_a_message_is_read_with_who_wrote_it_and_its_attachments_are_named(tmp_path, caplog):
    message = EmailMessage()
    message["Subject"], message["From"], message["Date"] = (
        "Our bread",
        "Anna <a@example.org>",
        "Fri, 1 Mar 2024 10:00:00 +0000",
    )
    message.set_content("Dear all,\n\nbread rises für Bäcker.\n", charset="latin-1")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="plan.pdf")
    with caplog.at_level(logging.INFO, logger="typedrag"):
        [passage] = read_passages([write(tmp_path / "a.eml", message.as_bytes())])
    assert passage.title == "Our bread"
    assert "From: Anna <a@example.org>" in passage.text
    assert passage.text.endswith("Dear all,\nbread rises für Bäcker.")
    assert "attachment plan.pdf" in caplog.text


def test_locks_of_office_are_passed_over(tmp_path):
    write(tmp_path / "plan.txt", "Bread rises.")
    write(tmp_path / "~$plan.docx", b"\x05Anna" + b"\0" * 150)
    assert [p.id for p in read_passages([tmp_path])] == ["plan.txt#1"]


def test_the_name_of_a_file_may_be_no_utf_8(tmp_path):
    file = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(file, "wb") as written:  # noqa: PTH123
        written.write(b"Bread rises.")
    [passage] = read_passages([tmp_path])
    assert passage == Passage(r"caf\xe9.txt#1", "Bread rises.", r"caf\xe9")


# what cannot be read


def test_a_missing_source_is_refused_before_others_are_read(tmp_path):
    passages = read_passages([write(tmp_path / "a.jsonl", ROW), tmp_path / "missing.jsonl"])
    with pytest.raises(InputError, match=r"missing\.jsonl does not exist"):
        next(passages)


def test_a_source_of_unknown_kind_is_refused(tmp_path):
    source = write(tmp_path / "a.rtf", b"{")
    message = refusal(source)
    assert str(source) in message
    assert ".jsonl, .ndjson, .tsv, .csv, .json (also .gz), .txt, .text, .md, .markdown, .html, .htm, .xhtml" in message


def test_a_folder_with_nothing_to_read_is_refused(tmp_path):
    write(tmp_path / "photo.png", b"\x89PNG")
    message = refusal(tmp_path)
    assert str(tmp_path) in message
    assert ".jsonl" in message.partition("Readable")[2]


def broken_gzip(kind: str) -> bytes:
    rows = gzip.compress(b"".join(b'{"id": %d, "text": "row %d"}\n' % (n, n * n) for n in range(5_000)))
    if kind == "cut off":
        return rows[: len(rows) // 2]
    if kind == "damaged":
        return rows[:1000] + bytes(range(256)) * 4 + rows[2000:]
    return b"no gzip at all"


@pytest.mark.parametrize("kind", ["cut off", "damaged", "no gzip"])
def test_a_broken_gzip_is_refused(tmp_path, kind):
    source = tmp_path / "a.jsonl.gz"
    source.write_bytes(broken_gzip(kind))
    assert f"{source}" in refusal(source)


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_what_is_not_utf8_is_refused(tmp_path, name):
    source = write(tmp_path / name, "café\n".encode("latin-1"))
    message = refusal(source)
    assert f"{source} cannot be read" in message
    assert "utf-8" in message


@pytest.mark.parametrize("name", ["a.jsonl", "a.tsv"])
def test_a_row_that_is_not_utf8_is_named_by_its_line(tmp_path, name):
    rows = f"{ROW}café\n" if name == "a.jsonl" else "id\ttext\n1\tcafé\n"
    source = write(tmp_path / name, rows.encode("latin-1"))
    assert f"{source}, line 2 cannot be used: it is not UTF-8" in refusal(source)


@pytest.mark.parametrize("content", [b"%PDF-1.4\nnonsense", b"", make_pdf([(72, 720, "cut off")])[:300]])
def test_a_broken_pdf_is_named(tmp_path, content):
    write(tmp_path / "a.txt", "Text.")
    source = write(tmp_path / "broken.pdf", content)
    assert f"{source} cannot be read" in refusal(tmp_path)


# many files at once


def test_all_bad_files_are_named_at_once(tmp_path):
    write(tmp_path / "a.txt", "Text.")
    write(tmp_path / "b.pdf", b"nonsense")
    write(tmp_path / "c.txt", b"\xff\xff\xff")
    write(tmp_path / "d.jsonl", ROW + "{oops}\n{again}\n")
    passages = read_passages([tmp_path])
    assert next(passages).id == "a.txt#1"  # what comes before the first can be indexed, and gone on from
    with pytest.raises(InputError) as refused:
        next(passages)
    for name in ("b.pdf cannot be read", "c.txt cannot be read", "d.jsonl, line 2 cannot be used"):
        assert name in str(refused.value)
    assert "line 3" not in str(refused.value)
    assert "--skip-bad" in str(refused.value)


@pytest.mark.parametrize("name", ["a.JSONL", "a.Jsonl.GZ", "a.TSV", "a.tsv.GZ"])
def test_endings_may_be_in_capitals_and_rows_in_folders(tmp_path, name):
    content = (ROW if "json" in name.lower() else "id\ttext\n1\tDough rises.\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    assert [(p.id, p.text) for p in read_passages([tmp_path / name])] == [("1", "Dough rises.")]
    assert [(p.id, p.text) for p in read_passages([tmp_path])] == [("1", "Dough rises.")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_the_encoding_is_told_by_its_mark(tmp_path, encoding):
    files = [
        write(tmp_path / "a.jsonl", ("\ufeff" + '{"id": 1, "text": "Pão 😀"}\n').encode(encoding)),
        write(tmp_path / "b.tsv.gz", "\ufeffid\ttext\r\n2\tWater\r\n".encode(encoding)),
        write(tmp_path / "c.txt", "\ufeffSalt.\r\n".encode(encoding)),
        write(tmp_path / "d.html", "\ufeff<p>Café</p>".encode(encoding)),
    ]
    assert [p.text for p in read_passages(files)] == ["Pão 😀", "Water", "Salt.", "Café"]


def test_a_file_of_the_same_name_as_one_that_is_indexed_gets_another_id(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "docs").mkdir(parents=True)
        write(tmp_path / parent / "docs" / "x.txt", "X.")
    first, second = tmp_path / "a" / "docs", tmp_path / "b" / "docs"
    indexed = [str(first)]
    assert [p.id for p in read_passages([second], indexed=indexed)] == ["b/docs/x.txt#1"]
    assert [p.id for p in read_passages([tmp_path / "b"], indexed=indexed)] == ["b/docs/x.txt#1"]
    assert [p.id for p in read_passages([first], indexed=indexed)] == ["x.txt#1"]  # it is there already


# links


def test_ids_do_not_depend_on_how_a_folder_is_written(tmp_path, monkeypatch):
    for folder in ("a/docs", "b/docs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "bread.txt").write_text("Bread rises.")
    monkeypatch.chdir(tmp_path / "a")
    ways = ("docs", "docs/", "./docs", "../a/docs", str(tmp_path / "a/docs"))

    def ids(*sources: str, indexed: tuple[str, ...] = ()) -> list[str]:
        return [p.id for p in read_passages([Path(source) for source in sources], indexed=indexed)]

    for way in ways:
        assert (
            ids(way) == ids(way, indexed=("docs",)) == ids(way, indexed=(str(tmp_path / "a/docs"),)) == ["bread.txt#1"]
        )
        assert ids(way, "../b/docs") == ["a/docs/bread.txt#1", "b/docs/bread.txt#1"]
        assert ids(str(tmp_path / "b/docs"), indexed=(way,)) == ["b/docs/bread.txt#1"]
    monkeypatch.chdir(tmp_path / "a/docs")
    assert ids(".") == ["bread.txt#1"] and ids(".", indexed=("../../b",)) == ["docs/bread.txt#1"]


def test_links_that_lead_out_of_a_folder_are_not_followed(tmp_path, caplog):
    folder, outside = tmp_path / "docs", tmp_path / "secret"
    folder.mkdir()
    outside.mkdir()
    write(outside / "passwd.txt", "root")
    write(folder / "a.txt", "Text.")
    (folder / "within.txt").symlink_to(folder / "a.txt")
    (folder / "out.txt").symlink_to(outside / "passwd.txt")
    (folder / "linked").symlink_to(outside)
    (folder / "broken.txt").symlink_to(folder / "nowhere.txt")
    with caplog.at_level(logging.WARNING, logger="typedrag"):
        assert [p.id for p in read_passages([folder])] == ["a.txt#1", "within.txt#1"]
    for name in ("out.txt: left out, the link leads out", "linked: left out", "broken.txt: left out"):
        assert f"{folder}/{name}" in caplog.text
    (tmp_path / "link").symlink_to(folder)  # a folder that is named itself is read
    assert len(list(read_passages([tmp_path / "link"]))) == 2


# rows without bound


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.tsv.gz"])
def test_an_endless_line_is_named_in_bounded_memory(tmp_path, monkeypatch, name):
    for module in (text_files, sources):
        monkeypatch.setattr(module, "LONGEST_LINE", 100_000)
    head, start = (ROW, '{"id": "2", "text": "') if "json" in name else ("id\ttext\n", "2\t")
    source = tmp_path / name
    with gzip.open(source, "wb") as file:
        file.write((head + start).encode())
        for _ in range(40):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n' if "json" in name else b"\n")
    tracemalloc.start()
    try:
        assert f"{source}, line 2 cannot be used: it is longer than 100,000 characters" in refusal(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


def test_what_lucene_cannot_hold_is_refused_by_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LONGEST_LINE", 1_000)
    source = write(tmp_path / "a.jsonl", ROW + '{"id": "2", "text": "' + "😀" * 501 + '"}\n')
    assert f"{source}, line 2 cannot be used: its title and text have 1,003 characters" in refusal(source)


def test_bad_files_and_rows_are_left_out_where_that_is_asked_for(tmp_path, caplog):
    write(tmp_path / "a.txt", "Text.")
    write(tmp_path / "b.pdf", b"nonsense")
    write(tmp_path / "d.jsonl", ROW + "{oops}\n" + '{"id": "3", "text": "Salt."}\n')
    write(tmp_path / "e.tsv", 'id\ttext\n4\t"never closed\n')
    with caplog.at_level(logging.WARNING, logger="typedrag"):
        assert [p.id for p in read_passages([tmp_path], skip_bad=True)] == ["a.txt#1", "1", "3"]
    for name in ("b.pdf cannot be read", "d.jsonl, line 2 cannot be used", "e.tsv, line 2 cannot be used"):
        assert f"left out: {tmp_path}/{name}" in caplog.text

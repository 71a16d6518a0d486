"""Readers of documents: the title and the blocks of files of each kind."""

import csv
import email
import email.policy
import logging
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from typedrag.core.errors import InputError, TypedRAGError, first_line
from typedrag.core.extras import MissingExtra, require
from typedrag.files.text_files import (
    LONGEST_LINE,
    drop_half_characters,
    open_table,
    open_text,
    parse_json,
    parse_yaml,
    shown_name,
)
from typedrag.retrieval.index.html import read_html
from typedrag.retrieval.index.office import read_docx, read_pptx, read_xlsx, table_blocks
from typedrag.retrieval.index.pdf import read_pdf
from typedrag.retrieval.index.splitting import Block, Document, LeftOut

logger = logging.getLogger(__name__)

_LONGEST_TITLE = 300
_LARGEST_PART = 50_000_000  # bytes that a part of a book may have: a zip file may claim any size
_ENCRYPTION = "META-INF/encryption.xml"
_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(?![ \t]*\n)(.*?)\n(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
"""As Pandoc has it: a blank line after the first dashes makes them a rule."""
_FOOTNOTE = re.compile(r"^\[\^[^\]\n]+\]:", re.MULTILINE)
_KEYS = re.compile(r"(?:(?:[A-Za-z][\w-]*[ \t]*[:=]|[ \t#-]).*\n|\n)*\Z")
"""Lines that each have a key, go on with a value or are comments."""
_KEY = re.compile(r"^([A-Za-z][\w-]*)[ \t]*[:=](?:[ \t]+(.*?))?[ \t]*$", re.MULTILINE)
"""A key of front matter and its value on the same line."""


def read_document(path: Path) -> Document:
    """A file's title, by default its name without the ending, and its content."""
    try:
        document = READERS[Path(path.name.lower().removesuffix(".gz")).suffix](path)
    except MissingExtra as error:
        raise MissingExtra(error.package, str(path)) from error
    except TypedRAGError:
        raise
    except (Exception, RecursionError) as error:  # readers raise errors of many kinds for broken files
        raise InputError(
            f"{path} cannot be read: {first_line(error)}", "Correct it, or leave it out: --skip-bad"
        ) from error
    title, content, left_out = document
    title = " ".join(drop_half_characters(title).split())[:_LONGEST_TITLE] or shown_name(path.stem)
    if isinstance(content, str):
        return Document(title, drop_half_characters(content), left_out)
    return Document(title, [b._replace(text=drop_half_characters(b.text)) for b in content], left_out)


def _read_text(path: Path) -> str:
    with open_text(path, newline=None) as file:
        return file.read()


def read_markdown(text: str) -> Document:
    """The title, from the front matter or else the first heading, and the blocks, still in Markdown."""
    from markdown_it import MarkdownIt

    metadata: Any = {}
    if match := _FRONT_MATTER.match(text):  # in YAML, TOML or what looks like them
        try:
            metadata = tomllib.loads(match[2]) if match[1] == "+++" else parse_yaml(match[2])
        except (ValueError, RecursionError):  # often a title that has a colon but no quotes
            metadata = dict(_KEY.findall(match[2])) if _KEYS.match(f"{match[2]}\n") else None
        if isinstance(metadata, dict):
            text = text[match.end() :]
        else:  # then all is text
            metadata = {}
    # a footnote of one word would count as a link's address, which is no text
    tokens = MarkdownIt("commonmark").enable("table").parse(_FOOTNOTE.sub(r"\\\g<0>", text))
    headings = (tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open")
    title = metadata.get("title")
    blocks, lines = list[Block](), text.split("\n")
    for number, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        source = lines[token.map[0] : token.map[1]]
        own = "\n".join(source).strip("\n")
        if token.type == "heading_open":
            if not token.markup.startswith("#"):  # it is underlined
                own = f"{'#' * int(token.tag[1:])} {tokens[number + 1].content}"
            blocks.append(Block(" ".join(own.split()), "heading"))
        elif token.type == "paragraph_open":
            blocks.append(Block(own))
        elif token.type == "table_open":
            blocks.append(Block("\n".join(source[2:]).strip("\n"), "lines", "\n".join(source[:2])))
        elif token.type == "fence":
            fence = token.markup + token.info.rstrip() if token.info else token.markup
            blocks.append(Block(token.content.rstrip("\n"), "lines", fence, token.markup))
        elif token.type == "html_block":
            blocks += read_html(own.encode(), whole=True).content  # type: ignore[arg-type]
        elif token.type != "hr":
            blocks.append(Block(own, "lines"))
    return Document(str(title) if isinstance(title, str | int | float) else next(headings, ""), blocks)


def _read_epub(path: Path) -> Document:
    require("lxml")
    from lxml import etree

    def part(name: str) -> bytes:
        with book.open(name if name in names else names_in_lower_case[name.lower()]) as file:
            data = file.read(_LARGEST_PART + 1)
        if len(data) > _LARGEST_PART:
            raise ValueError(f"{name} in it is larger than {_LARGEST_PART:,} bytes")
        return data

    def tree(name: str) -> Any:
        return etree.fromstring(part(name), etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))

    with ZipFile(path) as book:
        names = frozenset(book.namelist())
        names_in_lower_case = {name.lower(): name for name in names}
        package = tree("META-INF/container.xml").xpath("string(//*[local-name()='rootfile']/@full-path)")
        root, locked = tree(package), frozenset[str]()
        if _ENCRYPTION in names:
            hidden = tree(_ENCRYPTION).xpath(
                "//*[local-name()='EncryptedData'][not(contains(.//@Algorithm, 'idpf.org') or contains(.//@Algorithm,"
                " 'adobe.com'))]//*[local-name()='CipherReference']/@URI"
            )
            locked = frozenset(map(unquote, hidden))
        title = root.xpath("string(//*[local-name()='metadata']/*[local-name()='title'])")
        files = {item.get("id"): item for item in root.xpath("//*[local-name()='item']")}
        pages = [files[key] for key in root.xpath("//*[local-name()='itemref']/@idref") if key in files]
        blocks = list[Block]()
        for page in (page.get("href", "") for page in pages if "image/" not in page.get("media-type", "")):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(page)))
            if name in locked:
                raise ValueError("it is encrypted (DRM)")
            if name.lower() in names_in_lower_case:
                blocks += read_html(part(name), whole=True).content  # type: ignore[arg-type]
            else:
                logger.warning("%s: left out its page %s, which is not in it", path, name)
        return Document(title, blocks)


def _read_email(path: Path) -> Document:
    """A message: its subject as the title, who wrote to whom and when, and its text. Attachments are named."""
    with path.open("rb") as file:
        message = email.message_from_binary_file(file, policy=email.policy.default)
    subject = str(message["subject"] or "")
    heads = [f"{name}: {message[name]}" for name in ("From", "To", "Cc", "Date", "Subject") if message[name]]
    blocks, left_out = [Block("\n".join(heads), "lines")], list[LeftOut]()
    body = message.get_body(("plain", "html"))
    for part in message.walk():
        if part is body:
            data = bytes(part.get_payload(decode=True) or b"")
            try:
                text = data.decode(part.get_content_charset() or "utf-8", "replace")
            except LookupError:  # it names no encoding that there is
                text = data.decode("utf-8", "replace")
            if part.get_content_subtype() == "html":
                blocks += read_html(text.encode(), whole=True).content  # type: ignore[arg-type]
            else:
                blocks += [Block(paragraph) for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n"))]
        elif part.is_attachment() or part.get_filename():
            left_out.append(LeftOut(f"attachment {part.get_filename() or part.get_content_type()}", 0))
    return Document(subject, blocks, left_out)


def _read_csv(path: Path) -> Document:
    with open_table(path) as (lines, delimiter):
        csv.field_size_limit(LONGEST_LINE)
        return Document("", list(table_blocks(csv.reader(lines, delimiter=delimiter))))


def _read_json(path: Path) -> Document:
    """The values of a JSON file, each with the names on the way to it; members of the outermost list one by one."""

    def lines(value: Any, name: str) -> Iterator[str]:
        if isinstance(value, dict | list) and value:
            inner = value.items() if isinstance(value, dict) else enumerate(value, 1)
            for key, member in inner:
                yield from lines(member, f"{name}.{key}" if name else str(key))
        elif value not in (None, "", {}, []):
            yield f"{name}: {value}" if name else str(value)

    with open_text(path) as file:
        value = parse_json(file.read())
    members = value if isinstance(value, list) else [value]
    return Document("", [Block("\n".join(lines(member, "")), "lines") for member in members])


READERS: dict[str, Callable[[Path], Document]] = {
    **dict.fromkeys((".txt", ".text"), lambda path: Document("", _read_text(path))),
    **dict.fromkeys((".md", ".markdown"), lambda path: read_markdown(_read_text(path))),
    **dict.fromkeys((".html", ".htm", ".xhtml"), lambda path: read_html(path.read_bytes())),
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".xlsx": read_xlsx,
    ".epub": _read_epub,
    ".eml": _read_email,
    ".csv": _read_csv,
    ".json": _read_json,
}
"""The reader of each file ending."""

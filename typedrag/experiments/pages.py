"""Self-contained HTML pages: a folder holds the template of a page and its additions to the common style."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typedrag import __version__
from typedrag.core.errors import path_error
from typedrag.files.text_files import write_text

REPORT = Path(__file__).parent / "report" / "report_page"
"""The folder of the report, which holds the base, the tables and the style of all pages."""


def write_page(page: str, out: Path) -> None:
    """Write a page; an `InputError` if the file cannot be written."""
    try:
        write_text(out, page)
    except OSError as error:
        raise path_error(out, error) from None


def render_page(folder: Path, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """The page of a folder as HTML: `NAME_page` holds `NAME.html.j2` and `NAME.css`.

    All texts are escaped: strangers may have written them. The template gets `style` and `version` besides the values,
    which include the `title`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([folder, REPORT]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}  # the default sorts measures by name
    environment.filters |= filters
    name = folder.name.removesuffix("_page")
    sheets = dict.fromkeys((REPORT / "report.css", folder / f"{name}.css"))
    style = "".join(sheet.read_text("utf-8") for sheet in sheets)
    page: str = environment.get_template(f"{name}.html.j2").render(style=style, version=__version__, **values)
    return page

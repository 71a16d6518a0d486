"""Format numbers, tables and self-contained pages, the same way in pages and the terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typedrag import __version__
from typedrag.core.errors import path_error
from typedrag.core.records import Estimate
from typedrag.files.text_files import write_text

NONE = "-"


def decimals(*values: float) -> int:
    """The number of decimals for the numbers of a row: about three digits of the largest.

    Example:
        >>> decimals(0.52, 0.013), decimals(62.5), decimals(2431.0)
        (3, 1, 0)
    """
    largest = max(map(abs, values), default=0.0)
    return 3 if largest < 10 else 1 if largest < 1000 else 0


def format_value(value: float | None, places: int | None = None, *, signed: bool = False) -> str:
    """A number in a few digits, or a dash for none.

    Example:
        >>> format_value(0.5208), format_value(-0.02, signed=True), format_value(12_345.6), format_value(None)
        ('0.521', '-0.020', '12,346', '-')
    """
    if value is None:
        return NONE
    places = decimals(value) if places is None else places
    rounded = round(value, places) or 0.0  # no negative zero
    return f"{rounded:{'+' if signed else ''},.{places}f}"


def format_interval(estimate: Estimate | None, *, signed: bool = False) -> str:
    """Both ends of an interval, or the number of questions where there is none.

    Example:
        >>> format_interval(Estimate(0.0, -0.1, 0.25, n=20), signed=True)
        '[-0.100, +0.250]'
    """
    if estimate is None:
        return ""
    if estimate.interval is None:
        return estimate.size
    places = decimals(estimate.value, *estimate.interval)
    return f"[{', '.join(format_value(end, places, signed=signed) for end in estimate.interval)}]"


def format_estimate(estimate: Estimate | None, *, signed: bool = False) -> str:
    """A value with its interval, or with the number of questions where there is none.

    Example:
        >>> format_estimate(Estimate(62.5, 55.0, 70.25, n=20)), format_estimate(Estimate(0.5, None, None, n=3))
        ('62.5 [55.0, 70.2]', '0.500 (n = 3 questions)')
    """
    if estimate is None:
        return NONE
    places = decimals(estimate.value, *(estimate.interval or ()))
    return f"{format_value(estimate.value, places, signed=signed)} {format_interval(estimate, signed=signed)}"


def format_p(p: float | None) -> str:
    """A p-value to three decimals, or `<0.001`.

    Example:
        >>> format_p(0.0421), format_p(0.00004), format_p(1.0), format_p(None)
        ('0.042', '<0.001', '1.000', '-')
    """
    if p is None:
        return NONE
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def format_count(count: int | None) -> str:
    """A whole number with separated thousands, or a dash for none; beyond a million, `>1,000,000`.

    Example:
        >>> format_count(11_350), format_count(2_000_000), format_count(None)
        ('11,350', '>1,000,000', '-')
    """
    if count is None:
        return NONE
    return f"{count:,}" if count <= 1_000_000 else ">1,000,000"


def flatten(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by dotted names; an empty mapping is a value.

    Example:
        >>> dict(flatten({"options": {"top_k": 5}, "lm": "vllm:m", "bm25": {}}))
        {'options.top_k': 5, 'lm': 'vllm:m', 'bm25': {}}
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, and an empty line after it.

    Example:
        >>> print("\\n".join(markdown_table(("program", "n"), [("a|b", "3")])))
        | program | n |
        |---|---|
        | a\\|b | 3 |
        <BLANKLINE>
    """
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        cells = (cell.replace("|", r"\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


REPORT = Path(__file__).parent / "report_page"  # holds the base, the tables and the style of all pages


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
        loader=FileSystemLoader([folder, REPORT]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}  # the default sorts measures by name
    environment.filters |= filters
    name = folder.name.removesuffix("_page")
    sheets = dict.fromkeys((REPORT / "report.css", folder / f"{name}.css"))
    style = "".join(sheet.read_text("utf-8") for sheet in sheets)
    return environment.get_template(f"{name}.html.j2").render(style=style, version=__version__, **values)

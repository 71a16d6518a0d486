"""Draw each results page's chart and write its table, out of the full tables in docs/results.

python scripts/summaries.py              # all pages
python scripts/summaries.py judges       # some

Only what stands between the two marks of a page is written. The text around it is by hand: what was asked, and what to
conclude.
"""

import argparse
import re
from pathlib import Path

from charts import described, draw
from summary_readers import PAGES, Summary

from typedrag.cli.terminal import run, say
from typedrag.experiments.formats import markdown_table

BEGIN, END = "<!-- begin: by scripts/summaries.py -->", "<!-- end -->"
FULL = "results/full-{}.md"
_LEGEND = (
    "*Dots are what was measured, lines their 95 % intervals, of each comparison by itself. Orange intervals exclude "
    "the dashed line, which marks no difference or chance; blue ones include it.*"
)
_LEGEND_WITHOUT_LINE = "*Dots are what was measured, lines their 95 % intervals.*"
_UNREAD = "Nobody has concluded anything from these figures yet."


def main() -> None:
    """Parse, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(PAGES)
    parser.add_argument("pages", nargs="*", metavar="PAGE", choices=[[], *PAGES], help=f"default: all of {names}")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages; default: docs")
    arguments = parser.parse_args()
    for page in arguments.pages or PAGES:
        summarize(arguments.docs, page)


def write_full(docs: Path, page: str, text: str) -> None:
    """Write a page's full tables, and with them the chart and the table of that page and of others that read them."""
    full = docs / FULL.format(page)
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_text(text, "utf-8")
    for reader, (_, sources) in PAGES.items():
        written = (docs / f"{reader}.md").exists()
        if written and page in sources:
            say(f"{docs / reader}.md: its text is by hand and tells of the figures before these: rewrite it")
        if reader == page or (written and page in sources):
            summarize(docs, reader)


def summarize(docs: Path, page: str) -> None:
    """Draw a page's chart and write what stands between its marks, out of its full tables.

    A page that is not there is begun, without a conclusion.

    Args:
        docs: The folder of the pages.
        page: Its path there, without the ending.
    """
    read, sources = PAGES[page]
    file, name = docs / f"{page}.md", Path(page).name
    summary = read(lambda source: (docs / FULL.format(source)).read_text("utf-8"), sources[0])
    draw(summary.panels, docs / f"results/{name}.svg")
    full = (docs / FULL.format(sources[0])).read_text("utf-8")
    if not file.exists():
        title = full.splitlines()[0]
        conclusion = f"## What to conclude\n\n{_UNREAD}\n\n## The figures"
        file.write_text(f"{title}\n\n{conclusion}\n\n{BEGIN}\n{END}\n", "utf-8")
    before, rest = file.read_text("utf-8").split(BEGIN, 1)
    up = "../" * page.count("/")
    block = "\n".join(_block(summary, full, up, [s for s in sources if (docs / FULL.format(s)).exists()], name))
    file.write_text(f"{before}{BEGIN}\n\n{block}\n{END}{rest.split(END, 1)[1]}", "utf-8")


def _block(summary: Summary, full: str, up: str, sources: list[str], name: str) -> list[str]:
    links = [f"[{s}]({up}{FULL.format(s)})" for s in sources]
    line = any(panel.line is not None for panel in summary.panels)
    return [
        f"![{described(summary.panels)}]({up}results/{name}.svg)",
        "",
        _LEGEND if line else _LEGEND_WITHOUT_LINE,
        "",
        "<details><summary>The table</summary>",
        "",
        *markdown_table(summary.header, summary.rows),
        "</details>",
        "",
        *(f"{warning}\n" for warning in dict.fromkeys(re.findall(r"^\*\*Beware:\*\* .*$", full, re.MULTILINE))),
        f"{_made(full)}All tables: {', '.join(links)}.",
        "",
    ]


def _made(full: str) -> str:
    """The date and version of the figures, as far as the full tables say."""
    date = re.search(r"^(?:Made by|The tables are as).* on (\d{4}-\d\d-\d\d)", full, re.MULTILINE)
    version, commit = re.search(r"typedrag (\d[\w.]*\d)", full), re.search(r"commit (\w{7,})", full)
    if date is None:
        return ""
    by = f" by typedrag {version[1]}" if version else ""
    return f"Made on {date[1]}{by}{f', commit {commit[1]}' if commit else ''}. "


if __name__ == "__main__":
    run(main)

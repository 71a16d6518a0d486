"""Links of the documentation lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")})
GENERATED = ROOT / "docs" / "reference"
"""Pages that the site alone has; its build refuses links to those that it has not."""
LONGEST_PARAGRAPH = 80
"""In words."""
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """The names by which GitHub lets a page's headings be linked to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_there_is(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        linked = (page.parent / target).resolve() if target else page
        if linked.is_relative_to(GENERATED):
            continue
        assert linked.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(linked), f"{target} has no heading #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_is_long(page: Path) -> None:
    if page.name == "examples.md":
        pytest.skip("an LM wrote its answers")
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    blocks = [b for b in re.split(r"\n\s*\n|\n(?=\s*[-*] |\d+\. )", text) if not b.lstrip().startswith(("|", "<", "!"))]
    assert not [block for block in blocks if len(block.split()) > LONGEST_PARAGRAPH]

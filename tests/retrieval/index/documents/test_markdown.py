import pytest

from typedrag.retrieval.index.documents import read_markdown
from typedrag.retrieval.index.splitting import split_blocks


@pytest.mark.parametrize(
    "front",
    ['---\ntitle: "Why bread rises"\ntags: [bread]\n---\n', '+++\ntitle = "Why bread rises"\ndraft = true\n+++\n'],
)
def test_front_matter_gives_the_title_and_is_no_text(front):
    document = read_markdown(f"{front}\n# Rising\n\nYeast eats sugar.\n")
    assert document.title == "Why bread rises"
    assert list(split_blocks(document.content)) == ["# Rising\nYeast eats sugar."]


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("title: Bread: a story\ndate: 2021-01-01", "Bread: a story"),
        ("layout: post\ntitle: 5 @ home\ntags: [open", "5 @ home"),
        ("date: {{ now }}: x", "Rising"),
    ],
)
def test_front_matter_that_is_no_yaml_is_no_text_either(front, title):
    document = read_markdown(f"---\n{front}\n---\n# Rising\n\nYeast eats sugar.\n")
    assert document.title == title
    assert list(split_blocks(document.content)) == ["# Rising\nYeast eats sugar."]


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule above.\n\n---\n\nAnd below.",
        "---\n\nNote: the kettle is hot.\n\n---\n\nAnd below.",
        "---\nNote: never mix: acids\nand bleach, says the label.\n---\n\nAnd below.",
        "---\n[broken\n---\nAnd below.",
        "---\nA rule above.",
    ],
)
def test_markdown_that_begins_with_a_rule_keeps_its_text(text):
    words = " ".join(split_blocks(read_markdown(text).content)).replace("#", "").replace("-", " ").split()
    assert words == text.replace("-", " ").split()


def test_a_heading_in_code_is_none_and_code_keeps_its_lines():
    text = '```python\n# not a heading\ndef bake():\n    return "loaf"\n```\n\n'
    text += "Baking\n======\n\n1. Mix\n2. Knead\n   - long\n"
    document = read_markdown(text)
    assert document.title == "Baking"
    [passage] = split_blocks(document.content)
    assert '```python\n# not a heading\ndef bake():\n    return "loaf"\n```' in passage
    assert "# Baking\n" in passage  # underlined in the source
    assert "1. Mix\n2. Knead\n   - long" in passage


def test_comments_are_left_out_and_tables_are_kept():
    text = "<!-- hidden -->\n\n| Flour | Water |\n|---|---|\n| 500 g | 350 g |\n\n<div>Shown</div>\n"
    [passage] = split_blocks(read_markdown(text).content)
    assert passage == "| Flour | Water |\n|---|---|\n| 500 g | 350 g |\nShown"


def test_callouts_folded_text_and_footnotes_are_kept():
    text = """<aside>
💡 Badges are at gate seven.

</aside>

<details>
<summary>Where is the canteen?</summary>

Behind the hall.

</details>

!!! warning "Chemicals"
    Never mix them.

Deposit rules
-------------

Keep it.[^a]

[^a]: Receipts.

<div class="sidebar">Open on Thursdays.</div>
"""
    assert "\n".join(split_blocks(read_markdown(text).content)) == (
        "💡 Badges are at gate seven.\nWhere is the canteen?\nBehind the hall.\n"
        '!!! warning "Chemicals" Never mix them.\n## Deposit rules\nKeep it.[^a]\n[^a]: Receipts.\nOpen on Thursdays.'
    )

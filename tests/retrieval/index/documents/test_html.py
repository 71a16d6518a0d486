import logging
import time
from contextlib import suppress

import pytest

from tests.retrieval.index.test_sources import write
from typedrag.core.errors import InputError
from typedrag.retrieval import read_passages
from typedrag.retrieval.index.html import read_html
from typedrag.retrieval.index.splitting import split_blocks


def text_of(page: str) -> str:
    return "\n".join(split_blocks(read_html(page.encode()).content))


@pytest.mark.parametrize("main", ["main", "article", "div"])
def test_what_stands_around_the_content_is_left_out(main):
    page = f"""<html><body><header>Home Login</header><nav>Menu</nav><aside>Subscribe</aside>
    <div id="cookie" role="dialog">We use cookies</div><div class="cookie-banner">Accept</div>
    <{main}><h1>Why bread rises</h1><p>It makes CO<sub>2</sub>.<br>Yeast&nbsp;does.</p>
    <table><tr><th>Flour</th><th>Water</th></tr><tr><td>500 g</td><td>350 g</td></tr></table>
    <pre>def f():\n    return 1</pre><p style="display: none">hidden</p><p hidden>hidden two</p><!-- comment -->
    <select><option>Albania</option></select><svg><title>icon</title><text>drawn</text></svg><iframe>frame</iframe>
    <button>Copy</button></{main}><footer>Copyright ACME</footer></body></html>"""
    assert text_of(page) == (
        "Why bread rises\nIt makes CO2. Yeast does.\nFlour\tWater\n500 g\t350 g\ndef f():\n    return 1"
    )
    left_out = " ".join(part.text for part in read_html(page.encode()).left_out)
    for words in ("Login", "Menu", "Subscribe", "We use cookies", "hidden two", "Copyright ACME"):
        assert words in left_out


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ('<section id="cookies"><h2>Cookies</h2><p>Set a jar.</p></section>', "Cookies\nSet a jar."),
        (
            '<div class="gdpr consent">Ask first.</div><div class="sidebar">See also: rye.</div>',
            "Ask first.\nSee also: rye.",
        ),
        ("<aside class=note>Mind the crust.</aside><p>Cut.</p>", "Mind the crust.\nCut."),
        ("<header><h2>Chapter 1</h2><p>By Anna</p></header><p>Mix.</p>", "Chapter 1\nBy Anna\nMix."),
        ("<p>Mix.</p><footer>First printed in 1911.</footer>", "Mix.\nFirst printed in 1911."),
        (
            "<h3><button aria-controls=a>Why salt?</button></h3><div id=a hidden><p>It slows yeast.</div>",
            "Why salt?\nIt slows yeast.",
        ),
        (
            '<button class="accordion">Why salt?</button><div style="display:none">It slows.</div>',
            "Why salt?\nIt slows.",
        ),
        ("<div role=tab>Linux</div><div role=tabpanel hidden>Use apt.</div>", "Linux\nUse apt."),
        ("<details><summary>Why?</summary><p hidden>As it does.</p></details>", "Why?\nAs it does."),
        ("<nav><a href=/>Home</a> / <a href=/b>Bread</a></nav><p>Mix.</p>", "Mix."),
        ("<nav><a href=#salt>Salt</a></nav><h2 id=salt>Salt</h2>", "Salt\nSalt"),
        (
            "<nav>In this chapter you knead. <a href=/b>Next</a></nav>",
            "In this chapter you knead. Next",
        ),
        ('<h2>Oven<a class="headerlink" href="#oven">¶</a></h2><p>Heat it.</p>', "Oven\nHeat it."),
        ('<h2>Oven<span class="mw-editsection">[<a href="/e">edit</a>]</span></h2><p>Heat.</p>', "Oven\nHeat."),
        ("<dl><dt>crumb</dt><dd>The inside.</dd></dl>", "crumb\nThe inside."),
        ("<figure><img alt=x><figcaption>A loaf.</figcaption></figure>", "A loaf."),
        ("<p>So <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby>.</p>", "So 漢字(kanji)."),
    ],
)
def test_what_the_content_holds_is_text_whatever_it_is_called(inner, text):
    assert text_of(f"<body><nav>Menu</nav><main>{inner}</main></body>") == text
    assert text_of(f"<body><article>{inner}</article></body>") == text


def test_a_table_has_its_caption_and_cells_that_span_rows_in_each():
    page = """<main><table><caption>Doughs</caption><thead><tr><th rowspan=2>Kind<th colspan=2>Weight</tr>
    <tr><th>min<th>max</tr></thead><tr><td rowspan=2>rye<td>1<td>2</tr><tr><td>3<td>4</tr></table></main>"""
    assert text_of(page) == "Doughs\nKind\tWeight\t\nKind\tmin\tmax\nrye\t1\t2\nrye\t3\t4"


MATH = (
    "<math><semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi></mrow>"
    '<annotation encoding="application/x-tex">E=m</annotation></semantics></math>'
)


@pytest.mark.parametrize(
    "formula",
    [
        MATH,
        "<math><mi>E</mi><mo>=</mo><mi>m</mi></math>",
        f'<span><span class="katex-mathml">{MATH}</span><span class="katex-html" aria-hidden="true">E=m</span></span>',
        f'<mjx-container><mjx-math aria-hidden="true">E=m</mjx-math><span>{MATH}</span></mjx-container>',
        f'<span><span style="display: none">{MATH}</span><img alt="E=m"></span>',
    ],
)
def test_a_formula_is_read_once(formula):
    assert text_of(f"<main><p>So {formula} holds.</p></main>") == "So E=m holds."


def test_numbers_of_lines_are_no_code():
    page = (
        '<main><table><tr><td class="linenos"><pre>1\n2</pre></td><td><pre>a = 1\nb = 2</pre></td></tr></table></main>'
    )
    assert text_of(page) == "a = 1\nb = 2"


def test_tables_for_the_layout_keep_what_they_hold_as_it_is():
    inner = "<table><tr><th>Flour</th><th>Water</th></tr><tr><td>500 g</td><td>350 g</td></tr></table>"
    page = f"<main><table><tr><td>{inner}</td><td><pre>a = 1\nb = 2</pre></td></tr></table></main>"
    assert text_of(page) == "Flour\tWater\n500 g\t350 g\na = 1\nb = 2"


def test_the_time_grows_with_the_length_alone():
    def seconds(page: str) -> float:
        start = time.process_time()
        with suppress(ValueError):  # nested too deep
            read_html(page.encode())
        return time.process_time() - start

    for part in (
        "<div>",
        "<table><tr><td>",
        "<p hidden>x</p><button>y</button>",
        "<ul><li><a href=/>x</a></li></ul>",
        "<b>x",
    ):
        assert seconds(part * 20_000) < 30 * max(seconds(part * 2_000), 0.05)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h1>Bread</h1><p>Rises.</p><aside>Mind it.</aside><footer>ACME</footer>", "Bread\nRises.\nMind it."),
        ("<header><h1>Bread</h1><p>By Anna</p></header><p>Rises.</p>", "Bread\nBy Anna\nRises."),
        (
            '<div id=sections><div id="session-cookies"><h2>Session cookies</h2><p>Signed.</p></div></div>',
            "Session cookies\nSigned.",
        ),
        ('<div class="cookies"><h2>We value you</h2><button>OK</button></div><p>Rises.</p>', "Rises."),
        (f"<ul>{'<li><a href=/>Some dish</a></li>' * 12}</ul><p>Rises.</p>", "Rises."),
        (
            "<article><h3>Next post</h3></article><div><p>" + "Bread rises. " * 9 + "</p></div>",
            "Next post\n" + "Bread rises. " * 9,
        ),
        ("<main></main><p>Rises.</p>", "Rises."),
        ('<div class="has-sidebar"><h1>Bread</h1><p>Rises.</p><div class="sidebar">Ads</div></div>', "Bread\nRises."),
    ],
)
def test_a_page_that_marks_no_content_keeps_its_text(page, text):
    assert text_of(f"<body>{page}</body>") == text.strip()


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<svg><title>icon</title></svg><h1>Why <em>bread</em> rises</h1>", "Why bread rises"),
        ("<head><title> Page </title></head><h1>Other</h1><svg><title>icon</title></svg>", "Page"),
        ("<svg><title>icon</title></svg><p>Text", ""),
        ('<h1>Oven<a class="headerlink" href="#oven">¶</a></h1>', "Oven"),
        ("", ""),
    ],
)
def test_a_title_is_that_of_the_page_or_its_heading(page, title):
    assert read_html(page.encode()).title == title


def test_a_page_that_is_nested_too_deep_is_refused_and_not_read_in_part(tmp_path):
    page = tmp_path / "deep.html"
    page.write_text(f"<p>Before.</p>{'<div>' * 300}Within.{'</div>' * 300}<p>After.</p>")
    with pytest.raises(InputError, match=r"deep\.html cannot be read: its elements are nested more than 256 deep"):
        list(read_passages([page]))


def test_what_is_written_in_latin_1_is_read_as_the_page_says():
    page = '<meta charset="iso-8859-1"><p>Café</p>'.encode("latin-1")
    assert [block.text for block in read_html(page).content] == ["Café"]


def test_what_is_left_out_is_said_and_much_of_a_page_by_name(tmp_path, caplog):
    write(tmp_path / "a.html", "<nav><a href=/>Home</a></nav><main><p>Bread rises as yeast eats.</p></main><p>Tip</p>")
    write(tmp_path / "b.html", "<main><p>Short.</p></main><div>All of the rest stands here.</div>")
    with caplog.at_level(logging.INFO, logger="typedrag"):
        list(read_passages([tmp_path]))
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == f"{tmp_path / 'a.html'}: left out 12% of its text: Home Tip"
    assert said[2].startswith("48.1% of the documents' text is left out")
    assert said[3] == f"more than a third is left out of {tmp_path / 'b.html'} (79%)"
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING", "WARNING"]

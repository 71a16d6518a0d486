import pytest

from typedrag.retrieval.index.documents import read_html
from typedrag.retrieval.index.splitting import split_blocks

ARTICLE = "".join(
    f"<p>Paragraph {n} says that yeast eats sugar and gives off gas that is held by gluten.</p>" for n in range(12)
)


def text_of(page: str) -> str:
    return "\n".join(split_blocks(read_html(page.encode()).content))


@pytest.mark.parametrize("main", ["main", "article", "div"])
def test_the_article_is_taken_without_what_stands_around_it(main):
    page = f"""<html><body><header>Home Login</header><nav>Menu</nav><aside>Subscribe</aside>
    <div id="cookie" role="dialog">We use cookies</div><div class="cookie-banner">Accept</div>
    <{main}><h1>Why bread rises</h1><p>It makes CO<sub>2</sub>.<br>Yeast&nbsp;does.</p>
    <table><tr><th>Flour</th><th>Water</th></tr><tr><td>500 g</td><td>350 g</td></tr></table>
    <pre>def f():\n    return 1</pre><p style="display: none">hidden</p><p hidden>hidden two</p><!-- comment -->
    <select><option>Albania</option></select><svg><title>icon</title><text>drawn</text></svg><iframe>frame</iframe>
    </{main}><footer>Copyright ACME</footer></body></html>"""
    assert text_of(page) == (
        "Why bread rises\nIt makes CO2. Yeast does.\nFlour\tWater\n500 g\t350 g\ndef f():\n    return 1"
    )


def test_an_article_is_found_in_a_page_that_marks_none():
    links = "".join(f'<li><a href="/{n}">Section {n} of the site</a></li>' for n in range(40))
    page = f"<body><div><ul>{links}</ul></div><div><h1>Bread</h1>{ARTICLE}</div><div>Related: <a>Cakes</a></div></body>"
    text = text_of(page)
    assert "Paragraph 0 says" in text and "Paragraph 11 says" in text
    assert "Section" not in text


def test_what_holds_the_article_is_kept_whatever_it_is_called():
    page = (
        '<body class="has-sidebar"><div class="with-sidebar"><h1>Bread</h1><p>Rises.</p><div class="sidebar">Ads</div>'
    )
    assert text_of(page) == "Bread\nRises."


def test_a_header_in_an_article_is_part_of_it():
    assert text_of("<header>Site</header><article><header><h1>Bread</h1></header><p>Rises.</p></article>") == (
        "Bread\nRises."
    )


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<svg><title>icon</title></svg><h1>Why <em>bread</em> rises</h1>", "Why bread rises"),
        ("<head><title> Page </title></head><h1>Other</h1><svg><title>icon</title></svg>", "Page"),
        ("<svg><title>icon</title></svg><p>Text", ""),
        ("", ""),
    ],
)
def test_a_title_is_that_of_the_page_or_its_heading(page, title):
    assert read_html(page.encode()).title == title


def test_what_is_written_in_latin_1_is_read_as_the_page_says():
    page = '<meta charset="iso-8859-1"><p>Café</p>'.encode("latin-1")
    assert [block.text for block in read_html(page).content] == ["Café"]

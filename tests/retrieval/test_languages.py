import pytest

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.retrieval import BM25Retriever, append_index, build_index
from typedrag.retrieval.index.bm25_part import read_manifest

TEXTS = {
    "en": (
        ["Yeast makes gas, so the dough is rising in the warm kitchen.", "The sky is blue, since air scatters light."],
        "why does dough rise",
        "english: Porter stemmer, without stopwords",
    ),
    "de": (
        ["Die Hefe bildet Gase, und der Teig der Brote geht auf.", "Der Himmel ist blau, weil Luft das Licht streut."],
        "Warum geht das Brot auf?",  # it says Brote
        "Lucene's GermanAnalyzer",
    ),
    "el": (
        ["Η μαγιά παράγει αέριο και το ψωμί φουσκώνει.", "Ο ουρανός είναι μπλε επειδή ο αέρας σκεδάζει το φως."],
        "Γιατί φουσκώνουν τα ψωμιά;",
        "Lucene's GreekAnalyzer",
    ),
    "ja": (
        ["酵母がガスを出すのでパンは膨らみます。", "空気が光を散乱させるので空は青いです。"],
        "なぜパンは膨らむのですか？",
        "Lucene's JapaneseAnalyzer",
    ),
    "zh": (
        ["酵母产生气体，所以面包会发起来。", "空气散射光线，所以天空是蓝色的。"],
        "为什么面包发起来？",
        "Lucene's CJKAnalyzer",
    ),
    "th": (
        ["ยีสต์สร้างก๊าซ ขนมปังจึงฟูขึ้นในเตาอบ", "ท้องฟ้าเป็นสีฟ้าเพราะอากาศกระเจิงแสง"],
        "ทำไมขนมปังจึงฟู",
        "Lucene's StandardAnalyzer, over pairs of letters",
    ),
    "he": (
        ["השמרים יוצרים גז ולכן הלחם תופח בתנור.", "השמיים כחולים כי האוויר מפזר את האור."],
        "למה הלחם תופח?",
        "Lucene's StandardAnalyzer",
    ),
}


def passages(language):
    return [Passage(f"{language}-{n}", text, title=text[:5]) for n, text in enumerate(TEXTS[language][0])]


def test_a_standard_index_finds_words_and_not_their_stems(tmp_path):
    held = [Passage("p1", "The bakers are baking."), Passage("p2", "He bakes.")]
    build_index(held, tmp_path / "idx", sources=["test"], language="standard")
    assert [p.id for p in BM25Retriever(tmp_path / "idx").search(["baking"], 2)[0]] == ["p1"]


@pytest.mark.parametrize("language", TEXTS)
def test_an_index_is_read_as_its_passages_language_is_and_says_so(tmp_path, language):
    _, query, analyzer = TEXTS[language]
    manifest = build_index(passages(language), tmp_path / "idx", sources=["test"]).bm25
    assert (manifest.language, manifest.analyzer) == (language, analyzer)
    assert read_manifest(tmp_path / "idx") == manifest
    retriever = BM25Retriever(tmp_path / "idx")
    [best, *_], again = retriever.search([query, query], 2)
    assert best.id == again[0].id == f"{language}-0"
    assert sorted(retriever.passages(), key=lambda p: p.id) == passages(language)  # whatever was indexed of them


def test_what_is_no_language_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="'german' is no language"):
        build_index(passages("de"), tmp_path / "idx", sources=["test"], language="german")
    assert not (tmp_path / "idx").exists()


@pytest.mark.parametrize("language", ["de", "th"])
def test_what_is_added_is_read_in_the_language_of_the_index(tmp_path, language):
    first, second = passages(language)
    build_index([first], tmp_path / "idx", sources=["test"])
    manifest = append_index([second], tmp_path / "idx", sources=["more"]).bm25
    assert manifest.language == language
    query = {"de": "Lichter", "th": "ท้องฟ้า"}[language]
    assert [p.id for p in BM25Retriever(tmp_path / "idx").search([query], 1)[0]] == [second.id]

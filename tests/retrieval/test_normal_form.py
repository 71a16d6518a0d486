"""Words are found however their characters were typed, and shown as they were."""

import json
from unicodedata import normalize

import numpy as np
import pytest

from tests.retrieval.encoders import WORDS
from typedrag.core.records import Passage
from typedrag.retrieval import BM25Retriever, Encoder, append_index, build_index, open_reranker
from typedrag.retrieval.index import bm25_part
from typedrag.retrieval.index.dense_part import EncoderSettings
from typedrag.retrieval.index.generations import MANIFEST, current_generation
from typedrag.text.sentences import used_passages
from typedrag.text.words import normal_form, split_words

BOTH_FORMS = {
    "German": "Müllabfuhr", "French": "crêperie", "Spanish": "mañana", "Polish": "źródło", "Czech": "příliš",
    "Vietnamese": "nước", "Turkish": "ağaç", "Greek": "Αθήνα", "Russian": "чайник", "Ukrainian": "їжак",
    "Korean": "한국어", "Bengali": "বাংলো", "Tamil": "கொடி", "Kannada": "ಕೊಡೆ", "Burmese": "ဦးလေး", "Arabic": "سؤال",
}  # fmt: skip
"""Words with letters that are one character or several."""
OTHER = {
    "Arabic, as in old files": ("ﻣﺪﺭﺳﺔ", "مدرسة"),
    "Hebrew, with points": ("\ufb2aמש", "\u05e9\u05c1מש"),
    "Hindi, with dots": ("ल\u095cका", "ल\u0921\u093cका"),
    "Japanese, half-width": ("ﾊﾟﾝ", "パン"),
    "Chinese, radicals": ("⼈⼭", "人山"),
    "Thai": ("น้ํา", "น้ำ"),
    "full-width": ("ＧＰＵ２", "gpu2"),
    "ligatures": ("o\ufb03ce \ufb01re\ufb01ghters", "office firefighters"),
    "soft hyphens": ("wonder\u00adful", "wonderful"),
    "without width": ("bread\u200bcrumbs\ufeff", "breadcrumbs"),
    "joiners": ("क्\u200dष", "क्ष"),
}
PAIRS = {**{name: (normalize("NFC", w), normalize("NFD", w)) for name, w in BOTH_FORMS.items()}, **OTHER}


@pytest.fixture(scope="module", params=["en", "standard"])
def retriever(request, tmp_path_factory):
    held = [
        Passage(f"{name} {number}", f"It is {form} here.", f"Of {form}")
        for name, forms in PAIRS.items()
        for number, form in enumerate(forms)
    ]
    index = tmp_path_factory.mktemp("forms") / "index"
    build_index(held, index, sources=["test"], language=request.param)
    return BM25Retriever(index)


@pytest.mark.parametrize("name", PAIRS)
def test_a_word_is_found_in_each_of_its_forms(retriever, name):
    assert PAIRS[name][0] != PAIRS[name][1]
    for found in retriever.search(PAIRS[name], 2):
        assert {p.id for p in found} == {f"{name} 0", f"{name} 1"}
        assert {p.text for p in found} == {f"It is {form} here." for form in PAIRS[name]}


def test_persians_non_joiner_stays_and_other_joiners_do_not():
    assert normal_form("می\u200cخواهم") == "می\u200cخواهم"
    assert normal_form("auf\u200clegen") == "auflegen"


def test_words_are_compared_in_this_form():
    for first, second in PAIRS.values():
        assert split_words(first) == split_words(second)
    passages = [Passage("a", "Die Mu\u0308llabfuhr kommt fru\u0308h.")]
    assert used_passages("Müllabfuhr kommt früh", passages, "Wann?") == {"a"}


def test_an_index_of_before_is_searched_and_added_to_as_before(tmp_path, monkeypatch):
    index = tmp_path / "index"
    with monkeypatch.context() as before:
        before.setattr(bm25_part, "NORMAL_FORM", "")
        build_index([Passage("a", "Mu\u0308ll"), Passage("b", "Bread")], index, sources=["test"])
    manifest = current_generation(index) / MANIFEST
    values = json.loads(manifest.read_text("utf-8"))
    assert values.pop("normal_form") == ""
    manifest.write_text(json.dumps({**values, "format": 3}))
    append_index([Passage("c", "Mu\u0308ll again")], index, sources=["more"])
    retriever = BM25Retriever(index)
    found = retriever.search(["Mu\u0308ll", "Müll"], 3)
    assert [sorted(p.id for p in each) for each in found] == [["a", "c"], []]
    assert "normal_form" not in retriever.identity


def test_embeddings_are_of_this_form_unless_the_index_is_of_before(tiny_model):
    encoder, word = Encoder(tiny_model), WORDS[0]
    wide = "".join(chr(ord(c) + 0xFEE0) for c in word)
    plain, typed = encoder.encode_queries([word]), encoder.encode_queries([wide])
    np.testing.assert_allclose(plain, typed, rtol=1e-5)
    settings = EncoderSettings.of(encoder)
    assert settings.normal_form == "NFKC"
    before = EncoderSettings.model_validate({**settings.model_dump(exclude={"normal_form"})}).encoder(tiny_model)
    assert not np.allclose(plain, before.encode_queries([wide]), rtol=1e-3)


def test_rerankers_read_this_form(tiny_model):
    word = WORDS[0]
    wide = "".join(chr(ord(c) + 0xFEE0) for c in word)
    [plain, typed] = open_reranker(f"bi-encoder:{tiny_model}").rerank(word, [Passage("a", word), Passage("b", wide)], 2)
    assert plain.score == pytest.approx(typed.score)


def test_passages_longer_than_a_model_reads_are_said(tiny_model, tmp_path, caplog):
    encoder = Encoder(tiny_model)
    with encoder._model as model:
        model.max_seq_length = 16
    held = [Passage("short", " ".join(WORDS[:3])), Passage("long", " ".join(WORDS * 20))]
    build_index(held, tmp_path / "index", sources=["test"], bm25=False, encoder=encoder)
    assert "1 passages are longer than" in caplog.text
    assert "finds them by their beginnings alone" in caplog.text

import pytest

from typedrag.datasets import load_dataset
from typedrag.text.language import detect_language, detect_main_language, is_english, known_languages

OTHERS = {
    "de": ["Warum ist der Himmel blau?", "Wie repariere ich einen platten Reifen?"],
    "es": ["¿Cuál es la diferencia entre el té y el café?", "Qué es la inflación?"],
    "fr": ["Pourquoi le ciel est-il bleu ?", "Quelle est la différence entre le thé et le café ?"],
    "it": ["Perché il pane lievita?", "Qual è la differenza tra tè e caffè?"],
    "nl": ["Waarom rijst brood?", "Hoe verwissel ik een fietsband?"],
    "ja": ["なぜパンは膨らむのですか？"],
    "zh": ["为什么面包会发起来？"],
    "ko": ["빵은 왜 부풀어 오르나요?"],
    "th": ["ทำไมขนมปังจึงฟู"],
    "ar": ["لماذا يرتفع الخبز؟"],
    "el": ["Γιατί φουσκώνει το ψωμί;"],
    "hy": ["Ինչո՞ւ է հացը բարձրանում"],
    "am": ["ዳቦ ለምን ይነሳል፧"],
    "he": ["למה לחם תופח?"],
    "ru": ["Почему хлеб поднимается?"],
}


@pytest.mark.parametrize(("code", "texts"), OTHERS.items())
def test_other_languages_are_told(code, texts):
    assert [detect_language(text) for text in texts] == [code] * len(texts) and code in known_languages()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "123",
        "C++?",
        "Why?",
        "what is Schadenfreude",
        "Who is Jorge Mario Bergoglio?",
        "How do I make pad thai?",
        "\ud800 why is it",
    ],
)
def test_what_may_be_english_is(text):
    assert is_english(text)


def test_letters_that_no_model_knows_are_not_english():
    assert not is_english("ߒ ߡߍ߲ ߕߍ߫")


@pytest.mark.parametrize("subset", ["train", "valid"])
def test_of_a_thousand_english_questions_less_than_three_are_taken_for_another_language(shared_data, subset):
    questions = [e.question for e in load_dataset("nf-cats", shared_data / "nf_cats", subset=subset).examples]
    assert sum(not is_english(question) for question in questions) < 0.003 * len(questions)


def test_texts_are_in_the_language_of_more_than_half_of_them():
    german, english = OTHERS["de"][0], "Why does bread rise?"
    assert detect_main_language([german, german, english]) == "de"
    assert detect_main_language([german, english]) == detect_main_language([]) == "en"

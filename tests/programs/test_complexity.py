"""Adaptive-RAG's classifier: a T5 that was trained to write A, B or C."""

from pathlib import Path

import pytest

from tests.retrieval.berts import WORDS
from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.question_types import Route
from typedrag.lms.trace import collect_steps
from typedrag.programs import AdaptiveRAGOptions, Options
from typedrag.programs.adaptive_rag import TrainedComplexity
from typedrag.programs.loading import external_options

ROUTES = {"A": Route.STRAIGHTFORWARD, "B": Route.SINGLE_STEP, "C": Route.COMPLEX}


def save_t5(folder: Path, letters: str = "ABC") -> str:
    """A T5 of random weights with a tokenizer that knows the words and the letters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    vocabulary = {word: n for n, word in enumerate(["<pad>", "</s>", "<unk>", *letters, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(3)
    config = T5Config(
        vocab_size=len(vocabulary), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0,
        initializer_factor=8.0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    return save_t5(tmp_path_factory.mktemp("t5"))


def test_the_letter_that_it_would_rather_write_is_the_route(t5):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    network, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(t5), AutoTokenizer.from_pretrained(t5)
    classifier, routes = TrainedComplexity(t5), set()
    for question in (" ".join(WORDS[n : n + 3]) for n in range(12)):
        said = network.generate(
            **tokenizer(question, return_tensors="pt"), max_new_tokens=1, do_sample=False,
            suppress_tokens=[n for word, n in tokenizer.get_vocab().items() if word not in ROUTES],
        )  # fmt: skip
        [letter] = tokenizer.decode(said[0], skip_special_tokens=True).split()
        with collect_steps() as steps:
            route = classifier(question=question).route
        assert route is ROUTES[letter]
        assert [(step.name, step.output) for step in steps] == [("classify", route)]
        routes.add(route)
    assert len(routes) > 1


def test_what_is_no_such_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="knows no letters A, B and C"):
        TrainedComplexity(save_t5(tmp_path / "t5", letters="AB"))(question="bread")
    with pytest.raises(LMUnavailable, match="cannot be loaded"):
        TrainedComplexity(str(tmp_path / "nosuch" / "folder" / "here"))(question="bread")
    with pytest.raises(InputError, match=r"option adaptive\.classifier cannot be 'rule'"):
        Options().with_given({"adaptive": {"classifier": "rule"}})


def test_a_strangers_program_loads_no_classifier_by_itself():
    options = Options(adaptive=AdaptiveRAGOptions(classifier="hub:somebody/model"))
    assert external_options(options) == [("adaptive.classifier", "hub:somebody/model")]

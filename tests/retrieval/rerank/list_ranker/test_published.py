"""The ranker of RichRAG's authors: a checkpoint of their layout, against their way of ranking in our own words."""

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from tests.retrieval.rerank.list_ranker.tiny import PASSAGES, WORDS, save_start
from typedrag.cli.main import cli
from typedrag.core.errors import InputError
from typedrag.retrieval import open_reranker
from typedrag.retrieval.list_network import NOTHING, Candidates, Reader
from typedrag.retrieval.list_ranker import import_list_ranker, load_list_ranker, start_list_ranker
from typedrag.retrieval.list_ranker_settings import ListRankerSettings

DOCIDS, SIZE = 12, 16
QUESTION = "about bread"
TEXTS = [p.titled for p in PASSAGES[:6]]
ASPECTS = [("oven",), (), ("oven", "salt"), (), ("salt",), ()]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny T5 with a tokenizer as T5's: 0 pads, 1 ends a sequence, and nothing begins one."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5Model

    words = {word: n for n, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    folder = tmp_path_factory.mktemp("base")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = T5Config(
        # more rows than words, as Flan-T5 has
        vocab_size=len(words) + 5, d_model=SIZE, d_kv=8, d_ff=16, num_layers=2, num_decoder_layers=2, num_heads=2,
        tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(5)
    T5Model(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def theirs(base):
    """Their network: a T5 with embeddings of the further tokens, and an output head of a row a docid token."""
    from transformers import AutoConfig, T5ForConditionalGeneration

    torch.manual_seed(7)
    config = AutoConfig.from_pretrained(base)
    config.vocab_size += DOCIDS + 3
    model = T5ForConditionalGeneration(config).eval()
    torch.nn.init.normal_(model.shared.weight, std=1.0)
    model.lm_head = torch.nn.Linear(SIZE, DOCIDS, bias=False)
    return model


@pytest.fixture(scope="module")
def checkpoint(theirs, tmp_path_factory):
    """Their file: the weights below `model.`, those that are the same tensor only once."""
    names = {n: w for n, w in theirs.state_dict().items() if "embed_tokens" not in n}
    file = tmp_path_factory.mktemp("checkpoint") / "model.safetensors"
    save_file({f"model.{name}": w.to(torch.bfloat16).contiguous() for name, w in names.items()}, file)
    theirs.load_state_dict({n: w.to(torch.bfloat16).float() for n, w in theirs.state_dict().items()})
    return file


@pytest.fixture(scope="module")
def ranker(checkpoint, base):
    return import_list_ranker(checkpoint, str(base))


def tokens(base, text: str) -> list[int]:
    """What a tokenizer with their further tokens makes of a text."""
    further = [*(f"[D{n}]" for n in range(DOCIDS)), "[Q]", "[SUBQ]", "[SEP]"]
    known = {word: n for n, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS, *further])}
    return [*(known[word] for word in text.split()), known["</s>"]]


def ranked_by_them(base, theirs, k: int) -> list[int]:
    """Their `generate`: the decoder sees the candidates that are left, one forward pass a place, from the end token."""
    states = []
    for n, (text, names) in enumerate(zip(TEXTS, ASPECTS, strict=True)):
        ids = tokens(base, f"[D{n}] {QUESTION} [Q] {' [SEP] '.join(names)} [SUBQ] {text}")
        states.append(theirs.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0, 0])
    candidates, inputs, chosen = torch.stack(states), [theirs.shared.weight[1]], []
    for _ in range(k):
        left = [n for n in range(len(states)) if n not in chosen]
        hidden = theirs.decoder(
            inputs_embeds=torch.stack(inputs)[None], encoder_hidden_states=candidates[left][None], use_cache=False
        ).last_hidden_state[0, -1]
        logits = candidates @ hidden / SIZE**0.5 / 0.1
        chosen.append(max(left, key=lambda n: float(logits[n])))
        inputs.append(states[chosen[-1]])
    return chosen


@torch.no_grad()
def test_the_authors_checkpoint_ranks_as_in_their_code(base, theirs, ranker):
    assert ranker.settings.docids == DOCIDS
    for k in (1, 3, 5, 6):
        assert ranker.write(Candidates(QUESTION, TEXTS, ASPECTS), k) == ranked_by_them(base, theirs, k)
    assert ranked_by_them(base, theirs, 6) != sorted(range(6))


def test_a_candidate_is_its_own_docid_question_sub_aspects_and_the_passage(base, ranker):
    read = Reader(ranker.tokenizer, ranker.settings).read(Candidates(QUESTION, TEXTS, ASPECTS))
    assert read.ids[1] == tokens(base, f"[D0] {QUESTION} [Q] oven [SUBQ] {TEXTS[0]}")
    assert read.ids[3] == tokens(base, f"[D2] {QUESTION} [Q] oven [SEP] salt [SUBQ] {TEXTS[2]}")
    assert set(read.pooled) == {(0, 1)}


def test_each_place_has_a_docid_token_of_its_own(ranker):
    there, back = (ranker.encode(Candidates(QUESTION, texts)).candidates[0] for texts in (TEXTS, TEXTS[::-1]))
    assert not torch.allclose(there, back.flip(0), atol=1e-3)


def test_an_imported_ranker_is_a_reranker_like_others(checkpoint, base, ranker, tmp_path):
    line = ["research", "ranker", "import", str(checkpoint), "--base", str(base), "--out", str(tmp_path / "ranker")]
    done = CliRunner().invoke(cli, line)
    assert done.exit_code == 0 and done.output.strip() == f"list:{tmp_path / 'ranker'}"
    assert load_list_ranker(tmp_path / "ranker").settings == ranker.settings
    found = open_reranker(f"list:{tmp_path / 'ranker'}").rerank(QUESTION, [*PASSAGES, *PASSAGES[:1]], 99)
    assert sorted(p.id for p in found) == sorted(p.id for p in PASSAGES)  # as many as there are docid tokens


def test_what_is_no_such_checkpoint_is_refused(checkpoint, base, tmp_path):
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    save_file({"weight": torch.zeros(2)}, tmp_path / "one.safetensors")
    for file, problem in (
        (tmp_path / "other.safetensors", "cannot be read"),
        (tmp_path / "one.safetensors", "embeddings"),
    ):
        with pytest.raises(InputError, match=problem):
            import_list_ranker(file, str(base))
    with pytest.raises(InputError, match="do not fit"):
        import_list_ranker(checkpoint, save_start(tmp_path / "t5", "t5"))


def test_a_ranker_with_docids_can_be_trained_from_an_encoder_decoder_alone(base, tmp_path):
    ranker = start_list_ranker(str(base), ListRankerSettings(docids=DOCIDS, normalize=False))
    assert ranker.settings.pooling == "docid" and len(ranker.tokenizer) >= len(WORDS) + DOCIDS + 3
    states = ranker.encode(Candidates(QUESTION, TEXTS, ASPECTS))
    lists = torch.tensor([[2, 0, 5, NOTHING]])
    before = ranker.model.log_probabilities(states, lists)
    total = sum(ranker.model.log_probabilities(states, torch.tensor([[n]])).exp().item() for n in range(6))
    assert total == pytest.approx(1, abs=1e-4)
    optimizer = torch.optim.SGD(ranker.model.parameters(), 0.01)
    reader = Reader(ranker.tokenizer, ranker.settings)
    read = reader.read(Candidates(QUESTION, TEXTS, ASPECTS))
    (
        -ranker.model(*reader.pad(read.ids), torch.tensor(read.pooled), torch.tensor([6]), lists[:, None])
    ).sum().backward()
    optimizer.step()
    assert ranker.model.log_probabilities(ranker.encode(Candidates(QUESTION, TEXTS, ASPECTS)), lists) > before
    with pytest.raises(InputError, match="docid tokens"):
        reader.read(Candidates(QUESTION, ["bread"] * (DOCIDS + 1)))
    with pytest.raises(InputError, match="encoder-decoder"):
        start_list_ranker(save_start(tmp_path / "bert", "encoder"), ListRankerSettings(docids=3))

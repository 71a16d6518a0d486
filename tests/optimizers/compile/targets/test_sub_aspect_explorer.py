import dspy
import pytest

from tests.datasets.files import write_jsonl
from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset
from typedrag.datasets.sample import load_sample
from typedrag.optimizers.compile.targets import ALONE
from typedrag.optimizers.compile.teleprompters.few_shot import usable
from typedrag.programs import RAG, Options, RichRAG
from typedrag.programs.artifact import dump_state
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.signatures.fields import SubAspects

TARGET = ALONE["sub-aspect-explorer-alone"]
ASPECTS = ["recording", "critical reception", "tour"]


def article(number: int, aspects: list[str]) -> dict:
    targets = [[aspect, f"about its {aspect} ."] for aspect in aspects]
    return {"exid": f"train-0-{number}", "inputs": [], "targets": targets, "title": f"Album {number}"}


@pytest.fixture
def dataset(tmp_path):
    rows = [article(n, ASPECTS) for n in range(16)]
    return load_dataset("wikiasp", write_jsonl(tmp_path / "Album" / "train.jsonl", *rows))


def test_it_learns_from_labelled_sub_aspects(dataset):
    splits = [TARGET.examples(dataset, split) for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == 16 and all(splits)
    [demo, *_] = usable(splits[0], TARGET.student().predict)
    assert dict(demo) == {"question": splits[0][0].question, "sub_aspects": SubAspects(ASPECTS)}
    with pytest.raises(InputError, match="Datasets with its labels: wikiasp"):
        TARGET.examples(load_sample())


def test_articles_with_more_aspects_than_an_explorer_may_name_are_left_out(tmp_path):
    many = [f"side {n}" for n in range(8)]
    file = write_jsonl(tmp_path / "test.jsonl", article(0, many[:7]), article(1, many))
    assert [e.id for e in TARGET.examples(load_dataset("wikiasp", file))] == ["train-0-0"]


def test_what_it_names_is_scored_by_the_labels_and_nothing_is_searched_for(dataset):
    [example, *_] = TARGET.examples(dataset)
    retriever = Numbered()
    student, metric = TARGET.student(RichRAG(retriever)), TARGET.metric

    def score(*aspects: str) -> float:
        with scripted({s.ExploreSubAspects: {"sub_aspects": aspects}}) as engine:
            value = metric(example, student(**example.inputs())).score
        assert engine.asked() == ["ExploreSubAspects"] and not retriever.batches
        return value

    assert score("the tour", "recording", "critical reception") == 1
    assert score("recording", "Recording", "reception") == pytest.approx((1 + 2 / 3) / 3)  # the repeated one is dropped
    assert score("apples", "pears") == 0


def test_what_was_compiled_is_put_back_into_a_copy():
    program = RichRAG(Numbered())
    untouched = dump_state(program)
    student = TARGET.student(program)
    student.predict.demos = [dspy.Example(question="What is jazz?", sub_aspects=SubAspects(ASPECTS))]
    made = TARGET.merge_into(program, student)
    assert made.strategy.explorer.predict.demos == student.predict.demos
    assert dump_state(program) == untouched
    for act in (TARGET.student, lambda other: TARGET.merge_into(other, SubAspectExplorer(Options()))):
        with pytest.raises(InputError, match="program 'rag' has no sub-aspect explorer"):
            act(RAG(Numbered()))

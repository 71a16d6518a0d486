import dspy
import pytest

from tests.datasets.files import write_jsonl
from tests.optimizers.compile.targets.words import WordRetriever
from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType
from typedrag.datasets import Dataset, load_dataset
from typedrag.datasets.sample import load_sample
from typedrag.optimizers.compile.prompt_optimizers.few_shot import usable
from typedrag.optimizers.compile.targets import ALONE, labelled_scopes
from typedrag.programs import RAG, Options, PreQRAG, PreQRAGOptions, RichRAG, TypedRAG
from typedrag.programs.artifact import dump_state
from typedrag.programs.preqrag import LMScopeClassifier
from typedrag.programs.richrag import SubAspectExplorer
from typedrag.programs.typed_rag.type_classifiers import LMTypeClassifier
from typedrag.signatures.fields import SubAspects
from typedrag.signatures.typed_rag import ClassifyQuestion

TYPES, SCOPES = ALONE["type-classifier-alone"], ALONE["scope-classifier-alone"]
EXPLORER = ALONE["sub-aspect-explorer-alone"]
ROWS = [
    *({"question": f"Why does bread number {n} rise?", "subset": "single-document"} for n in range(8)),
    *({"question": f"How do bread {n} and cake {n} differ?", "subset": "multi-document"} for n in range(6)),
    *({"question": f"Tell of the ties of bread {n} to cake.", "subset": "multi-document"} for n in range(2)),
]


def nf_cats(*subsets: str) -> Dataset:
    rows = [{"id": f"{s}{n}", "question": f"Why is {s} {n} so?", "subset": s} for s in subsets for n in range(8)]
    typed = [dspy.Example(**row, question_type=QuestionType.REASON).with_inputs("question") for row in rows]
    return Dataset("nf-cats", tuple(typed))


def taught(classifier) -> dspy.Module:
    classifier.classify.signature = classifier.classify.signature.with_instructions("Name it.")
    return classifier


def test_what_is_measured_is_never_trained_on():
    dataset = nf_cats("train", "valid")
    parts = {split: {e.subset for e in TYPES.examples(dataset, split)} for split in ("train", "validation", "test")}
    assert parts == {"train": {"train"}, "validation": {"train"}, "test": {"valid"}}
    assert len(TYPES.examples(dataset)) == 16 and len(TYPES.examples(dataset, "test")) == 8
    alone = nf_cats("valid")
    assert sum(len(TYPES.examples(alone, split)) for split in parts) == 8


def test_scopes_are_the_subsets_of_questions(tmp_path):
    path = write_jsonl(tmp_path / "questions.jsonl", *ROWS)
    examples = SCOPES.examples(load_dataset("file", path))
    assert [e.scope for e in examples] == [row["subset"] for row in ROWS]
    splits = [SCOPES.examples(load_dataset("file", path), split) for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == 16 and all(splits)
    said = [dspy.Prediction(scope=scope) for scope in (examples[0].scope, "x")]
    assert [SCOPES.metric(examples[0], prediction).score for prediction in said] == [1, 0]
    with pytest.raises(InputError, match="Datasets with its labels: file"):
        SCOPES.examples(load_sample())
    with pytest.raises(InputError, match="Make some: typedrag datasets build preqrag"):
        labelled_scopes(load_sample())


def test_labelled_questions_make_demonstrations():
    compiled = dspy.LabeledFewShot(k=2).compile(TYPES.student(), trainset=TYPES.examples(nf_cats("train")))
    with scripted({ClassifyQuestion: {"question_type": "reason"}}) as engine:
        prediction = compiled(question="Why?")
    assert TYPES.metric(nf_cats("train").examples[0], prediction).score == 1
    assert len(engine.prompts) == 1
    assert [set(d) >= {"question", "question_type"} for d in compiled.predictors()[0].demos] == [True, True]


def test_a_compiled_classifier_is_put_into_a_copy_that_asks_it():
    program = TypedRAG(WordRetriever())
    program.strategies["reason"].decomposer.demos = []
    made = TYPES.merge_into(program, taught(TYPES.student(program)))
    assert made.options == program.options.model_copy(update={"type_classifier": "lm"})
    before, after = dump_state(program), dump_state(made)
    assert {name for name in after if name not in before or after[name] != before[name]} == {"classifier.classify"}
    again = TYPES.student(made)
    assert again.classify.signature.instructions == "Name it." and again is not made.classifier


@pytest.mark.parametrize(("before", "after"), [("rule", "lm"), ("lm", "lm"), ("either", "either")])
def test_a_compiled_classifier_of_scopes_is_put_into_a_copy_that_asks_it(before, after):
    program = PreQRAG(WordRetriever(), options=Options(preqrag=PreQRAGOptions(classifier=before, prompt_style="D")))
    untouched = dump_state(program)
    made = SCOPES.merge_into(program, taught(SCOPES.student(program)))
    assert made.options.preqrag == PreQRAGOptions(classifier=after, prompt_style="D")
    assert made.classifier.classify.signature.instructions == "Name it."
    assert dump_state(program) == untouched


@pytest.mark.parametrize(
    ("target", "part", "said"),
    [
        (TYPES, LMTypeClassifier, "program 'rag' has no type classifier"),
        (SCOPES, LMScopeClassifier, "Use preqrag"),
        (EXPLORER, SubAspectExplorer, "program 'rag' has no sub-aspect explorer"),
    ],
)
def test_other_programs_are_refused(target, part, said):
    for act in (target.student, lambda other: target.merge_into(other, part(Options()))):
        with pytest.raises(InputError, match=said):
            act(RAG(WordRetriever()))


ASPECTS = ["recording", "critical reception", "tour"]


def article(number: int, aspects: list[str]) -> dict:
    targets = [[aspect, f"about its {aspect} ."] for aspect in aspects]
    return {"exid": f"train-0-{number}", "inputs": [], "targets": targets, "title": f"Album {number}"}


@pytest.fixture
def articles(tmp_path):
    rows = [article(n, ASPECTS) for n in range(16)]
    return load_dataset("wikiasp", write_jsonl(tmp_path / "Album" / "train.jsonl", *rows))


def test_it_learns_from_labelled_sub_aspects(articles):
    splits = [EXPLORER.examples(articles, split) for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == 16 and all(splits)
    [demo, *_] = usable(splits[0], EXPLORER.student().predict)
    assert dict(demo) == {"question": splits[0][0].question, "sub_aspects": SubAspects(ASPECTS)}
    with pytest.raises(InputError, match="Datasets with its labels: wikiasp"):
        EXPLORER.examples(load_sample())


def test_articles_with_more_aspects_than_an_explorer_may_name_are_left_out(tmp_path):
    many = [f"side {n}" for n in range(8)]
    file = write_jsonl(tmp_path / "test.jsonl", article(0, many[:7]), article(1, many))
    assert [e.id for e in EXPLORER.examples(load_dataset("wikiasp", file))] == ["train-0-0"]


def test_what_it_names_is_scored_by_the_labels_and_nothing_is_searched_for(articles):
    [example, *_] = EXPLORER.examples(articles)
    retriever = Numbered()
    student, metric = EXPLORER.student(RichRAG(retriever)), EXPLORER.metric

    def score(*aspects: str) -> float:
        with scripted({s.ExploreSubAspects: {"sub_aspects": aspects}}) as engine:
            value = metric(example, student(**example.inputs())).score
        assert engine.asked() == ["ExploreSubAspects"] and not retriever.batches
        return value

    assert score("the tour", "recording", "critical reception") == 1
    assert score("recording", "Recording", "reception") == pytest.approx((1 + 2 / 3) / 3)  # the repeated one is dropped
    assert score("apples", "pears") == 0


def test_a_compiled_explorer_is_put_into_a_copy():
    program = RichRAG(Numbered())
    untouched = dump_state(program)
    student = EXPLORER.student(program)
    student.predict.demos = [dspy.Example(question="What is jazz?", sub_aspects=SubAspects(ASPECTS))]
    made = EXPLORER.merge_into(program, student)
    assert made.strategy.explorer.predict.demos == student.predict.demos
    assert dump_state(program) == untouched

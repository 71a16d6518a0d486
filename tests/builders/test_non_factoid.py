import dspy
import pytest

from typedrag.builders.wiki_nfqa import WikiNFQA
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType as T
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import example
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier
from typedrag.runs.work import Stages

BREAD = example(id="1", question="Why does  bread rise?", answers=("yeast", "gas"), subset="validation")
WHEN = example(id="2", question="When was the telephone invented?", answers=("1876",))


def select(questions, classifier=None, stages=None, **settings):
    builder = WikiNFQA(questions=("mine",), **settings)
    return builder.select_non_factoid(questions, classifier or LinearTypeClassifier(), stages or Stages(1))


def test_non_factoid_questions_are_kept_with_their_ground_truth_and_type():
    done = []
    selected, report = select({"nq": [BREAD, WHEN]}, stages=Stages(listener=lambda p: done.append(p.done)))
    assert [e.toDict() for e in selected] == [
        {
            "id": "nq_1",
            "question": "Why does bread rise?",
            "subset": "nq",
            "answers": ("yeast", "gas"),
            "question_type": T.REASON,
        }
    ]
    assert report.left_out == {"questions: worded like no non-factoid question": 1}
    assert done == [0, 1, 1]


def test_the_best_reference_is_the_ground_truth_where_there_is_no_answer():
    graded = example(id="3", question="Why is steel hard?", references=(Reference("carbon", 3), Reference("tin", 0)))
    bare = example(id="4", question="Why is glass clear?")
    selected, report = select({"mine": [graded, bare]})
    assert [e.answers for e in selected] == [("carbon",)]
    assert report.left_out == {"questions: without an answer": 1}


def test_a_question_that_came_before_is_left_out_and_ids_must_differ():
    again = example(id="1", question="why does bread rise?", answers=("yeast",))
    selected, report = select({"nq": [BREAD], "mine": [again]})
    assert [e.id for e in selected] == ["nq_1"] and report.left_out == {"questions: it came before": 1}
    other = example(id="1", question="Why do cats purr?", answers=("joy",))
    with pytest.raises(InputError, match="two questions of 'nq' have the id '1'"):
        select({"nq": [BREAD, other]})


def test_a_large_subset_is_drawn_from_in_turn_by_type():
    whys = [example(id=f"w{n}", question=f"Why is number {n} odd?", answers=("x",)) for n in range(30)]
    hows = [example(id=f"h{n}", question=f"How to bake {n} loaves of bread?", answers=("x",)) for n in range(3)]
    types = {"w": T.REASON, "h": T.INSTRUCTION}

    class ByWord(dspy.Module):
        def forward(self, question):
            return dspy.Prediction(question_type=types[question[0].lower()])

    given = {"many": [*whys, *hows], "few": [BREAD]}
    selected, report = select(given, ByWord(), per_subset=6)
    kept = [e.id for e in selected]
    assert len(kept) == 7 and sum(i.startswith("many_h") for i in kept) == 3 and "few_1" in kept
    assert report.left_out == {"questions: more than the 6 wanted of their subset": 27}
    assert [e.id for e in select(given, ByWord(), per_subset=6)[0]] == kept
    assert [e.id for e in select(given, ByWord(), per_subset=6, seed=1)[0]] != kept
    assert len(select(given, ByWord(), per_subset=None)[0]) == 34


def test_the_shipped_classifier_on_what_people_have_labelled(shared_data):
    labelled = load_dataset("nf-cats", shared_data / "nf_cats", subset="valid").examples
    given = [example(id=e.id, question=e.question, answers=("x",)) for e in labelled]
    kept = {e.question.casefold() for e in select({"v": given}, patterns=False, per_subset=None)[0]}

    def share(types) -> float:
        found = [" ".join(e.question.split()).casefold() in kept for e in labelled if e.question_type in types]
        return sum(found) / len(found)

    assert share(T.non_factoid()) > 0.9
    # not-a-question is there whatever has no question mark, half of it what people ask for without one
    assert share([T.FACTOID]) < 0.15 and share([T.NOT_A_QUESTION]) < 0.45
    published = load_dataset("wiki-nfqa", shared_data / "wiki_nfqa").examples
    selected, report = select({"wiki": published}, per_subset=None)
    assert len(selected) / len(published) > 0.6
    assert len(selected) + sum(report.left_out.values()) == len(published)

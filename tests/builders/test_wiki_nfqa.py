import json
import re
from collections import Counter

import dspy
import pytest

from tests.scripted import ScriptedEngine
from tests.scripted import signatures as s
from typedrag.builders import WikiNFQA
from typedrag.builders.wiki_nfqa import ReferenceLMs, types_by_pattern
from typedrag.core.errors import InputError
from typedrag.core.question_types import QuestionType as T
from typedrag.core.records import Reference
from typedrag.datasets import load_dataset
from typedrag.datasets.dataset import example
from typedrag.lms import lm as lms_module
from typedrag.lms.adapter import SchemaAdapter
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier
from typedrag.runs.work import Stages

SETTINGS = WikiNFQA(questions=("mine",), retries=0)
QUESTIONS = [
    example(
        id=f"nq_{n}",
        question=f"Why is thing {n} odd?",
        subset="nq",
        answers=(f"truth {n}", f"alias {n}"),
        question_type=T.REASON,
    )
    for n in range(4)
]
WORDS = {"truth": 2, "superb": 3, "fair": 2, "poor": 1, "absurd": 0}


@pytest.fixture(autouse=True)
def _schema(monkeypatch):
    monkeypatch.setattr(lms_module, "choose_adapter", lambda _: SchemaAdapter())


def thing(prompt: str) -> str:
    return re.findall(r"thing (\d+)", prompt)[-1]


def labels(prompt: str) -> dict:
    """Each answer's label, by its first word."""
    answers = json.JSONDecoder().raw_decode(prompt.split("[[ ## answers ## ]]\n")[-1])[0]
    return {"grades": {key: WORDS[re.findall(r"\w+", text)[0]] for key, text in answers.items()}}


def rewrite(prompt: str) -> dict:
    return {"answer": f"superb {thing(prompt)}"}


def worse(*answers: str) -> dict:
    return {"answers": dict(zip(("acceptable", "poor", "senseless"), answers, strict=True))}


class Writer:
    """An LM that signs what it writes, and numbers what it is asked for again."""

    def __init__(self, name: str, replies: dict | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.name = name
        scripts = {s.WriteWorseAnswers: self.write, s.RewriteAnswer: rewrite, s.LabelAnswers: labels}
        self.engine = ScriptedEngine({**scripts, **(replies or {})})
        self.lm = dspy.LM(f"scripted/{name}", engine=self.engine, num_retries=0, cache=True)

    def write(self, prompt: str) -> dict:
        self.asked[thing(prompt)] += 1
        by = f"{thing(prompt)} by {self.name}, draw {self.asked[thing(prompt)]}"
        return worse(f"fair {by}", f"poor {by}", f"absurd {by}")


def panel(annotator: dict | None = None, superior: dict | None = None, writers: dict | None = None):
    three = [Writer(name, (writers or {}).get(name)) for name in ("ada", "bob", "cyd")]
    best, judge = Writer("sue", superior), Writer("ann", annotator)
    return ReferenceLMs(tuple(w.lm for w in three), best.lm, judge.lm), [*three, best, judge]


def build(lms, questions=QUESTIONS, settings=SETTINGS, stages=None):
    return settings.write_references(questions, lms, stages or Stages(1))


def test_nine_references_a_superior_one_and_the_ground_truth_are_labelled():
    lms, everyone = panel()
    done = []
    built = build(lms, stages=Stages(listener=lambda p: done.append((p.run, p.done))))
    assert len(built.rows) == 4 and not built.left_out and done[-1] == ("labelled questions", 4)
    row = built.rows[1]
    assert (row["question_id"], row["question_text"], row["subset"]) == ("nq_1", "Why is thing 1 odd?", "nq")
    assert list(row["answer_dict"]) == ["ground_truth", "sue", "ada", "bob", "cyd"]
    assert [len(texts) for texts in row["answer_dict"].values()] == [1, 1, 3, 3, 3]
    assert row["answer_list"] == [text for texts in row["answer_dict"].values() for text in texts.values()]
    assert row["answer_list"][:3] == ["['truth 1', 'alias 1']", "superb 1", "fair 1 by ada, draw 1"]
    assert row["answer_label"] == [2, 3, *[2, 1, 0] * 3] and row["num_answers"] == 11
    assert [len(each.engine.prompts) for each in everyone] == [4] * 5
    first = everyone[0].engine.prompts[0][1]  # the list is one unit, also to those that write
    assert any(f"['truth {n}', 'alias {n}']" in first for n in range(4))


def test_lms_write_and_label_at_the_papers_temperatures():
    seen = []

    class Listening(ScriptedEngine):
        def complete(self, request):
            seen.append((request.config.temperature, request.config.top_p, request.config.max_tokens))
            return super().complete(request)

    engine = Listening({s.WriteWorseAnswers: Writer("w").write, s.RewriteAnswer: rewrite, s.LabelAnswers: labels})
    lm = dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=False, temperature=0.0)
    build(ReferenceLMs((lm,), lm, lm), questions=QUESTIONS[:1])
    other = {"temperature": 0.5, "annotation_temperature": 0.2, "top_p": 0.9, "max_tokens": 99}
    build(ReferenceLMs((lm,), lm, lm), questions=QUESTIONS[:1], settings=SETTINGS.model_copy(update=other))
    papers, ours = [(0.8, 0.95, 512)] * 2 + [(0.1, 0.95, 512)], [(0.5, 0.9, 99)] * 2 + [(0.2, 0.9, 99)]
    assert seen == papers + ours


def test_the_annotator_sees_answers_in_an_order_drawn_by_hash():
    orders = set()

    def listen(prompt):
        answers = json.JSONDecoder().raw_decode(prompt.split("[[ ## answers ## ]]\n")[-1])[0]
        orders.add(tuple(text.split()[0] for text in answers.values()))
        return labels(prompt)

    first = build(panel({s.LabelAnswers: listen})[0])
    assert len(orders) > 2 and all(row["answer_label"] == [2, 3, *[2, 1, 0] * 3] for row in first.rows)
    before = set(orders)
    build(panel({s.LabelAnswers: listen})[0], settings=SETTINGS.model_copy(update={"seed": 1}))
    assert orders > before


def test_references_that_are_missing_are_counted_and_the_question_stays():
    lms, _ = panel(
        superior={s.RewriteAnswer: "torn"},
        writers={
            "ada": {s.WriteWorseAnswers: "torn"},
            "bob": {s.WriteWorseAnswers: worse(" ", "poor one", "absurd")},
            "cyd": {s.WriteWorseAnswers: worse("fair", "Poor  one", "absurd")},
        },
    )
    built = build(lms, questions=QUESTIONS[:1])
    assert built.left_out == {
        "references: no reply could be read": 4,
        "references: blank": 1,
        "references: it repeats another": 2,
    }
    [row] = built.rows
    assert row["answer_list"] == ["['truth 0', 'alias 0']", "poor one", "absurd", "fair"]
    assert row["answer_dict"]["ada"] == {} and row["answer_dict"]["cyd"] == {"answer1": "fair"}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("torn", "their answers could not be labelled"),
        ({"grades": {f"a{n}": 2 for n in range(1, 12)}}, "all their answers have the same label"),
        ({"grades": {f"a{n}": 2 for n in range(1, 11)}}, "their answers could not be labelled"),
        ({"grades": {f"a{n}": 4 for n in range(1, 12)}}, "their answers could not be labelled"),
    ],
)
def test_a_question_whose_answers_have_no_order_is_left_out(reply, reason):
    built = build(panel({s.LabelAnswers: reply})[0])
    assert built.rows == [] and built.left_out == {f"questions: {reason}": 4}


def test_somebody_must_write():
    only = Writer("ada").lm
    with pytest.raises(InputError, match="no LM is to write"):
        build(ReferenceLMs((), only, only))


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


@pytest.mark.parametrize(
    ("question", "question_type"),
    [
        ("How to poach an egg?", T.INSTRUCTION),
        ("how can I delete my browsing history", T.INSTRUCTION),
        ("What is the process for registering a trademark?", T.INSTRUCTION),
        ("What is the best way to clean a wool carpet?", T.INSTRUCTION),
        ("Why does dough rise?", T.REASON),
        ("What is the reason for leap years?", T.REASON),
        ("For what reason is Plymouth Sound protected?", T.REASON),
        ("What causes tides?", T.REASON),
        ("How come the moon looks larger near the horizon?", T.REASON),
        ("How does a heat pump work?", T.EVIDENCE_BASED),
        ("What are the properties of steel?", T.EVIDENCE_BASED),
        ("What is the meaning of 'Blanche'?", T.EVIDENCE_BASED),
        ("How do you describe the taste of umami?", T.EVIDENCE_BASED),
        ("What’s a lupara?", T.EVIDENCE_BASED),
        ("Of what is autophobia the fear, and what does it mean?", T.EVIDENCE_BASED),
        ("How is a crow different from a raven?", T.COMPARISON),
        ("What are the advantages of wind power over coal?", T.COMPARISON),
        ("How does butter do against margarine?", T.COMPARISON),
        ("cats vs dogs as pets", T.COMPARISON),
        ("Would you recommend a folding bicycle?", T.EXPERIENCE),
        ("How do you like your new kettle?", T.EXPERIENCE),
        ("What do you think about night trains?", T.EXPERIENCE),
        ("Should I tell my sister?", T.EXPERIENCE),
        ("Does God exist?", T.DEBATE),
        ("Can a colony on Mars be successful?", T.DEBATE),
        ("Do you think athletes are paid too much?", T.DEBATE),
        ("Is chess really a sport?", T.DEBATE),
        ("Should voting be compulsory?", T.DEBATE),
    ],
)
def test_questions_of_each_type_have_a_pattern_of_it(question, question_type):
    assert question_type in types_by_pattern(question)


@pytest.mark.parametrize(
    "question",
    [
        "When was the telephone invented?",
        "Who wrote Carmen?",
        "how many bones are in a hand",
        "In which year did Iceland become a republic?",
        "Thanks, see you tomorrow!",
        "showers in Oslo",  # "how" within a word
        "whatever",
        "",
    ],
)
def test_others_have_none(question):
    assert types_by_pattern(question) == ()


def test_words_that_stand_one_after_the_other_are_not_found_apart():
    assert T.INSTRUCTION in types_by_pattern("how to read")
    assert types_by_pattern("how tall Tom has to become") == ()


def test_on_what_people_have_labelled(shared_data):
    kept = [bool(types_by_pattern(e.question)) for e in load_dataset("wiki-nfqa", shared_data / "wiki_nfqa").examples]
    assert sum(kept) / len(kept) > 0.95  # all of them passed the authors' patterns
    labelled = load_dataset("nf-cats", shared_data / "nf_cats").examples

    def share(*types: T) -> float:
        found = [bool(types_by_pattern(e.question)) for e in labelled if e.question_type in types]
        return sum(found) / len(found)

    assert share(*T.non_factoid()) > 0.75
    assert share(T.FACTOID) < 0.15 and share(T.NOT_A_QUESTION) < 0.1
    assert min(share(t) for t in T.non_factoid()) > 0.6

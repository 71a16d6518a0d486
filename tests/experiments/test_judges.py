import pytest

from tests.experiments import labels
from tests.experiments.labels import said, scripted_scorer
from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset, with_nuggets
from typedrag.datasets.dataset import make_id
from typedrag.experiments.judges import answers
from typedrag.experiments.judges.check import check_judges, judges_page
from typedrag.experiments.judges.judging import CheckSettings, Scorer
from typedrag.files.text_files import write_json_lines
from typedrag.lms.replies import use_reply_store
from typedrag.metrics.estimate import bootstrap_estimate
from typedrag.metrics.judges.human_labels import labelled_answers
from typedrag.metrics.judges.preference import Verdicts


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return labels.write_labels(tmp_path_factory.mktemp("labels"))


def check(name, folder, lm=None, **settings):
    options = {"subset": "valid"} if name == "nf-cats" else {}
    dataset = load_dataset(name, folder, **options)
    scorers = [] if lm is None else [Scorer("scripted", lm)]
    [found] = check_judges({name: dataset}, scorers, CheckSettings(**{"threads": 2, **settings})).checks
    return found


def rows(found):
    return {a.judge: a for a in found.agreements}


def values(agreement):
    return {name: round(estimate.value, 3) for name, estimate in agreement.measures.items()}


@pytest.fixture(autouse=True)
def _no_embeddings(monkeypatch):
    labels.no_embeddings(monkeypatch)


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    """Intervals are not looked at here; those of a judge with eleven rows take seconds."""
    monkeypatch.setitem(bootstrap_estimate.__kwdefaults__, "resamples", 20)


def test_nuggets_are_judged_by_those_that_other_answers_gave(data, tmp_path):
    """Each fine answer has a nugget of its own, in its words: it would win by it, if it were not hidden from it."""
    dataset = load_dataset("antique", data / "linkage")
    rows_of_file = [
        {
            "question": e.question,
            "nuggets": [
                {"text": r.text, "vital": r.label == 4, "wordings": {make_id(r.text): r.text}}
                for r in e.references
                if r.label > 2
            ],
        }
        for e in dataset.examples
    ]
    write_json_lines(tmp_path / "nuggets.jsonl", rows_of_file)
    labelled = with_nuggets(dataset, tmp_path / "nuggets.jsonl")
    [found] = check_judges({"antique": labelled}, (), CheckSettings(threads=2)).checks
    shown = {name: row for name, row in rows(found).items() if name.startswith("nuggets")}
    assert list(shown) == ["nuggets, vital", "nuggets, weighted", "nuggets, weighted, strict", "nuggets, density"]
    assert {row.n for row in shown.values()} == {12}
    assert "spearman" in shown["nuggets, vital"].measures
    for case in labelled_answers(labelled.examples[0]):
        assert case.candidate.text not in [n.text for n in case.example.nuggets]
        assert len(case.example.nuggets) == 4  # of each label one is hidden, whatever the candidate's


def test_a_judge_that_knows_the_labels_agrees_with_them(data):
    found = check("antique", data / "linkage", scripted_scorer())
    assert list(rows(found)) == [
        "similarity to the question", "similarity to the best reference", "BERTScore", "BERTScore, recall",
        "LINKAGE, worst rank n, single rank", "LINKAGE, worst rank n, expected rank",
        "LINKAGE, worst rank n + 1, single rank", "LINKAGE, worst rank n + 1, expected rank", "relevance",
        "equivalence", "correctness", "coverage, core", "coverage, rating", "pairwise, both orders",
        "pairwise, one order",
    ]  # fmt: skip
    for name in list(rows(found))[4:8]:
        assert values(rows(found)[name]) == {"spearman": 1, "kendall": 1, "pairs_ordered": 1}
        assert rows(found)[name].n == 12
    assert values(rows(found)["correctness"])["pairs_ordered"] == 1
    assert values(rows(found)["pairwise, both orders"]) == {"pairs_ordered": 1}
    assert values(rows(found)["pairwise, one order"]) == {"pairs_ordered": 1}
    assert "12 candidates of 3 questions" in found.about[1]
    assert "1 questions whose answers all have one label" in found.about[1]


def test_a_judge_that_was_trained_on_a_set_is_shown_its_test_split_alone(tmp_path):
    labels.write_antique(tmp_path / "antique.json", questions=20)
    tested = [e for e in load_dataset("antique", tmp_path).split("test") if len(e.references) > 1]
    found = rows(check("antique", tmp_path))
    assert found["similarity to the question"].n == 80 > found["LINKAGE, combined"].n == 4 * len(tested) > 0


def test_a_judge_that_is_wrong_about_everything_disagrees(data):
    upside_down = scripted_scorer(
        RankAmongReferences=lambda p: said(rank=labels.quality(labels.field(p, "candidate"))),
        GradeCorrectness=lambda p: said(grade=2 - labels.quality(labels.field(p, "answer")) // 2),
        CompareAnswers=said(verdict="first"),
    )
    found = rows(check("antique", data / "linkage", upside_down))
    assert values(found["LINKAGE, worst rank n, single rank"])["spearman"] == -1
    assert values(found["LINKAGE, worst rank n, expected rank"])["pairs_ordered"] == 0
    assert values(found["correctness"])["kendall"] < 0
    assert values(found["pairwise, both orders"])["pairs_ordered"] == 0.5
    assert values(found["relevance"])["spearman"] > 0


@pytest.mark.parametrize(("preference", "ordered"), [(0.51, 1), (0.5, 0.5), (0.49, 0)])
def test_where_probabilities_are_known_the_likelier_answer_is_read(data, monkeypatch, preference, ordered):
    verdicts = Verdicts("tie", "tie", preference)
    monkeypatch.setattr(answers, "compare_in_both_orders", lambda *given: verdicts)
    found = rows(check("antique", data / "linkage", scripted_scorer()))
    assert values(found["pairwise, both orders"])["pairs_ordered"] == 0.5
    assert values(found["pairwise, both orders, the likelier"])["pairs_ordered"] == ordered


def test_a_liking_for_a_place_gains_nothing_in_one_order(tmp_path):
    labels.write_antique(tmp_path / "antique.json", questions=20)
    found = rows(check("antique", tmp_path, scripted_scorer(CompareAnswers=said(verdict="first"))))
    assert 0.3 < values(found["pairwise, one order"])["pairs_ordered"] < 0.7


def test_failures_are_counted_and_in_no_measure(data):
    def unsure(prompt):
        candidate = labels.field(prompt, "candidate")
        return "I cannot say." if "to 1." in candidate else labels._rank(prompt)

    found = check("antique", data / "linkage", scripted_scorer(RankAmongReferences=unsure))
    row = rows(found)["LINKAGE, worst rank n, single rank"]
    assert (row.n, row.failed) == (8, 4)
    assert values(row)["spearman"] == 1


def test_what_judges_said_is_not_asked_again(data, tmp_path):
    with use_reply_store(tmp_path / "replies"):
        first = check("antique", data / "linkage", scripted_scorer())
    assert {c.judge: c.judgments for c in first.costs}["relevance"] == 12
    calls = {c.judge: c.spent.usage.lm_calls for c in first.costs}
    assert calls.pop("coverage") == 6  # a question's sub-questions are written and typed once
    assert all(calls[c.judge] >= c.judgments for c in first.costs if c.judge in calls)
    lm = scripted_scorer()
    with use_reply_store(tmp_path / "replies"):
        again = check("antique", data / "linkage", lm)
    assert lm.engine.prompts == []
    assert again.agreements == first.agreements
    assert sum(c.spent.usage.lm_calls for c in again.costs) == 0


def test_types_of_sub_questions(data):
    found = check("sub-question-types", data / "sub_questions", scripted_scorer())
    for shots in ("zero-shot", "few-shot"):
        judge = rows(found)[shots]
        assert (judge.n, judge.failed) == (3, 0)
        assert values(judge) == {"accuracy": 1, "macro_f1": 1, "core": 1, "background": 1, "follow-up": 1}
        assert judge.confusion.mistakes() == []
    assert "On 1 the annotators are divided" in found.about[1]


def test_annotators_are_compared_with_the_others(data):
    found = rows(check("sub-question-types", data / "sub_questions"))
    people = found["an annotator, by the others"]
    # gas: 3 of 4 agree with two cores, the fourth does not; yeast: 3 of 4; baked: each is one of two against
    # two; purring: 4 of 4
    assert people.n == 16
    assert values(people)["accuracy"] == round((3 + 3 + 0 + 4) / 16, 3)
    assert values(people)["follow-up"] == 1
    by_all = found["an annotator, by all, as published"]
    # gas: 3 of 4 say core; yeast: 3 of 4; purring: 4 of 4; baked is divided
    assert (by_all.n, values(by_all)["accuracy"]) == (12, round((3 + 3 + 4) / 12, 3))


def test_a_typer_that_fails_on_a_question_fails_on_all_of_its_sub_questions(data):
    lm = scripted_scorer(TypeSubQuestions=lambda p: "?" if "bread" in p else labels._types(p))
    judge = rows(check("sub-question-types", data / "sub_questions", lm))["few-shot"]
    assert (judge.n, judge.failed) == (1, 3)
    assert values(judge)["accuracy"] == 1


def test_coverage(data):
    found = check("sub-question-coverage", data / "sub_questions", scripted_scorer())
    judge = rows(found)["coverage, citing words"]
    assert values(judge) == {
        "accuracy": 1, "precision": 1, "recall": 1, "f1": 1, "ordered": 1, "invalid": 0, "fragment": 1,
    }  # fmt: skip
    assert (judge.n, judge.failed) == (4, 0)
    assert values(rows(found)["always covered"])["accuracy"] == 0.5
    assert "ordered" in rows(found)["similarity to the answer"].measures
    assert {c.judgments for c in found.costs} == {2}  # all of an answer at once
    by_similarity = rows(found)["coverage, by similarity"]
    assert (by_similarity.n, by_similarity.scorer) == (4, "")
    assert rows(found)["coverage, by similarity, citing words where unsure"].scorer == "scripted"
    pointing = values(rows(found)["coverage, citing sentences"])
    assert (pointing["accuracy"], pointing["invalid"]) == (1, 0)
    assert 0 < pointing["fragment"] < 1  # a sentence is more than the words in it that people marked


def test_a_fragment_that_is_not_in_the_answer_covers_nothing(data):
    def invent(prompt):
        asked = labels.json.loads(labels.field(prompt, "sub_questions"))
        return said(verdicts={key: {"fragment": "Pigs can fly higher", "answered": True} for key in asked})

    lm = scripted_scorer(FindAnswers=invent)
    judge = rows(check("sub-question-coverage", data / "sub_questions", lm))["coverage, citing words"]
    assert values(judge)["invalid"] == 1
    assert values(judge)["recall"] == 0
    assert "precision" not in judge.measures


def test_question_types(data):
    found = check("nf-cats", data / "nf_cats", scripted_scorer())
    assert values(rows(found)["linear, all questions"])["accuracy"] == 1
    assert values(rows(found)["always reason"])["accuracy"] == 0.5
    judge = rows(found)["LM"]
    assert values(judge)["accuracy"] == 0.5
    assert judge.confusion.mistakes() == [("comparison", "reason", 1), ("not-a-question", "reason", 1)]


def test_an_lm_is_asked_about_as_many_as_the_limit_allows(data):
    lm = scripted_scorer()
    found = rows(check("nf-cats", data / "nf_cats", lm, limit=2))
    assert len(lm.engine.prompts) == 2
    assert (found["LM"].n, found["linear, the LM's questions"].n, found["linear, all questions"].n) == (2, 2, 4)
    for limit in (1, 2):  # with all sub-questions of each
        about = check("sub-question-types", data / "sub_questions", limit=limit).about[1]
        assert f"of {limit} questions" in about
    assert "of 1 questions" in check("antique", data / "linkage", limit=1).about[1]


def test_without_a_scorer_only_yardsticks_are_measured(data):
    found = check("antique", data / "linkage")
    assert len(found.agreements) == 4 and not found.costs


def test_preferences(tmp_path):
    rows_ = [
        labels.json.dumps(
            {
                "question": {"dataset": "eli5", "id": str(i), "full_text": f"Why {i}?"},
                "answer_0": "A fine answer.",
                "answer_1": "A poor answer.",
                "score_0": score,
                "score_1": -score,
            }
        )
        for i, score in enumerate((1.0, 0.5, -0.5))
    ]
    (tmp_path / "comparisons.jsonl").write_text("\n".join(rows_))
    found = rows(check("webgpt", tmp_path, scripted_scorer()))
    assert values(found["pairwise, both orders"])["pairs_ordered"] == round(2 / 3, 3)
    assert found["pairwise, one order"].n == 3


def test_a_dataset_without_labels_for_judges_is_refused(data):
    with pytest.raises(InputError, match="sample"):
        check_judges({"sample": load_dataset("nf-cats", data / "nf_cats")}, [])


def test_the_page_has_every_row_with_its_intervals(data):
    dataset = {"nf-cats": load_dataset("nf-cats", data / "nf_cats")}
    found = check_judges(dataset, [Scorer("scripted", scripted_scorer())])
    page = judges_page(found, "typedrag research judges check --data labels")
    assert "typedrag research judges check --data labels" in page
    assert found.date in page
    assert "scripted (temperature 0.0" in page
    assert "| LM | scripted | 4 | 0 | 0.500 (n = 4 questions) |" in page
    assert "| comparison | 0 | 0 | 0 | 1 |" in page
    assert "| LM | scripted | 4 | 4 | 40 | 20 |" in page
    assert "4 questions; LMs are asked about 4" in page

from scripts.results_page import Cause, Loss, Section, results_page
from tests.experiments.runs import question, run, run_of
from typedrag.core.question_types import QuestionType

MRR = "linkage/mrr"


def page(*runs, losses=None, measures=(MRR, "cost/tokens")):
    section = Section("wiki-nfqa", runs, 0, measures, losses or {}, "30 questions.")
    return results_page("Results", ["Made by hand."], [section])


def rows(text, heading):
    """The table below a heading, without its header."""
    below = text.split(f"{heading}\n", 1)[1].splitlines()
    start = next(i for i, line in enumerate(below) if line.startswith("|"))
    table = []
    for line in below[start + 2 :]:
        if not line:
            break
        table.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return table


NONE = "0 (0 %) not answered, 0 (0 %) from the LM's knowledge"


def test_a_program_has_its_means_with_intervals_and_its_failures():
    broken = [question(28, answer=None), question(29, judge_failed=True)]
    text = page(run_of("rag", [0.25] * 30), run("typed", *(question(i, {"mrr": 0.5}) for i in range(28)), *broken))
    assert text.startswith("# Results\n\nMade by hand.\n\n## wiki-nfqa\n\n30 questions.\n")
    rag, typed = rows(text, "## wiki-nfqa")
    assert rag == [
        "rag",
        "30",
        f"0 answers, 0 judgments; 0 fallbacks; {NONE}",
        "0.250 [0.250, 0.250]",
        "100.0 [100.0, 100.0]",
    ]
    assert typed[:3] == ["typed", "30", f"1 answers, 1 judgments; 0 fallbacks; {NONE}"]


def test_a_difference_that_is_more_than_chance_is_called_better_or_worse():
    values = [0.2 + 0.01 * i for i in range(30)]
    text = page(run_of("rag", values), run_of("typed", [v + 0.3 for v in values]), run_of("bad", values))
    compared = {(row[0], row[1]): row for row in rows(text, "### Against rag")}
    assert compared["typed", MRR][3] == "+0.300 [+0.300, +0.300] **better**"
    assert compared["typed", MRR][4] == "<0.001"
    assert compared["bad", MRR][3] == "+0.000 [+0.000, +0.000]"


def test_each_step_has_what_it_adds_to_the_program_without_it():
    without, with_ = run_of("rag", [0.2] * 30), run_of("gated", [0.5] * 30)
    section = Section("antique", [without, with_], 0, (MRR,), {}, "30 questions.", {"gate": (without, with_)})
    [gate] = rows(results_page("Results", [], [section]), "### What each step adds")
    assert gate == ["gate", "gated", "rag", "+0.300 [+0.300, +0.300]"]


def test_losses_are_counted_by_their_first_cause_and_by_all():
    found = [
        Loss("q1", "Why?", QuestionType.REASON, 2.0, (Cause.DRIFT, Cause.LOST)),
        Loss("q2", "How?", QuestionType.INSTRUCTION, 1.0, (Cause.DRIFT,)),
    ]
    text = page(run_of("rag", [0.5] * 6), run_of("typed", [0.25] * 6), losses={"typed": found})
    counted = {row[0]: row[1:3] for row in rows(text, "### Where typed loses to rag")}
    assert "2 questions were answered worse" in text
    assert counted[str(Cause.DRIFT)] == ["2", "2"]
    assert counted[str(Cause.LOST)] == ["0", "1"]
    assert counted[str(Cause.WRONG_TYPE)] == ["0", "0"]

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.datasets.files import write_jsonl
from typedrag.cli.main import cli
from typedrag.lms.lm import open_lm, use_lm
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import (
    build_type_classifier,
    read_calibration,
    type_classifier_identity,
)
from typedrag.question_types import QuestionType

# the LM always names debate, and hesitates in a way of its own where it is wrong
HELD = {
    "debate": {"debate": 0.9, "reason": 0.06, "instruction": 0.04},
    "reason": {"debate": 0.7, "reason": 0.2, "instruction": 0.1},
    "instruction": {"debate": 0.7, "reason": 0.1, "instruction": 0.2},
}
TYPES = [*["debate"] * 12, *["reason"] * 12, *["instruction"] * 12]


@pytest.fixture
def labelled(tmp_path):
    rows = [{"question": f"Question {n} of {t}", "question_type": t} for n, t in enumerate(TYPES)]
    return write_jsonl(tmp_path / "labelled.jsonl", *rows)


@pytest.fixture
def calibrate(server, tmp_path, labelled):
    server.holds = lambda call: HELD[call.question.split()[-1]]
    lm = ("--lm", "vllm:stub", "--api-base", server.api_base)

    def run(*arguments, path=labelled):
        given = ("calibrate", "--dataset", "file", "--path", path, "--out", tmp_path / "made.json", *lm, *arguments)
        return CliRunner().invoke(cli, [str(a) for a in given])

    return run


def named(server, file, question, **options):
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        return build_type_classifier(Options(type_classifier=f"lm-calibrated:{file}", **options))(question=question)


def test_what_an_lm_holds_is_fitted_to_labels_and_names_the_types_that_it_never_names(calibrate, server, tmp_path):
    made = calibrate("--json")
    assert made.exit_code == 0, made.output
    said = json.loads(made.stdout)
    assert said["bare"]["accuracy"] == pytest.approx(1 / 3)
    assert said["calibrated"]["accuracy"] == 1
    assert "never named, since no question is labelled so: evidence-based, comparison, exp" in made.stderr
    assert said["calibrated"]["calibration_error"] < said["bare"]["calibration_error"]
    file = tmp_path / "made.json"
    assert read_calibration(file).questions == len(TYPES)
    assert [named(server, file, f"Another of {t}").question_type for t in HELD] == list(HELD)
    assert 0.5 < named(server, file, "Another of reason").probability < 1


def test_what_was_asked_is_not_asked_again(calibrate, server):
    calibrate()
    calls = len(server.calls)
    again = calibrate()
    assert calls == len(TYPES) == len(server.calls)
    assert "as it is: accuracy 0.333" in again.stderr and "calibrated: accuracy 1.000" in again.stderr


def test_a_server_that_tells_no_probabilities_is_named_and_its_word_stands(calibrate, server, tmp_path):
    calibrate()
    server.holds, server.reply = None, lambda call: {"question_type": "comparison"}
    calls, other = len(server.calls), ("--store", tmp_path / "other.sqlite")
    refused = calibrate(*other)
    assert refused.exit_code == 2 and "tells no token probabilities" in refused.output
    calibrate(*other)
    assert len(server.calls) == calls + 2 * len(TYPES)  # it may tell them by now
    said = named(server, tmp_path / "made.json", "Another of reason")
    assert (said.question_type, said.probability) == (QuestionType.COMPARISON, None)


def test_a_question_that_the_lm_fails_at_is_left_out_and_one_that_refuses_all_ends_it(calibrate, server, tmp_path):
    server.reply = lambda call: (400, "not that") if call.question == "Question 3 of debate" else None
    assert "left out: 1 questions" in calibrate().stderr
    server.reply = lambda call: (400, "not that")
    refused = calibrate("--store", tmp_path / "other.sqlite")
    assert refused.exit_code == 3 and "not that" in refused.output


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"question": "Q of debate"}], "has no question types"),
        ([{"question": f"Q {n} of debate", "question_type": "debate"} for n in range(9)], "too few"),
        ([{"question": "Q of debate", "question_type": "debate"}], "too few"),
    ],
)
def test_labels_that_do_not_suffice_are_refused(calibrate, tmp_path, rows, problem):
    refused = calibrate(path=write_jsonl(tmp_path / "few.jsonl", *rows))
    assert refused.exit_code == 2 and problem in refused.output
    assert not (tmp_path / "made.json").exists()


def test_it_is_fitted_on_train_where_there_is_such_a_subset(calibrate, tmp_path):
    rows = [f"authors,{t.upper()},Question {n} of {t}" for n, t in enumerate(TYPES)]
    for name, chosen in (("train", rows[::2]), ("valid", rows[1::2])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["annotated_by,category,question", *chosen]))
    made = calibrate("--dataset", "nf-cats", path=tmp_path)
    assert made.exit_code == 0, made.output
    found = read_calibration(tmp_path / "made.json")
    assert (found.questions, found.dataset) == (len(TYPES) // 2, "nf-cats train")


def test_one_that_was_fitted_to_another_prompt_is_warned_of(calibrate, server, tmp_path, caplog):
    calibrate()
    classify = build_type_classifier(Options(type_classifier=f"lm-calibrated:{tmp_path / 'made.json'}"))
    with use_lm(open_lm("vllm:stub", api_base=server.api_base, cache=False)):
        classify(question="Another of reason")
        assert "calibrated" not in caplog.text
        classify.classify.signature = classify.classify.signature.with_instructions("Name the type.")
        classify(question="Another of reason")
    assert "was calibrated as it asks uncompiled" in caplog.text


def test_a_file_that_is_no_calibration_is_named(calibrate, server, tmp_path, labelled):
    for file, problem in ((labelled, "is no calibration"), (tmp_path / "none.json", "cannot be read")):
        with pytest.raises(Exception, match=problem):
            named(server, file, "Why?")


def test_two_calibrations_of_one_name_are_told_apart_and_another_lm_is_warned_of(calibrate, server, tmp_path, caplog):
    file = tmp_path / "made.json"
    options = Options(type_classifier=f"cascade:linear,lm-calibrated:{file}")
    calibrate()
    first = type_classifier_identity(options)
    calibrate("--limit", 30)
    assert first and type_classifier_identity(options) != first
    file.write_text(file.read_text().replace("stub", "another"))
    for _ in range(2):
        named(server, file, "Another of reason")
    assert caplog.text.count("local/another, not for typedrag-local/stub") == 1

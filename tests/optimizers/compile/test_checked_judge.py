import json

import pytest
from click.testing import CliRunner

from tests.experiments.labels import write_antique
from tests.optimizers.compile.targets.labels import LEARNT, covered, learning_lm, ranked
from typedrag.cli import judges as judges_command
from typedrag.cli.main import cli
from typedrag.core.errors import InputError
from typedrag.datasets import load_dataset
from typedrag.experiments.judges.judging import CheckSettings, Scorer
from typedrag.experiments.judges.saved import JudgeCheck, SavedJudge, save_judge
from typedrag.experiments.resources import with_judges
from typedrag.metrics import build_metric
from typedrag.metrics.judges.linkage import LinkageJudge
from typedrag.optimizers.compile.held_out import check_saved_judge
from typedrag.optimizers.compile.targets import LinkageJudgeTarget

SCORER = Scorer("learning", learning_lm())


def taught() -> LinkageJudge:
    judge = LinkageJudge()
    judge.rank.signature = judge.rank.signature.with_instructions(LEARNT)
    return judge


def test_what_was_found_lets_the_judge_be_used(tmp_path):
    folder = tmp_path / "judge"
    save_judge(taught(), folder)
    with pytest.raises(InputError, match="not checked"):
        with_judges("linkage", {"judge": str(folder)}, SCORER.lm)
    check_saved_judge(folder, {"antique": ranked(32)}, SCORER)
    options = with_judges("linkage", {"judge": str(folder), "seed": 3}, SCORER.lm)
    metric = build_metric("linkage", SCORER.lm, **options)
    assert metric.seed == 3 and metric.judge.rank.signature.instructions == LEARNT
    with pytest.raises(InputError, match="where a coverage-judge"):
        with_judges("coverage", {"judge": folder}, SCORER.lm)
    assert with_judges("f1", {"judge": "x"}, None) == {"judge": "x"}
    with pytest.raises(InputError, match="no labels are given"):
        check_saved_judge(folder, {"sub-question-coverage": covered()}, SCORER)


def test_the_command_checks_compiled_judges(tmp_path, monkeypatch):
    write_antique(tmp_path / "data" / "linkage" / "antique.json", questions=32)
    dataset = load_dataset("antique", tmp_path / "data" / "linkage")
    assert LinkageJudgeTarget().examples(dataset, "test")
    monkeypatch.setattr(judges_command, "_open_scorer", lambda *_: learning_lm())
    better, same = tmp_path / "better", tmp_path / "same"
    save_judge(taught(), better)
    save_judge(LinkageJudge(), same)
    files = ["--data", str(tmp_path / "data"), "--judgments", str(tmp_path / "j.db")]
    common = ["judges", "check", "--scorer", "x", *files]
    done = CliRunner().invoke(cli, [*common, "--compiled", str(better), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["compiled"]["value"] > found["base"]["value"]
    assert SavedJudge.read(better).find_check("scripted/judge").is_better
    done = CliRunner().invoke(cli, [*common, "--compiled", str(better), "--compiled", str(same)])
    assert done.exit_code == 1 and "same, x: not shown to be better" in done.stderr
    done = CliRunner().invoke(cli, [*common, "--compiled", str(tmp_path)])
    assert done.exit_code == 2 and "no compiled judge" in done.stderr


def test_p_is_corrected_for_all_judges_that_were_ever_checked_on_the_labels(tmp_path):
    """The least p of 6 questions is 2 / 2^6: enough for the first judge that is looked at, and not for the second."""
    folder, dataset = tmp_path / "judge", {"antique": ranked(24)}
    count = len({e.question for e in LinkageJudgeTarget().test_examples(dataset["antique"])})
    assert count == 6
    save_judge(taught(), folder)
    first = check_saved_judge(folder, dataset, SCORER)
    assert (first.tests, first.p, first.is_better) == (1, 2 / 2**6, True)
    assert check_saved_judge(folder, dataset, SCORER).tests == 1  # the same judge again
    other = taught()
    other.rank.signature = other.rank.signature.with_instructions(f"{LEARNT} Take your time.")
    save_judge(other, folder)  # the checks stay
    second = check_saved_judge(folder, dataset, SCORER)
    assert (second.tests, second.p, second.is_better) == (2, 4 / 2**6, False)
    with pytest.raises(InputError, match="not shown to agree better"):
        with_judges("linkage", {"judge": str(folder)}, SCORER.lm)


def test_a_compiled_judge_is_compared_with_the_one_in_use_on_labels_it_never_saw(tmp_path):
    dataset = ranked(32)

    def check(judge: LinkageJudge, settings: CheckSettings | None = None) -> JudgeCheck:
        save_judge(judge, tmp_path / "judge")
        return check_saved_judge(tmp_path / "judge", {"antique": dataset}, SCORER, settings)

    found = check(taught())
    assert (found.compiled.value, found.base.value) == (1, 0.5) and found.is_better
    assert found.scorer == "scripted/judge" and found.dataset_fingerprint == dataset.fingerprint
    assert not check(LinkageJudge()).is_better

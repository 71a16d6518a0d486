import itertools
import json
from collections import Counter

import pytest

from tests.experiments.evaluations import evaluation_of
from tests.lm_server import lm_server
from tests.retrieval.berts import save_bert
from typedrag.core.errors import InputError, LMUnavailable, TypedRAGError
from typedrag.core.question_types import QuestionType
from typedrag.datasets import sample_questions
from typedrag.experiments import read_config, read_run, run_evaluation


@pytest.fixture
def evaluate(server, tmp_path):
    """Evaluate direct_lm on the sample's questions by the tiny metric, if the flags say nothing else."""

    def run(out="run", *, resume=False, retry_failed=False, on_progress=lambda p: None, on_notice=print, **flags):
        ways = {"resume": resume, "retry_failed": retry_failed, "on_progress": on_progress, "on_notice": on_notice}
        return list(run_evaluation(read_config(None, evaluation_of(server, **flags)), tmp_path / out, **ways))

    return run


def wanted_more_than_once(server) -> dict[object, int]:
    return {call: n for call, n in Counter(server.calls).items() if n > 1}


# a run


def test_every_question_is_answered_and_judged_once(evaluate, server, tmp_path):
    [evaluated] = evaluate()
    run = read_run(tmp_path / "run")
    assert evaluated.run == run
    assert evaluated.stopped == ""
    assert (len(run.questions), run.planned, run.name) == (12, 12, "run")
    assert Counter(q.question_type for q in run.questions) == dict.fromkeys(QuestionType.non_factoid(), 2)
    asked = [q.question for q in run.questions]
    assert set(asked) < {q.question for q in sample_questions()}
    assert sorted(server.asked("answer")) == sorted(server.asked("is_good")) == sorted(asked)
    for question in run.questions:
        assert question.answer.answer
        result = question.metrics["tiny"]
        assert (result.score, result.feedback, result.measures, result.problem) == (1.0, "said so", {"good": 1.0}, "")
        assert (result.usage.lm_calls, result.usage.prompt_tokens, result.usage.completion_tokens) == (1, 100, 10)
    assert (run.spent.usage.lm_calls, run.spent.tokens, run.spent.cost) == (24, 24 * 110, None)


def test_the_settings_say_what_it_was_made_with_and_no_address_or_key(evaluate, server, tmp_path, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_API_KEY", "sk-a-planted-key")
    evaluate(dataset={"name": "sample", "limit": 2, "seed": 3}, metrics=[{"name": "tiny", "options": {"bonus": 1}}])
    settings = read_run(tmp_path / "run").settings
    assert settings["program"] == "direct_lm"
    assert settings["options"]["top_k"] == 5
    assert settings["lm"] == "vllm:stub"
    assert settings["lm settings"] == {"temperature": 0.0, "max_tokens": 1024}
    assert settings["metric tiny"]["options"] == {"bonus": 1}
    assert settings["metric tiny"]["scorer"] == "vllm:stub"
    assert (settings["dataset"], settings["split"], settings["seed"]) == ("sample", "all", 3)
    assert len(settings["dataset fingerprint"]) == 64
    assert set(settings["versions"]) >= {"python", "typedrag", "dspy"}
    written = b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
    assert server.api_base.encode() not in written
    assert b"sk-a-planted-key" not in written


def test_the_summary_is_written_beside_the_run(evaluate, tmp_path):
    [evaluated] = evaluate(metrics=["tiny", "length"])
    summary = json.loads((tmp_path / "run" / "results.json").read_text())
    assert summary == json.loads(json.dumps(evaluated.summary.to_dict()))
    overall = summary["overall"]
    assert (overall["questions"], overall["failed"]) == (12, 0)
    assert overall["cost"]["tokens"] == 110
    counts = {"n": 12, "failed": 0, "not_measurable": 0, "score": 1.0, "measures": {"good": 1.0}, "answered": {}}
    assert overall["metrics"]["tiny"] == counts
    assert overall["metrics"]["length"]["n"] == 10
    assert overall["metrics"]["length"]["not_measurable"] == 2
    assert set(summary["types"]) == {t.value for t in QuestionType.non_factoid()}
    assert summary["types"]["debate"]["metrics"]["length"]["measures"] == {}
    assert summary["spent"] == {
        "lm_calls": 24, "prompt_tokens": 2400, "completion_tokens": 240, "uncounted": 0, "cost": None,
        "unpriced": 24,
    }  # fmt: skip


def test_questions_are_under_way_at_once_and_calls_in_flight_are_limited(evaluate, server):
    server.seconds = 0.05
    evaluate("a", threads=6)
    assert server.most_at_once == 6
    server.most_at_once = 0
    evaluate("elsewhere/b", threads=6, calls_in_flight=2)
    assert server.most_at_once == 2


# judgments


def test_judgments_are_shared_by_runs_that_lie_beside_each_other(evaluate, server, tmp_path):
    evaluate("a")
    asked = len(server.calls)
    [evaluated] = evaluate("b", lm={"temperature": 0.1})
    assert len(server.calls) == asked + 12  # the answers alone
    assert (tmp_path / "replies.sqlite").is_file()
    assert evaluated.run.spent.usage.lm_calls == 12
    evaluate("c", lm={"temperature": 0.2}, replies=tmp_path / "others.sqlite")
    assert len(server.calls) == asked + 12 + 24


def test_programs_that_ask_the_same_get_the_same_reply_and_are_as_dear(evaluate, server, tmp_path):
    """Servers that batch calls do not reply twice alike, and what they happen to write is no difference of programs."""
    numbers = itertools.count()
    server.reply = lambda call: {"answer": f"Answer {next(numbers)}."} if "answer" in call.wanted else None
    programs = [{"name": name, "program": "direct_lm"} for name in ("one", "two")]
    first, second = evaluate("table", programs=programs)
    assert len(server.asked("answer")) == 12
    ours, theirs = ([q.answer for q in e.run.questions] for e in (first, second))
    assert [a.answer for a in ours] == [a.answer for a in theirs]
    assert [a.usage for a in ours] == [a.usage for a in theirs]
    assert ours[0].usage.lm_calls == 1
    assert (first.run.spent.usage.lm_calls, second.run.spent.usage.lm_calls) == (24, 0)
    assert (tmp_path / "table" / "replies.sqlite").is_file()


def test_servers_of_one_model_name_answer_and_judge_for_themselves(evaluate):
    with lm_server(reply=lambda call: {"answer": "B"} if "answer" in call.wanted else None) as other:
        at = {"api_base": other.api_base}
        [first] = evaluate("table", programs=[{"name": "one", "program": "direct_lm"}])
        [second] = evaluate("table", programs=[{"name": "two", "program": "direct_lm"}], lm=at, scorer=at)
    assert {q.answer.answer for q in second.run.questions} == {"B"}
    assert "B" not in {q.answer.answer for q in first.run.questions}
    assert (len(other.asked("answer")), len(other.asked("is_good"))) == (12, 12)


def test_where_a_second_run_is_refused_the_first_is_not_begun(evaluate, server, tmp_path):
    one, two = {"name": "one", "program": "direct_lm"}, {"name": "two", "program": "direct_lm"}
    evaluate("table", programs=[two])
    asked = len(server.calls)
    with pytest.raises(InputError, match=r"another options\.retries"):
        evaluate("table", programs=[one, {**two, "options": {"retries": 1}}], resume=True)
    assert len(server.calls) == asked
    assert not (tmp_path / "table" / "one").exists()


# failures


def test_what_fails_is_kept_with_its_reason_and_made_again_only_if_that_is_wanted(evaluate, server, tmp_path):
    questions = [q.question for q in sample_questions()]
    bad_answer, bad_judgment = questions[0], questions[4]

    def reply(call):
        if (call.question, call.wanted[0]) == (bad_answer, "answer"):
            return 400, "maximum context length is 2048 tokens, no such thing"
        if (call.question, call.wanted[0]) == (bad_judgment, "is_good"):
            return {"is_good": "perhaps"}
        return None

    server.reply = reply
    [evaluated] = evaluate(dataset={"name": "sample", "limit": 24})
    assert evaluated.stopped == ""
    by_question = {q.question: q for q in evaluated.run.questions}
    assert by_question[bad_answer].answer is None
    assert "no such thing" in by_question[bad_answer].error
    assert by_question[bad_answer].metrics == {}
    result = by_question[bad_judgment].metrics["tiny"]
    assert (result.score, result.measurable, result.usage.lm_calls) == (None, True, 1)
    assert "could not be read" in result.problem
    overall = evaluated.summary.overall
    assert (overall.failed, overall.metrics["tiny"].n, overall.metrics["tiny"].failed) == (1, 22, 1)

    server.reply = lambda call: None
    asked = len(server.calls)
    evaluate(dataset={"name": "sample", "limit": 24}, resume=True)
    assert len(server.calls) == asked
    [mended] = evaluate(dataset={"name": "sample", "limit": 24}, resume=True, retry_failed=True)
    assert len(server.calls) == asked + 3  # an answer, its judgment, and the one that could not be read
    assert mended.summary.overall.metrics["tiny"].n == 24


def test_a_failed_answer_to_what_a_metric_can_never_measure_is_not_in_its_mean(evaluate, server):
    """`length` measures no debate: one that failed is no answer of length 0."""
    unlucky = {q.question for q in sample_questions() if q.question_type in (QuestionType.DEBATE, QuestionType.REASON)}
    server.reply = lambda call: {"answer": " "} if call.question in unlucky and "answer" in call.wanted else None
    [evaluated] = evaluate(metrics=["tiny", "length"], caps={"failures": 1.0})
    summary, run = evaluated.summary.overall, evaluated.run
    assert (summary.failed, summary.metrics["length"].n, summary.metrics["length"].not_measurable) == (4, 8, 2)
    assert len(run.values("length/share")) == 10 and len(run.values("tiny/good")) == 12
    means = summary.metrics["length"]
    assert means.measures["share"] == pytest.approx(means.answered["share"] * 8 / 10)
    asked = len(server.calls)
    [again] = evaluate(metrics=["tiny", "length"], caps={"failures": 1.0}, resume=True)
    assert again.run == run and len(server.calls) == asked


@pytest.mark.parametrize(("kind", "said"), [("answer", "answers failed"), ("is_good", "judgments of 'tiny' failed")])
def test_too_many_failures_stop_the_run_with_a_reason(evaluate, server, kind, said):
    server.reply = lambda call: {kind: " "} if kind in call.wanted else None
    [evaluated] = evaluate(dataset={"name": "sample", "limit": 24}, threads=2)
    assert said in evaluated.stopped
    assert "30% are allowed" in evaluated.stopped
    assert "failed: the LM's" in evaluated.stopped
    assert 10 <= len(evaluated.run.questions) <= 14
    [again] = evaluate(dataset={"name": "sample", "limit": 24}, threads=2, caps={"failures": 1.0}, resume=True)
    assert again.stopped == ""
    assert len(again.run.questions) == 24


@pytest.mark.parametrize(("kind", "status", "limit"), [("answer", 400, 24), ("is_good", 500, 3), ("answer", 500, 3)])
def test_an_lm_that_fails_at_all_ends_the_run_in_its_words_and_leaves_no_failure(evaluate, server, kind, status, limit):
    server.reply = lambda call: (status, "no response_format here") if kind in call.wanted else None
    data = {"name": "sample", "limit": limit}
    with pytest.raises(LMUnavailable, match="no response_format here"):
        evaluate(dataset=data, threads=2)
    assert len(server.asked(kind)) <= 7
    server.reply = lambda call: None
    [evaluated] = evaluate(dataset=data, resume=True)
    overall = evaluated.summary.overall
    assert (overall.failed, overall.metrics["tiny"].n, overall.metrics["tiny"].failed) == (0, limit, 0)


@pytest.mark.parametrize(
    ("fault", "kind", "threads"),
    [(500, "answer", 1), (400, "is_good", 1), ("html", "answer", 16), (500, "is_good", 16)],
)
def test_what_an_lm_fails_at_is_the_failure_of_that_question_alone(evaluate, server, fault, kind, threads):
    """Wherever it comes in the run, also where nothing else is left of it."""
    bad = [q.question for q in sample_questions()][:24:8]
    page = "<html>Login please</html>"
    reply = page if fault == "html" else (fault, "not this one")
    server.reply = lambda call: reply if call.question in bad and kind in call.wanted else None
    data = {"name": "sample", "limit": 24}
    [evaluated] = evaluate(dataset=data, threads=threads)
    assert evaluated.stopped == ""
    overall = evaluated.summary.overall
    n = 24 - len(bad)
    if kind == "answer":
        assert (overall.failed, overall.metrics["tiny"].n) == (len(bad), n)
        assert {q.question for q in evaluated.run.questions if "cannot be used" in q.error} == set(bad)
    else:
        assert (overall.failed, overall.metrics["tiny"].n, overall.metrics["tiny"].failed) == (0, n, len(bad))
    asked = len(server.calls)
    evaluate(dataset=data, resume=True)
    assert len(server.calls) == asked


@pytest.mark.parametrize("calls", [1, 8, 15, 24])
def test_a_run_that_ends_anywhere_is_continued_without_doing_anything_twice(evaluate, server, tmp_path, calls):
    """The fault strikes at each call in turn: what was kept before is neither asked nor judged again."""
    server.reply = lambda call: (401, "gone") if len(server.calls) >= calls else None
    with pytest.raises(LMUnavailable):
        evaluate(threads=1)
    kept = read_run(tmp_path / "run").questions
    assert not any(q.error for q in kept)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["overall"]["questions"] == len(kept)
    server.reply = lambda call: None
    [evaluated] = evaluate(threads=1, resume=True)
    assert evaluated.summary.overall.metrics["tiny"].n == 12
    assert sum(wanted_more_than_once(server).values()) == 2  # the call that failed, made again
    assert len(server.calls) == 25


# caps


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        ({"lm_calls": 9}, "LM calls are made of the 9 allowed"),
        ({"tokens": 990}, "tokens are spent of the 990 allowed"),
        ({"cost": 0.01}, "the price of an LM in use is not known: give it in TYPEDRAG_PRICES"),
    ],
)
def test_a_cap_stops_the_run_which_can_be_continued(evaluate, server, caps, said):
    [stopped] = evaluate(caps=caps, threads=2)
    assert said in stopped.stopped
    assert len(server.calls) <= 9 + 2
    assert len(stopped.run.questions) < 12
    asked = len(server.calls)
    [still] = evaluate(caps=caps, threads=2, resume=True)  # what was spent before counts
    assert said in still.stopped
    assert len(server.calls) == asked
    [done] = evaluate(threads=2, resume=True)
    assert done.stopped == ""
    assert wanted_more_than_once(server) == {}
    assert len(server.calls) == 24


def test_a_cap_that_is_reached_with_the_last_question_stops_nothing(evaluate):
    [evaluated] = evaluate(caps={"lm_calls": 24}, threads=1)
    assert evaluated.stopped == ""


def test_a_cap_is_for_all_runs_together(evaluate, server):
    lengths = {"one": "paragraphs", "two": "phrase", "three": "paragraphs"}
    programs = [{"name": n, "program": "direct_lm", "options": {"answer_length": a}} for n, a in lengths.items()]
    notices = []
    ended = evaluate("table", programs=programs, caps={"lm_calls": 30}, threads=1, on_notice=notices.append)
    assert [e.run.name for e in ended] == ["one", "two"]
    assert len(server.calls) == 30
    assert any("30 LM calls are made of the 30 allowed" in notice for notice in notices)


# what may change when a run is continued


def test_a_run_may_grow_by_questions_and_metrics(evaluate, server):
    evaluate(dataset={"name": "sample", "limit": 6})
    [grown] = evaluate(dataset={"name": "sample", "limit": 12}, metrics=["tiny", "length"], resume=True)
    assert wanted_more_than_once(server) == {}
    assert len(server.calls) == 24
    assert grown.run.planned == 12
    assert grown.summary.overall.metrics["length"].n + grown.summary.overall.metrics["length"].not_measurable == 12


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"programs": [{"program": "direct_lm", "options": {"retries": 0}}]}, r"options.retries \(2, now 0\)"),
        ({"lm": {"temperature": 0.5}}, r"lm settings.temperature \(0.0, now 0.5\)"),
        ({"dataset": {"seed": 1}}, "seed"),
        ({"dataset": {"split": "test"}}, "split"),
        ({"dataset": {"limit": 5}}, "limit"),
        ({"metrics": ["length"]}, "metric tiny"),
        ({"metrics": [{"name": "tiny", "options": {"bonus": 2}}]}, "metric tiny.options.bonus"),
        ({"scorer": {"max_tokens": 7}}, "metric tiny.scorer settings.max_tokens"),
    ],
)
def test_other_settings_are_refused_before_anything_is_asked(evaluate, server, flags, named):
    evaluate()
    asked = len(server.calls)
    with pytest.raises(InputError, match=f"another .*{named}"):
        evaluate(resume=True, **flags)
    assert len(server.calls) == asked


def test_how_bm25_weighs_terms_is_part_of_a_run(evaluate, sample_index, tmp_path):
    def programs(**bm25):
        return {"programs": [{"program": "rag", "bm25": bm25}], "index": sample_index, "dataset": {"limit": 4}}

    evaluate("plain", **programs())
    evaluate("long", **programs(b=0.9, k1=2.0))
    plain, long = (read_run(tmp_path / name) for name in ("plain", "long"))
    assert "bm25" not in plain.settings
    assert long.settings["bm25"] == {"k1": 2.0, "b": 0.9}
    scores = [[p.score for q in run.questions for p in q.answer.passages] for run in (plain, long)]
    assert scores[0] != scores[1]
    with pytest.raises(InputError, match=r"another bm25\.b"):
        evaluate("long", resume=True, **programs(b=0.5, k1=2.0))


def test_a_reranker_that_was_trained_anew_makes_another_run(evaluate, sample_index, tmp_path):
    folder = tmp_path / "ranker"
    programs = [{"program": "rag", "reranker": f"cross-encoder:{save_bert(folder, labels=1)}"}]
    evaluate(programs=programs, index=sample_index, dataset={"limit": 2})
    evaluate(programs=programs, index=sample_index, dataset={"limit": 2}, resume=True)
    save_bert(folder, labels=1, seed=8)
    with pytest.raises(InputError, match="another reranker files"):
        evaluate(programs=programs, index=sample_index, dataset={"limit": 2}, resume=True)


def test_what_only_concerns_how_it_is_made_may_change(evaluate):
    evaluate(caps={"lm_calls": 4})
    evaluate(
        resume=True,
        threads=1,
        calls_in_flight=3,
        caps={"failures": 1.0},
        lm={"timeout": 9.0},
        scorer={"num_retries": 1},
    )


# bad input


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"programs": [{"program": "nothing"}]}, "no program is called 'nothing'"),
        ({"programs": [{"program": "direct_lm", "options": {"topk": 1}}]}, "there is no option 'topk'"),
        ({"metrics": ["nothing"]}, "no metric is called 'nothing'"),
        ({"metrics": [{"name": "length", "options": {"x": 1}}]}, "metric 'length'"),
        ({"scorer": None}, "metric 'tiny' needs a scorer"),
        ({"dataset": {"name": "nothing"}}, "no dataset is called 'nothing'"),
        ({"dataset": {"split": "nothing"}}, "no split is called 'nothing'"),
        ({"lm": {"spec": "nothing"}}, "'nothing' is no LM spec"),
        ({"metrics": []}, "no metric is named"),
        ({"dataset": {"path": "nosuch.jsonl"}}, "path"),
        ({"programs": [{"program": "direct_lm", "reranker": "list:nosuch"}]}, "nosuch"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(evaluate, server, tmp_path, flags, problem):
    with pytest.raises(TypedRAGError, match=problem):
        evaluate(**flags)
    assert server.calls == []
    assert not list(tmp_path.iterdir())  # which would be in the way of the mended command


# what it will spend


@pytest.fixture
def notices(evaluate):
    def run(out="run", **flags):
        told = []
        evaluate(out, **{"lm": {"cache": False}, "threads": 1, "on_notice": told.append, **flags})
        return told

    return run


def test_what_a_run_will_spend_is_projected_by_its_first_questions(notices, tmp_path, monkeypatch):
    (tmp_path / "prices.yaml").write_text("vllm:stub: {prompt: 10, completion: 100}")
    monkeypatch.setenv("TYPEDRAG_PRICES", str(tmp_path / "prices.yaml"))
    words = "about 2.0 LM calls, 220 tokens, $0.004 a question; 24 LM calls, 2,640 tokens, $0.048 for all 12"
    assert notices() == [f"run: after 3 of 12 questions: {words}"]


def test_a_cap_that_is_too_low_is_said_as_soon_as_that_is_known(notices):
    caps = {"tokens": 2000, "lm_calls": 24}
    told = notices(caps=caps)
    assert told[1] == "run: that is more than the 2,000 tokens allowed: it will be stopped before its end"
    assert len(told) == 3
    first, *_ = notices(caps=caps, resume=True)  # before anything else is asked
    assert first.startswith("run: after 9 of 12 questions: about 2.0 LM calls")


def test_an_earlier_run_of_the_same_program_beside_it_projects_it_before_it_starts(notices, server, tmp_path):
    notices("runs/before")
    asked = len(server.calls)
    fresh = {"dataset": {"name": "sample", "limit": 24, "seed": 1}, "caps": {"lm_calls": 40}}
    told = []

    def on_notice(notice):
        told.append((len(server.calls) - asked, notice))

    notices("runs/after", on_notice=on_notice, **fresh)
    assert told[0][0] == 0
    assert told[0][1].startswith(f"after: as {tmp_path / 'runs' / 'before'}: about 2.0 LM calls")
    assert told[0][1].endswith("48 LM calls, 5,280 tokens for all 24")
    assert told[1] == (0, "after: that is more than the 40 LM calls allowed: it will be stopped before its end")
    other = notices("runs/other", programs=[{"program": "direct_lm", "options": {"answer_length": "phrase"}}])
    assert not any("as " in notice for notice in other)

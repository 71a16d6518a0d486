"""Every table of the papers is made, on small files of its data's real shape and by the smallest LM."""

import json
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.lm_server import lm_server
from tests.papers.data import variable, write_data
from tests.retrieval.berts import save_bert
from typedrag.core.records import Estimate
from typedrag.experiments import read_run
from typedrag.lms.cost import Spending
from typedrag.metrics import Scored, build_metric
from typedrag.papers.config import find_table, find_tables
from typedrag.papers.experiments import Results, build_experiments, required_variables
from typedrag.papers.table import Cell, _ranking, fill_table

FOLDER = Path(__file__).parents[2] / "configs" / "papers"
TABLES = find_tables(FOLDER)


@pytest.fixture(scope="session")
def places(tmp_path_factory, sample_index):
    return write_data(tmp_path_factory.mktemp("papers"), sample_index)


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"), labels=0)


@pytest.fixture(scope="module")
def stub():
    """One server for all tables: a program's second LM stays connected to it."""
    with lm_server() as served:
        yield served


@pytest.fixture
def make(places, bert, tmp_path, monkeypatch, stub):
    monkeypatch.setenv("TYPEDRAG_API_BASE", stub.api_base)
    monkeypatch.chdir(tmp_path)

    def run(table, *arguments, limit=3):
        for name in required_variables(build_experiments(table, {})):
            monkeypatch.setenv(name, variable(name, places))
        small = ["--set", f"metrics.bertscore.options.model={bert}"] if "bertscore" in str(table.values) else []
        given = ["--folder", str(FOLDER), "--limit", str(limit), "--no-tracking", *small, *map(str, arguments)]
        return invoke("research", "papers", "run", table.name, *given, catch_exceptions=False)

    return run


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_is_made_to_its_end_and_its_page_shows_all_cells(table, make):
    done = make(table)
    assert done.exit_code == 0, done.output
    page = (table.folder / f"{Path(table.name).name}.md").read_text()
    cells = _cells(table)
    assert len(cells) == len(table.config.rows) * len(table.config.columns)
    for row in table.config.rows:
        for column, published in zip(table.config.columns, row.published, strict=bool(row.published)):
            assert cells[row.name, column.name]["published"] == published
        assert f"| {row.name} |" in page
    for cell in cells.values():
        assert (cell["ours"] is None) == bool(cell["lacks"])
    lines, width = page.splitlines(), len(table.config.columns) + 2 + table.config.ranking
    assert all(line.count("|") == width for line in lines if line.startswith("| "))
    # a cell lacks a value because the table says so, or three questions are few, but not by a name that is wrong
    reasons = {c["lacks"] for c in cells.values()} - _DECLARED - {"", "no question of this group was drawn"}
    assert not reasons - _ALLOWED.get(table.name, set())
    assert any(c["ours"] for c in cells.values())


_ALLOWED = {
    "sub-question-coverage/table-3": {"there is no 'preference/held_out' of these answers"},  # weights take a hundred
    "sub-question-coverage/table-2": {  # nothing is left open: the smallest reply says that all is answered
        f"there is no 'coverage/{name}' of these answers" for name in ("frequency_correlation", "retrieval_potential")
    },
    "sub-question-coverage/table-4": {"nothing was compared"},  # a program with itself
}
_DECLARED = {
    where.lacks for t in TABLES for row in t.config.rows for column in t.config.columns
    if (where := t.config.cell(row, column)).lacks
}  # fmt: skip


def test_a_page_says_what_it_was_made_with_whatever_its_rows_are_called(make):
    table = find_table("typed-rag/table-3", FOLDER)
    done = make(table, "--variant", "llama-by-gpt", "--scorer", "vllm:stub")
    assert done.exit_code == 0, done.output
    page = (table.folder / "table-3.md").read_text()
    assert "- llama-by-gpt: n 3, LM vllm:stub, scorer vllm:stub, dataset wiki-nfqa" in page
    assert "- LLAMA_3B: `vllm:stub`" in page and "GPT_4O_MINI:" not in page  # the flag takes its place
    told = json.loads((table.folder / "table-3.json").read_text())
    assert told["experiments"]["llama-by-gpt"]["n"] == 3


def test_a_page_shows_no_password_of_an_lm_s_address(monkeypatch):
    table = find_table("typed-rag/table-3", FOLDER)
    for name in required_variables(build_experiments(table, {})):
        monkeypatch.setenv(name, "vllm:stub@http://me:secret@host/v1")
    experiments = build_experiments(table, {})
    results = dict.fromkeys(experiments, Results(0, lambda where: "nothing was asked"))
    made = fill_table(table, experiments, results, Spending())
    assert "vllm:stub@http://" in str(list(made.lines())) and "secret" not in f"{list(made.lines())}{made.to_dict()}"


def test_what_a_cell_shows_is_what_the_runs_hold(make):
    table = find_table("sub-question-coverage/table-2", FOLDER)
    assert make(table, limit=6).exit_code == 0
    cells = _cells(table)
    run = read_run(table.folder / "you-com")
    judged = [s for q in run.questions for s in q.metrics["coverage"].details["sub_questions"] if s["type"] == "core"]
    ours = cells["Metric #1 (core)", "You.com"]["ours"]
    assert ours["value"] == pytest.approx(100 * sum(s["answered"] for s in judged) / len(judged))
    assert ours["low"] is ours["high"] is None  # of six questions
    by_position = cells["Metric #6", "You.com"]["ours"]["value"]
    metric = build_metric("coverage", cite="similarity")
    scored = [Scored(r.score or 0, "", r.measures, r.details) for q in run.questions for r in q.metrics.values()]
    assert by_position == pytest.approx(100 * metric.over_all(scored)["position_alignment"])


def test_questions_are_grouped_by_the_number_of_their_sub_aspects(make, places):
    table = find_table("richrag/figure-7", FOLDER)
    assert make(table, "--variant", "wikipassageqa", limit=8).exit_code == 0
    ours = {row: cell["ours"] for (row, column), cell in _cells(table).items() if column == "WikiPassageQA R2"}
    lines = (Path(places["WIKIPASSAGEQA"]) / "WIKIPASSAGEQA_test.jsonl").read_text().splitlines()
    tested = [json.loads(line) for line in lines]
    assert len(tested) == 8
    for group, counts in (("narrow", {2}), ("middle", {3, 4}), ("broad", {5})):
        of_group = sum(len(row["subqs"]) in counts for row in tested)
        assert 0 < of_group == ours[f"{group}, RichRAG"]["n"]


def test_a_pool_has_as_many_passages_as_its_dataset_s(places):
    for name in ("table-1", "table-4", "figure-3", "figure-4", "figure-6", "figure-7", "figure-8"):
        table = find_table(f"richrag/{name}", FOLDER)
        for variant, settings in build_experiments(table, {}).items():
            pools = [p["options"].get("richrag", {}).get("pool_limit") for p in settings["programs"] if "options" in p]
            assert {pool for pool in pools if pool} == {{"wikipassageqa": 290, "wikiasp": 270}[variant]}, name


def test_rankers_may_rank_a_part_of_a_pool_and_name_only_the_first(make):
    table = find_table("richrag/figure-5", FOLDER)
    assert make(table, "--variant", "wikipassageqa", limit=2).exit_code == 0
    cells = {row: cell["ours"] for (row, column), cell in _cells(table).items() if column == "WikiPassageQA"}
    assert all(cells[f"{name}, {n} candidates"]["n"] == 2 for name in ("RichRAG", "LiT5") for n in (50, 250))
    assert cells["RichRAG, the first 2 of 150 candidates"]["value"] > 0


def test_golden_sub_aspects_are_searched_for_and_told(make):
    table = find_table("richrag/table-4", FOLDER)
    assert make(table, "--variant", "wikipassageqa", limit=1).exit_code == 0
    run = read_run(table.folder / "wikipassageqa" / "golden-richrag")
    [question] = run.questions
    named = next(step for step in question.answer.steps if step.name == "decompose")
    assert named.output.startswith("bread; dough") and named.usage.lm_calls == 0
    searched = [step.input for top in question.answer.steps for step in top.walk() if step.name == "query"]
    assert searched[0] == f"{question.question} bread"


def test_a_larger_limit_adds_to_what_is_there_and_pays_for_nothing_twice(make, stub):
    table = find_table("preqrag/table-1", FOLDER)
    assert make(table, limit=2).exit_code == 0
    first = len(stub.calls)
    assert make(table, limit=2).exit_code == 0
    assert len(stub.calls) == first
    done = make(table, limit=4)
    assert done.exit_code == 0
    assert len(stub.calls) > first
    of_rule = [c["ours"] for c in _cells(table).values() if c["column"] == "Rule Based"]
    assert sum(ours["n"] for ours in of_rule if ours) == 4


def test_a_table_is_estimated_from_three_questions_of_each_run_which_it_then_need_not_ask_again(
    make, stub, monkeypatch
):
    table, one = find_table("typed-rag/table-3", FOLDER), ("--variant", "llama-by-gpt")
    monkeypatch.setenv("TYPEDRAG_PRICES", "prices.yaml")
    Path("prices.yaml").write_text("vllm:stub: {prompt: 1, completion: 1}")
    before = len(stub.calls)
    done = make(table, "--estimate", *one, limit=30)
    asked = len(stub.calls) - before
    assert done.exit_code == 0, done.output
    assert f"30 questions, about {asked * 10} LM calls, " in done.output
    assert "$" in done.output
    assert not (table.folder / "table-3.md").exists()
    assert make(table, *one, limit=3).exit_code == 0
    assert len(stub.calls) == before + asked
    assert f"60 questions, about {asked * 20} LM calls" in make(table, "--estimate", *one, limit=60).output
    assert len(stub.calls) == before + asked
    assert "variant 'mistral-by-gpt' was left out" in Path("papers/typed-rag/table-3/table-3.md").read_text()


def test_what_stands_before_run_is_for_it_where_it_has_nothing_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no tables are
    for own, questions in ((), 8), (("--limit", "3"), 12):
        given = ["--folder", str(FOLDER), "--limit", "2", "run", "typed-rag/table-3", "--estimate", *own]
        done = invoke("research", "papers", *given)
        assert f"typed-rag/table-3: {questions} questions; --estimate asks three" in done.stderr
        assert "needs environment variables that are not set: " in done.stderr


@pytest.mark.parametrize(
    ("name", "flags", "refused"),
    [
        ("richrag/table-3", ("--max-cost", 0.5, "--scorer", "vllm:stub"), "--max-cost, --scorer"),
        ("typed-rag/table-2", ("--index", "here"), "--index"),
    ],
)
def test_a_flag_that_a_table_of_its_kind_does_not_take_is_refused_before_anything_is_asked(
    make, stub, name, flags, refused
):
    before, table = len(stub.calls), find_table(name, FOLDER)
    done = make(table, *flags)
    assert done.exit_code == 2
    assert f"{name} does not take {refused}" in done.stderr
    assert len(stub.calls) == before and not table.folder.exists()


def test_a_cap_holds_for_all_experiments_of_a_table_together(make, stub):
    table = find_table("typed-rag/table-3", FOLDER)
    before = len(stub.calls)
    assert make(table, "--max-lm-calls", 8, "--threads", 1, limit=3).exit_code == 0
    assert len(stub.calls) - before <= 10  # those under way still end
    reasons = {c["lacks"] for c in _cells(table).values()}
    assert "what may be spent was spent before it" in reasons


def test_the_list_tells_what_each_table_needs(monkeypatch):
    monkeypatch.setenv("WIKI_NFQA", "somewhere")
    done = invoke("research", "papers", "--folder", str(FOLDER), "--limit", "100", "--json")
    tables = {t["name"]: t for t in map(json.loads, done.stdout.splitlines())}
    assert len(tables) == len(TABLES) >= 30
    assert tables["typed-rag/table-3"]["needs"]["WIKI_NFQA"]["set"]
    assert tables["typed-rag/table-2"]["lm_calls"] == 0
    unknown = tables["typed-rag/table-3"]  # no run of it has asked anything yet
    assert (unknown["questions"], unknown["lm_calls"], unknown["hours"]) == (400, None, None)
    shown = invoke("research", "papers", "--folder", str(FOLDER))
    assert "WIKI_NFQA ✓" in shown.stdout
    assert "ADAPTIVE_RAG: the folder processed_data" in shown.stdout


def test_every_variable_is_told_by_its_table():
    for table in TABLES:
        assert set(required_variables(build_experiments(table, {}))) <= set(table.config.needs), table.name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("columns: [a]\nrows: [{name: r}]\ntitle: t", "it has not one of evaluation, rankers, dataset"),
        ("dataset: {}\ncolumns: [a]\nrows: [{name: r}]\ntitle: t", "row 'r', column 'a': no measure is named"),
        ("dataset: {}\ncolumns: [{name: a, measure: questions}]\nrows: [{name: r, variant: x}]\ntitle: t",
         "row 'r', column 'a': there is no variant 'x'"),
        ("dataset: {}\ncolumns: [{name: a, measure: questions}]\nrows: [{name: r, published: [1, 2]}]\ntitle: t",
         "row 'r' has 2 published values for 1 columns"),
        ("dataset: {name: file, path: '${NOWHERE}'}\ncolumns: [{name: a, measure: questions}]\nrows: [{name: r}]\n"
         "title: t\nneeds: {NOWHERE: your questions}", "variables that are not set: NOWHERE (your questions)"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_told_with_its_mend(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(text)
    done = invoke("research", "papers", "run", "own.yaml")
    assert done.exit_code == 2
    assert said in done.stderr
    refused = invoke("research", "papers", "run", "typed-rag/table-99", "--folder", str(FOLDER))
    assert "there is no table 'typed-rag/table-99'" in refused.stderr
    assert "typed-rag/table-3" in refused.stderr


def test_a_last_column_ranks_the_others_by_their_values_as_in_the_paper():
    rows = {"Metric #1 (core)": (42, 54, 49), "Metric #1 (background)": (20, 20, 14), "Metric #6": (None, 1, 2)}
    columns = ("You.com", "Perplexity AI", "Bing Chat")
    cells = [
        [Cell(row, c, None if v is None else Estimate(v, v, v, 9), None) for c, v in zip(columns, values, strict=True)]
        for row, values in rows.items()
    ]
    assert [_ranking(row) for row in cells] == [
        "Perplexity AI > Bing Chat > You.com",
        "You.com = Perplexity AI > Bing Chat",
        "Bing Chat > Perplexity AI",
    ]


def _cells(table):
    told = json.loads((table.folder / f"{Path(table.name).name}.json").read_text())
    return {(c["row"], c["column"]): c for c in told["cells"]}

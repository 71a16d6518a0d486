import re
from pathlib import Path

import dspy
import pytest
import yaml

from typedrag.core.errors import InputError, LMUnavailable
from typedrag.experiments.config import LMConfig
from typedrag.experiments.config_file import read_config, read_into, read_yaml
from typedrag.experiments.loading import program_source
from typedrag.experiments.resources import Resources, configured_options
from typedrag.lms.asking import ask
from typedrag.lms.lm import open_lm, use_lm
from typedrag.optimizers.compile import CompileConfig
from typedrag.optimizers.compile.resources import CompileResources
from typedrag.optimizers.sweep import SweepConfig

WHOLE = """
programs:
  - {name: direct, program: direct_lm}
  - name: published
    program: typed_rag
    as_published: true
    reranker: bi-encoder
    options: {top_k: 3, reason: {combine: pool}}
index: ${THE_INDEX}
lm: {spec: "vllm:m", temperature: 0.5}
scorer: {spec: embedded}
dataset: {name: file, path: "${THE_DATA}/x.jsonl", limit: 7, options: {fields: "a=b"}}
metrics: [rouge, {name: linkage, options: {draws: 2}}]
caps: {tokens: 1000, failures: 0.5}
tracking: {enabled: false}
"""
LEAST = {"programs": [{"program": "rag"}], "dataset": {"name": "sample"}, "metrics": ["rouge"]}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_INDEX", "/somewhere")
    monkeypatch.setenv("THE_DATA", "/data")
    (tmp_path / "config.yaml").write_text(WHOLE)
    return tmp_path / "config.yaml"


def test_a_file_says_all(file):
    config = read_config(file)
    assert [p.name for p in config.programs] == ["direct", "published"]
    assert config.programs[1].options == {"top_k": 3, "reason": {"combine": "pool"}}
    assert (config.index, config.dataset.path) == (Path("/somewhere"), Path("/data/x.jsonl"))
    assert config.lm.settings == {"temperature": 0.5, "cache": False}
    assert [(m.name, m.options) for m in config.metrics] == [("rouge", {}), ("linkage", {"draws": 2})]
    assert (config.caps.tokens, config.caps.failures, config.caps.cost) == (1000, 0.5, None)
    assert not config.tracking.enabled


def test_flags_have_the_last_word_and_what_is_none_says_nothing(file):
    flags = {
        "dataset": {"limit": 3, "path": None},
        "lm": {"spec": "embedded", "temperature": None},
        "metrics": ["f1"],
        "tracking": {"enabled": None, "uri": "sqlite:///x.db"},
        "index": None,
    }
    config = read_config(file, flags)
    assert (config.dataset.limit, config.dataset.path) == (3, Path("/data/x.jsonl"))
    assert (config.lm.spec, config.lm.temperature) == ("embedded", 0.5)
    assert [m.name for m in config.metrics] == ["f1"]
    assert (config.tracking.enabled, config.tracking.uri) == (False, "sqlite:///x.db")
    assert config.index == Path("/somewhere")


def test_a_file_may_extend_another(file):
    (file.parent / "sub").mkdir()
    above = file.parent / "sub" / "above.yaml"
    above.write_text("""
extends: ../config.yaml
programs: {published: {options: {top_k: 9}}}
index: elsewhere
dataset: {limit: 3}
metrics: {linkage: {options: {draws: 4}}}
""")
    config = read_config(above)
    assert [p.name for p in config.programs] == ["direct", "published"]
    assert config.programs[1].options == {"top_k": 9, "reason": {"combine": "pool"}}
    assert (config.index, config.dataset.limit, config.dataset.path) == (Path("elsewhere"), 3, Path("/data/x.jsonl"))
    assert [m.options for m in config.metrics] == [{}, {"draws": 4}]
    above.write_text("extends: ../config.yaml\ndataset: {name: sample}\nmetrics: [f1]")
    config = read_config(above)
    assert (config.dataset.path, config.dataset.limit, [m.name for m in config.metrics]) == (None, 7, ["f1"])


@pytest.mark.parametrize(
    ("base", "text", "said"),
    [
        ("above.yaml", "", "extends above.yaml: these files extend one another. Take extends out of one of them"),
        (
            "absent.yaml",
            "",
            "(No such file or directory). Correct the file that above.yaml extends",
        ),
        ("[a, b]", "", "above.yaml: extends names no file. Write extends: FILE.yaml"),
        ("config.yaml", "programs: {third: {options: {}}}", "there is no 'third'. There are: direct, published"),
    ],
)
def test_what_is_extended_wrongly_is_told(file, monkeypatch, base, text, said):
    monkeypatch.chdir(file.parent)
    Path("above.yaml").write_text(f"extends: {base}\n{text}")
    with pytest.raises(InputError) as error:
        read_config(Path("above.yaml"))
    assert said in str(error.value)


def test_settings_of_what_a_file_names_are_not_taken_for_what_a_flag_names_in_its_place(file):
    dataset = read_config(file, {"dataset": {"name": "sample", "path": None}}).dataset
    assert (dataset.name, dataset.path, dataset.options, dataset.limit) == ("sample", None, {}, 7)
    for lm in ("lm", "scorer"):
        text = file.read_text().replace("{spec: embedded}", '{spec: "vllm:m", api_base: "http://here/v1"}')
        file.write_text(text.replace("temperature: 0.5}", 'temperature: 0.5, api_base: "http://here/v1"}'))
        other = getattr(read_config(file, {lm: {"spec": "openai/gpt"}}), lm)
        assert (other.spec, other.api_base) == ("openai/gpt", None)  # a key is not sent to another's server
        assert getattr(read_config(file, {lm: {"spec": "vllm:m"}}), lm).api_base == "http://here/v1"
    same = read_config(file, {"dataset": {"name": "file"}}).dataset
    assert (same.path, same.options) == (Path("/data/x.jsonl"), {"fields": "a=b"})


@pytest.mark.parametrize("spec", ["vllm:m@http://old/v1", "${THE_LM}", "vllm:m@${OLD}"])
def test_an_address_above_takes_the_place_of_that_in_the_spec_below(file, monkeypatch, spec):
    monkeypatch.setenv("THE_LM", "vllm:m@http://old/v1")
    monkeypatch.setenv("OLD", "http://old/v1")
    file.write_text(file.read_text().replace("vllm:m", spec))
    assert (read_config(file).lm.spec, read_config(file).lm.api_base) == ("vllm:m", "http://old/v1")
    new = {"lm": {"api_base": "http://new/v1"}}
    for config in (read_config(file, new), read_config(file, None, ["lm.api_base=http://new/v1"])):
        assert (config.lm.spec, config.lm.api_base, config.lm.temperature) == ("vllm:m", "http://new/v1", 0.5)
    again = read_config(file, new, ["lm.spec=vllm:n@http://newer/v1"]).lm
    assert (again.spec, again.api_base) == ("vllm:n", "http://newer/v1")


def test_a_program_s_name_is_enough(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("programs: [rag, typed_rag]\ndataset: {name: sample}\nmetrics: [rouge]\n")
    assert [(p.program, p.name) for p in read_config(file).programs] == [("rag", "rag"), ("typed_rag", "typed_rag")]
    [changed, _] = read_config(file, None, ["programs.rag.options.top_k=3"]).programs
    assert changed.options == {"top_k": 3}
    file.write_text("program: rag\nknobs: {top_k: [1, 3]}\nobjectives: [rouge/rouge1]\nmetrics: [rouge]\n")
    sweep = read_into(SweepConfig, "sweep", file, None, ["program.options.top_k=3", "dataset.name=sample"])
    assert (sweep.program.program, sweep.program.options) == ("rag", {"top_k": 3})


def test_all_faults_of_a_file_are_named_at_once():
    wrong = {**LEAST, "threads": 0, "lm": {"temprature": 1}, "dataset": {"limit": 3}}
    with pytest.raises(InputError) as refused:
        read_config(None, wrong)
    assert "lm.temprature is no setting" in refused.value.problem
    assert "threads is refused: Input should be greater than 0" in refused.value.problem
    assert "dataset.name is missing" in refused.value.problem
    assert refused.value.hint.startswith("Did you mean 'temperature'? There are: ")


def test_a_variable_that_is_not_set_is_named_where_it_counts(file, monkeypatch):
    monkeypatch.delenv("THE_DATA")
    with pytest.raises(InputError, match="needs the environment variable THE_DATA"):
        read_config(file)
    assert read_config(file, {"dataset": {"path": Path("/mine")}}).dataset.path == Path("/mine")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"prorgams": []}, "prorgams is no setting. Did you mean 'programs'\\? "),
        ({"programs": [{"program": "rag", "topk": 3}]}, "programs.0.topk is no setting. There are"),
        ({"programs": []}, "programs is refused"),
        ({"dataset": {"limit": 0, "name": "sample"}}, "dataset.limit is refused"),
        ({"dataset": {"seed": 1}}, "dataset.name is missing"),
        ({"metrics": ["f1", {"name": "f1"}]}, "a metric is named twice"),
        ({"metrics": None}, "metrics is missing"),
        ({"caps": {"failures": 2}}, "caps.failures is refused"),
        ({"lm": {"api_key": "sk-123"}}, "lm.api_key is no setting"),
        ({"programs": [{"program": "rag", "name": "a/b"}]}, "programs.0.name is refused"),
        ({"programs": [{"program": "rag", "name": "a"}, {"program": "rag"}]}, "needs a name of its own"),
        ({"programs": [{"program": "rag", "name": "a"}, {"program": "rag", "name": "a"}]}, "needs a name of its own"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(values, problem):
    with pytest.raises(InputError, match=problem) as refused:
        read_config(None, {**LEAST, **values})
    assert "sk-123" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "is not YAML"),
        ("- a", "holds no settings"),
        ("", "holds no settings"),
        ("index: 'a $ b'", "names no variable"),
        (b"\xff\xfe", "is not YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, problem):
    file = tmp_path / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=f"{file.name}.*{problem}"):
        read_config(file, LEAST)
    with pytest.raises(InputError, match=r"absent\.yaml cannot be read"):
        read_config(tmp_path / "absent.yaml")


def test_a_dollar_can_be_written(tmp_path):
    (tmp_path / "config.yaml").write_text("replies: a$$b")
    assert read_config(tmp_path / "config.yaml", LEAST).replies == Path("a$b")


@pytest.mark.parametrize(
    ("scorer", "named", "address"),
    [
        ("vllm:judges", None, "http://answers/v1"),
        ("vllm:judges", "http://judges/v1", "http://judges/v1"),
        (None, None, "http://answers/v1"),
        ("openai/gpt-4o-mini", None, None),  # neither its key nor the questions go to a server that was not meant
        ("embedded", None, None),
    ],
)
def test_other_lms_are_asked_at_the_server_of_the_first_unless_another_is_named(monkeypatch, scorer, named, address):
    monkeypatch.setenv("TYPEDRAG_LM", "vllm:default")
    lm = LMConfig(spec="vllm:answers", api_base="http://answers/v1")
    assert LMConfig(spec=scorer, api_base=named).inherit_address(lm).api_base == address


def test_what_cannot_be_used_says_which_lm_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("TYPEDRAG_API_BASE", raising=False)
    nobody = "http://127.0.0.1:9/v1"
    lm = {"spec": "openai/answers", "api_base": nobody}
    values = {"programs": [{"program": "direct_lm"}], "dataset": {"name": "sample"}, "metrics": ["linkage"], "lm": lm}
    config = read_config(None, {**values, "scorer": {"spec": "vllm:judges"}})
    with pytest.raises(LMUnavailable, match=rf"^scorer: no vLLM server answers at {nobody} .*--scorer-api-base URL"):
        _ = Resources(config, tmp_path / "judgments.sqlite").scorer
    compiled = CompileConfig(
        optimizer={"name": "dspy:COPRO"}, dataset={"name": "sample"}, lm=lm, teacher_lm={"spec": "vllm:teaches"}
    )
    with pytest.raises(LMUnavailable, match=rf"^teacher LM: no vLLM server answers at {nobody} .*--teacher-api-base"):
        _ = CompileResources(compiled, tmp_path).lms
    scorer = open_lm("openai/judges", api_base=nobody, api_key="none", role="scorer", num_retries=0)
    with use_lm(scorer.copy()), pytest.raises(LMUnavailable, match=r"^scorer 'openai/judges' cannot be used"):
        ask("answer", dspy.Predict("question -> answer"), retries=0, question="Why?")


CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
OWN_WAY = {"hanrag": 0.0}
"""Programs that set the cutoff themselves."""


@pytest.mark.parametrize("file", [f for f in CONFIGS if "programs" in read_yaml(f)], ids=lambda f: f.stem)
def test_programs_that_are_compared_pass_over_passages_alike(file, monkeypatch):
    """What is not reranked is cut off by its score: at the same share, or a baseline has fewer passages."""
    for variable in re.findall(r"\$\{(\w+)\}", str(read_yaml(file))):
        monkeypatch.setenv(variable, "somewhere")
    cutoffs, passages = {}, {}
    for wanted in read_config(file).programs:
        source = program_source(wanted.program)
        options = configured_options(wanted, source)
        if not source.retrieves:
            continue
        if wanted.program not in ("hanrag", "preqrag"):  # which have numbers of their own
            passages[wanted.name] = options.answer_passages, options.passage_words
        if not (wanted.reranker and options.rerank_everywhere):
            cutoffs[wanted.name] = OWN_WAY.get(wanted.program, options.score_cutoff)
    assert len(set(cutoffs.values())) <= 1, cutoffs
    assert len(set(passages.values())) <= 1, passages


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("programs.published.options.reason.combine=concat", lambda c: c.programs[1].options["reason"]["combine"]),
        ("programs.1.options.reason.combine=concat", lambda c: c.programs[1].options["reason"]["combine"]),
        ("lm.max_tokens=256", lambda c: c.lm.max_tokens),
        ("metrics.rouge.options.stem=false", lambda c: c.metrics[0].options["stem"]),
        ("dataset.path=null", lambda c: c.dataset.path),
        ("scorer.temperature=0.5", lambda c: c.scorer.temperature),
        ("metrics=[f1]", lambda c: [m.name for m in c.metrics]),
    ],
)
def test_any_field_is_set_by_its_path_over_file_and_flags(file, setting, given):
    config = read_config(file, {"lm": {"max_tokens": 5}}, [setting])
    assert given(config) == yaml.safe_load(setting.partition("=")[2])
    before = read_config(file, {"lm": {"max_tokens": 5}})
    assert given(before) != given(config) if "stem" not in setting else before.metrics[0].options == {}
    assert before.programs[0] == config.programs[0] and before.index == config.index


def test_a_name_with_dots_is_an_item_and_a_key():
    values = {**LEAST, "programs": [{"program": "rag", "name": name} for name in ("a", "a.b")]}
    programs = read_config(None, values, ["programs.a.b.options.top_k=3"]).programs
    assert [p.options for p in programs] == [{}, {"top_k": 3}]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "lm.max_token=3",
            r"lm\.max_token is no setting\. Did you mean 'max_tokens'\? There are: spec, api_base, ",
        ),
        ("programs.published.topk=3", r"programs\.1\.topk is no setting\. There are: program, name, as_published"),
        ("thread=3", r"thread is no setting\. Did you mean 'threads'\? There are: .*programs, dataset"),
        ("programs.rag.name=x", r"--set 'programs\.rag\.name=x': there is no 'rag'\. There are: direct, published"),
        ("threads.x.y=3", r"threads is a value already"),
        ("threads", r"--set 'threads' sets nothing"),
        ("a..b=1", r"sets nothing"),
        ("threads=many", r"threads is refused"),
    ],
)
def test_a_wrong_path_is_refused_with_the_names_that_there_are(file, setting, said):
    with pytest.raises(InputError, match=said):
        read_config(file, {"threads": 2}, [setting])


def test_what_is_set_names_no_variable(file):
    assert read_config(file, None, ["replies=a$b"]).replies == Path("a$b")

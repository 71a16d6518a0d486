import json
import pickle
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import MethodType

import dspy
import pytest
from dspy.lm15 import Request, Response
from hypothesis import given, settings

from tests.programs.compiling import OPTIONS, PROGRAMS, Spy, compiled_programs
from tests.scripted import ScriptedEngine
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Estimate
from typedrag.lms.adapter import SchemaAdapter
from typedrag.programs import RAG, Options, program_class
from typedrag.programs.artifact import dump_state, named_predictors
from typedrag.programs.compiled import Change, Compiled, CompiledAbout, build_without_index, save_compiled

REASON = "strategies['reason'].decomposer"
QUESTION = "Why does homemade bread turn out dense and heavy?"
QUESTIONS = (
    QUESTION,
    "How do I paint the walls of a room?",
    "Should schools require pupils to wear a uniform?",
    "What is the difference between nuclear power and wind power?",
)
ABOUT = CompiledAbout(
    metric="linkage=1,coverage=0.5",
    optimizer="gepa",
    optimizer_options={"auto": "light", "candidates": [1, 2.5, None]},
    budget="light",
    modules=("aggregator",),
    dataset="antique",
    dataset_fingerprint="0123456789abcdef",
    base={"linkage/mrr": Estimate(0.5, 0.4, 0.6, 100)},
    compiled={"linkage/mrr": Estimate(0.6, 0.5, 0.7, 100)},
    differences={"linkage/mrr": Change(0.1, 0.05, 0.15, 100, p=0.005)},
    verdict="better",
    p=0.01,
    tests=2,
    lms={"task": {"spec": "embedded", "temperature": 0.0, "max_tokens": 512}},
    created="2026-11-21T12:00:00+00:00",
)


class Recording(ScriptedEngine):
    """Remembers all of a request: messages, schema, settings."""

    def __init__(self) -> None:
        super().__init__({})
        self.requests: list[str] = []

    def complete(self, request: Request) -> Response:
        self.requests.append(repr(request))
        return super().complete(request)


def requests(program: dspy.Module, questions: tuple[str, ...] = QUESTIONS) -> list[str]:
    engine = Recording()
    with dspy.context(lm=dspy.LM("scripted/lm", engine=engine, num_retries=0, cache=False), adapter=SchemaAdapter()):
        for question in questions:
            program(question=question)
    return sorted(engine.requests)  # those that are sent at once come in any order


def compiled(name: str = "typed_rag", options: Options | None = None) -> dspy.Module:
    """With longer instructions, which the scripted LM knows by their beginning, and demonstrations."""
    program = program_class(name)(Spy(), options=options)
    for predictor in named_predictors(program).values():
        predictor.signature = predictor.signature.with_instructions(predictor.signature.instructions + "\n\nBe brief.")
        predictor.config = {"temperature": 0.5}
    return program


def edit(folder: Path, part: str, **changes: object) -> None:
    data = json.loads((folder / part).read_text())
    (folder / part).write_text(json.dumps(data | changes))


@pytest.fixture
def folder(tmp_path):
    """A compiled typed_rag."""
    save_compiled(compiled(), tmp_path / "compiled", ABOUT)
    return tmp_path / "compiled"


def test_the_program_may_be_spelled_with_hyphens(folder):
    edit(folder, "program.json", program="typed-rag")
    assert Compiled.read(folder).program == "typed_rag"


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        Compiled.read(folder).build(Spy())
    line = str(error.value)
    assert "\n" not in line
    assert line.isprintable()
    assert str(folder) in line
    assert len(line) < 600
    return line


# what comes back


@settings(max_examples=8)
@given(compiled_programs())
def test_every_program_with_any_options_comes_back_as_it_was(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("compiled") / "c"
    save_compiled(program, folder)
    loaded = Compiled.read(folder).build(Spy())
    assert type(loaded) is type(program)
    assert loaded.options == program.options
    assert dump_state(loaded) == dump_state(program)
    assert Compiled.read(folder).state == dump_state(program)


@pytest.mark.parametrize(
    ("name", "options"),
    [*(("typed_rag", options) for options in OPTIONS), *((name, OPTIONS[2]) for name in PROGRAMS[1:])],
)
def test_a_loaded_program_sends_the_very_requests_and_answers_alike(tmp_path, name, options):
    program = compiled(name, replace_threads(options))
    save_compiled(program, tmp_path / "c")
    loaded = Compiled.read(tmp_path / "c").build(Spy())
    sent = requests(program)
    assert sent == requests(loaded)
    assert "Be brief." in sent[0]
    assert sent != requests(type(program)(Spy(), options=program.options))


def replace_threads(options: Options) -> Options:
    return options.model_copy(update={"threads": 1}).as_defaults()  # so that requests come in a fixed order


def test_a_program_that_was_bootstrapped_is_saved_whole(tmp_path):
    """BootstrapFewShot freezes what it gives, which DSPy then leaves out of a program that holds it."""
    program = compiled()
    engine = Recording()
    with dspy.context(lm=dspy.LM("scripted/lm", engine=engine, cache=False), adapter=SchemaAdapter()):
        optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=1, max_labeled_demos=0)
        strategy = program.strategies["reason"]
        example = dspy.Example(question=QUESTION).with_inputs("question")
        program.strategies["reason"] = optimizer.compile(strategy, trainset=[example])
    assert REASON not in dict(program.named_predictors())
    save_compiled(program, tmp_path / "c")
    loaded = Compiled.read(tmp_path / "c").build(Spy())
    before, after = named_predictors(program), named_predictors(loaded)
    assert before[REASON].demos and len(after[REASON].demos) == len(before[REASON].demos)
    assert dump_state(loaded) == dump_state(program)
    assert requests(loaded) == requests(program)


# what is not saved


def test_no_key_and_no_address_lands_in_any_file(tmp_path):
    key, address, header = "sk-planted-0123456789", "http://planted.example:8080/v1", "planted-header"
    program = compiled()
    lm = {"api_key": key, "api_base": address, "extra_headers": {"Authorization": header}}
    for predictor in named_predictors(program).values():
        predictor.lm = dspy.LM("openai/gpt", **lm)
        predictor.config = {"temperature": 0.1, **lm}
    said = f"Ask at {address} with {key}."
    program.answer_without_passages.signature = program.answer_without_passages.signature.with_instructions(said)
    about = replace(
        ABOUT,
        lms={"task": {"spec": "openai/gpt", "temperature": 0.1, **lm}, "prompt": lm},
        optimizer_options={"teacher": {"model": "x", **lm}, "many": [{"depth": 2, **lm}]},
    )
    save_compiled(
        program, tmp_path / "c", about, redact=lambda t: t.replace(key, "[hidden]").replace(address, "[hidden]")
    )
    written = b"".join(p.read_bytes() for p in (tmp_path / "c").rglob("*") if p.is_file())
    for secret in (key, address, header, "planted"):
        assert secret.encode() not in written
    read = Compiled.read(tmp_path / "c")
    assert read.about.lms == {"task": {"spec": "openai/gpt", "temperature": 0.1}, "prompt": {}}
    assert read.about.optimizer_options == {"teacher": {"model": "x"}, "many": [{"depth": 2}]}
    assert read.state["answer_without_passages"].signature.instructions == "Ask at [hidden] with [hidden]."


def test_what_could_not_be_loaded_again_is_not_saved(tmp_path):
    out = tmp_path / "c"
    program = compiled()
    program.extra = dspy.Predict("question -> answer")
    with pytest.raises(InputError, match="a newly built one lacks the predictor 'extra'"):
        save_compiled(program, out)
    del program.extra
    program.strategies["reason"].forward = MethodType(lambda self, **_: None, program.strategies["reason"])
    with pytest.raises(InputError, match="has put its own forward in the place"):
        save_compiled(program, out)
    with pytest.raises(InputError, match="is no program that can be loaded again"):
        save_compiled(dspy.Predict("question -> answer"), out)

    class Other(RAG):
        pass

    with pytest.raises(InputError, match="'rag' is no program that can be loaded again"):
        save_compiled(Other(Spy()), out)
    assert not out.exists()


# what is refused


def test_what_is_no_compiled_program_is_refused(tmp_path):
    assert "is no compiled program" in refused(tmp_path / "none")
    assert "is no compiled program" in refused(tmp_path)
    file = tmp_path / "file.json"
    file.write_text("{}")
    assert "is no compiled program" in refused(file)
    for text in ("[]", "3", '{"format": "new", "program": "rag"}', '{"format": 1}', "null"):
        (tmp_path / "program.json").write_text(text)
        assert "is no compiled program. Name a folder" in refused(tmp_path)
    (tmp_path / "program.json").write_text("once upon a time")
    assert "program.json is not JSON" in refused(tmp_path)


@pytest.mark.parametrize("part", ["state.json", "signatures.json"])
def test_a_part_that_is_missing_or_torn_is_named(folder, part):
    text = (folder / part).read_text()
    (folder / part).write_text(text[: len(text) // 2])
    assert f"{part} is not JSON" in refused(folder)
    (folder / part).write_text("[]")
    assert f"{part} is not as typedrag writes it" in refused(folder)
    (folder / part).unlink()
    assert f"lacks its part {part}" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2, "new": "thing"}, "is a compiled program of format 2; this typedrag reads 1. Update typedrag"),
        ({"format": 0}, "is a compiled program of format 0; this typedrag reads 1. Compile it again"),
        ({"format": 10**300}, "this typedrag reads 1. Update typedrag"),
        (
            {"program": "typed_rag_2"},
            "from a program 'typed_rag_2', which there is not. Did you mean 'typed_rag'? Programs: adaptive_rag",
        ),
        ({"program": "../../etc/passwd"}, "was compiled from a program '../../etc/passwd', which there is not"),
        ({"program": "a\x1b[31m\nb"}, "program.json is not as typedrag writes it, at 'program'"),
        ({"options": {"topk": 3}}, "was compiled with option 'topk', which there is not"),
        ({"options": {"reason": {"merge": 3}}}, "with option 'reason.merge', which there is not"),
        ({"options": {"top_k": 0}}, "with option 'top_k', which cannot be as it was: Input should be greater than 0"),
        ({"options": []}, "program.json is not as typedrag writes it, at 'options'"),
        ({"about": {"best": 1}}, "program.json is not as typedrag writes it, at 'about.best'"),
        ({"__class__": "os.system"}, "program.json is not as typedrag writes it, at '__class__'"),
        ({"reranker": "a\nb"}, "program.json is not as typedrag writes it, at 'reranker'"),
        ({"options": {"type_classifier": "lm"}}, "it lacks the predictor 'classifier.classify', which the program has"),
        (
            {"options": {"reason": {"combine": "aggregate", "search": "joined"}}},
            "the program no longer has its predictor",
        ),
        ({"program": "rag"}, "the program no longer has its predictor \"strategies['evidence-based']"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(folder, changes, said):
    edit(folder, "program.json", **changes)
    assert said in refused(folder)


def test_a_signature_that_has_changed_since_is_named_with_what_changed(folder):
    fields = json.loads((folder / "signatures.json").read_text())[REASON]
    question, sub_queries = fields
    for said, before in {
        "its fields were question and are question, sub_queries": {question: fields[question]},
        "its fields were sub_queries, question and are": {n: fields[n] for n in (sub_queries, question)},
        "the type of sub_queries is another": {**fields, sub_queries: "output 0123456789abcdef"},
    }.items():
        edit(folder, "signatures.json", **{REASON: before})
        line = refused(folder)
        assert f'the signature of predictor "{REASON}" has changed since: {said}' in line
        assert line.endswith("Compile it again")
    versions = json.loads((folder / "program.json").read_text())["versions"]
    edit(folder, "program.json", versions={**versions, "typedrag": "0.0.9"})
    assert refused(folder).endswith("Compile it again, or use typedrag 0.0.9")


@pytest.mark.parametrize(
    "change",
    [
        {"forward": "os.system"},
        {"__class__": "x"},
        {"lm": {"model": "x", "api_base": "http://evil"}},
        {"config": {"api_base": "http://evil"}},
        {"config": {"temperature": "hot"}},
        {"callbacks": ["x"]},
        {"signature": {"instructions": 3, "fields": []}},
        {"demos": ["x"]},
        {"demos": [[1]]},
    ],
)
def test_a_state_can_hold_nothing_but_texts_and_values(folder, change):
    state = json.loads((folder / "state.json").read_text())
    edit(folder, "state.json", **{REASON: state[REASON] | change})
    assert "state.json is not as typedrag writes it" in refused(folder)


def test_other_versions_are_told_and_no_reason_to_refuse(folder, caplog):
    edit(folder, "program.json", versions={"python": "3.12.1", "typedrag": "0.1.0", "dspy": "3.4.0", "other": "1"})
    program = Compiled.read(folder).build(Spy())
    assert requests(program) == requests(compiled())
    [notice] = [r.getMessage() for r in caplog.records if r.name.startswith("typedrag")]
    assert notice == f"{folder} was compiled with dspy 3.4.0, here is {version('dspy')}"


def test_without_an_index_it_can_be_checked_and_not_asked(folder):
    read = Compiled.read(folder)
    read.without_index()
    with pytest.raises(InputError, match="needs a retriever"):
        read.build()
    with pytest.raises(InputError, match=r"lacks the predictor 'classifier\.classify'"):
        read.without_index(Options(type_classifier="lm"))
    assert read.build(Spy(), options=Options(top_k=2)).options.top_k == 2
    with pytest.raises(RetrievalError, match="without an index"):
        requests(build_without_index("rag"))


def test_a_pickle_is_no_part_of_anything(folder):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    (folder / "program.pkl").write_bytes(pickle.dumps(Bomb()))
    Compiled.read(folder).build(Spy())
    (folder / "state.json").write_bytes(pickle.dumps(Bomb()))
    assert "state.json is not JSON" in refused(folder)


@pytest.mark.parametrize("part", [None, "program.json", "state.json", "signatures.json"])
def test_only_compiled_programs_are_replaced(folder, part):
    if part:
        (folder / part).write_bytes(b"{" if part != "program.json" else (folder / part).read_bytes())
    save_compiled(compiled("rag"), folder)
    assert Compiled.read(folder).program == "rag"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else than a compiled program"):
        save_compiled(compiled("rag"), folder)

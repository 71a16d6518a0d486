"""Every option is also an environment variable."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from tests.commands import invoke
from typedrag.cli.main import cli

DEFAULTS = {f"TYPEDRAG_{name}" for name in ("LM", "INDEX", "API_BASE", "API_KEY", "CACHE", "MODELS", "ENCODER")}
"""Variables that are no option of one command."""


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def options() -> list[tuple[tuple[str, ...], click.Option]]:
    return [
        (path, option)
        for path, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and not option.is_eager  # which only show something
    ]


def variable(option: click.Option) -> str:
    """The first, if former names of the option have variables too."""
    return option.envvar if isinstance(option.envvar, str) else option.envvar[0]


def fitting(option: click.Option, folder: Path) -> str:
    """A text that the option takes."""
    if isinstance(option.type, click.Choice):
        return next(iter(option.type.choices))
    if isinstance(option.type, click.Path):
        return str(folder if option.type.dir_okay else folder / "file")
    if isinstance(option.type, click.FloatRange) and option.type.max_open:
        return str(option.type.max / 2)
    return "2" if isinstance(option.type, click.IntRange) else "1"


def test_every_option_has_a_variable_of_its_own_named_after_its_command_and_its_flag():
    named = {}
    for path, option in options():
        flag = next(name for name in option.opts if name.startswith("--")).removeprefix("--").replace("-", "_")
        below = [word for word in path if word != "research"]
        assert variable(option) == "_".join(["TYPEDRAG", *below, flag]).replace("-", "_").upper()
        assert named.setdefault(variable(option), path) == path
    assert len(named) == len(options()) > 200
    assert not DEFAULTS & named.keys()


def test_every_option_is_read_from_its_variable(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    kinds = set()
    for _, option in options():
        text = fitting(option, tmp_path)
        monkeypatch.setenv(variable(option), text)
        context = click.Context(click.Command("one", params=[option]))
        given, source = option.consume_value(context, {})
        monkeypatch.delenv(variable(option))
        assert source is ParameterSource.ENVIRONMENT, option.envvar
        wanted = True if option.is_flag else option.type(text)
        assert option.type_cast_value(context, given) == ((wanted,) if option.multiple else wanted), option.envvar
        kinds.add("multiple" if option.multiple else "flag" if option.is_flag else type(option.type).__name__)
    assert {"flag", "multiple", "Choice", "Path", "IntRange", "FloatRange", "StringParamType"} <= kinds


@pytest.fixture
def run(monkeypatch, tmp_path):
    def run(arguments: str, **variables: str):
        for name, value in variables.items():
            monkeypatch.setenv(f"TYPEDRAG_{name}", value.format(tmp=tmp_path))
        return invoke(*arguments.split())

    return run


def test_what_the_environment_gives_a_flag_overrides_and_a_file_does_not(run, tmp_path):
    (tmp_path / "a.yaml").write_text(
        "programs: [{program: direct_lm}]\ndataset: {name: sample, limit: 1}\nmetrics: [similarity]\n"
    )
    given = {"EVALUATE_CONFIG": "{tmp}/a.yaml", "EVALUATE_OUT": "{tmp}/out", "EVALUATE_TRACKING": "0"}
    done = run("evaluate", **given, EVALUATE_METRIC="nosuch")
    assert done.exit_code == 2 and "'nosuch'" in done.stderr
    done = run("evaluate --metric other")
    assert done.exit_code == 2 and "'other'" in done.stderr


def test_the_help_names_the_form_of_a_variable_and_those_that_are_set(run):
    assert "TYPEDRAG_ASK_TOP_K" not in run("ask --help").stdout
    assert "TYPEDRAG_ASK_PROGRAM" in run("ask --help").stdout
    assert "env var: TYPEDRAG_ASK_TOP_K" in " ".join(run("ask --help", ASK_TOP_K="x").stdout.split())
    refused = run("ask Why?")
    assert refused.exit_code == 2 and "TYPEDRAG_ASK_TOP_K" in refused.stderr


def test_a_variable_of_a_version_is_no_option(run):
    assert run("", VERSION="1.2", HELP="1").stdout.startswith("typedrag answers")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("evaluate --config {a} --out {out} --set programs.b.topk=3", "programs.1.topk is no setting"),
        ("evaluate --config {a} --out {out} --set programs.c.options.top_k=3", "There are: a, b"),
        ("compile --config {a} --out {out} --set lm.spce=x", "There are: spec, api_base"),
        (
            "ranker train --out {out} --set epoch=2 --data {a} --start scratch",
            "no setting. Did you mean 'epochs'?",
        ),
        ("ranker train --out {out} --set lm.spce=x --data {a} --start scratch", "There are: spec, api_base"),
        ("revelator train {a} --base x --out {out} --set warm=1", "There are: epochs"),
        ("sweep {a} --out {out} --set lm.spce=x", "There are: spec, api_base"),
    ],
)
def test_a_wrong_path_is_refused_with_what_there_is_wherever_a_file_is_taken(run, tmp_path, arguments, said):
    programs = "programs: [{program: rag, name: a}, {program: rag, name: b}]\nmetrics: [rouge]\n"
    if arguments.startswith("evaluate"):
        text = f"{programs}dataset: {{name: sample}}\n"
    elif arguments.startswith("sweep"):
        text = "program: {program: rag}\nknobs: {top_k: [1]}\nobjectives: [rouge/rougeL]\ndataset: {name: sample}\n"
    else:
        text = "optimizer: {name: gepa}\ndataset: {name: sample}\n"
    (tmp_path / "a.yaml").write_text(text)
    done = run(arguments.format(a=tmp_path / "a.yaml", out=tmp_path / "out"))
    assert done.exit_code == 2 and said in done.stderr, done.output
    assert not (tmp_path / "out").exists()

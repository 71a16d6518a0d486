"""The command `typedrag`: the table of its commands, and the handling of signals."""

import io
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import click

from typedrag import __version__
from typedrag.cli.options import Commands, Table, read_environment
from typedrag.cli.terminal import ExitCode, echo, log_to_stderr, report_errors
from typedrag.core.proxies import bypass_proxies

COMMANDS: Table = {
    "Answer": {
        "ask": ("ask", "Answer a question, or a file of them."),
        "index": ("index", "Build, search and serve an index of documents."),
    },
    "Measure": {
        "evaluate": ("evaluate", "Answer the questions of a dataset and measure the answers."),
        "label": ("label", "Grade the answers of runs, not knowing whose they are."),
        "compare": ("compare", "Compare runs with a baseline, with intervals and paired tests."),
        "report": ("compare:report", "Write runs as one HTML page."),
    },
    "Improve": {
        "compile": ("compile", "Compile a program, and test it on questions it was not compiled on."),
        "sweep": ("sweep", "Search the settings of a program with Optuna."),
    },
    "Serve": {
        "serve": ("serve", "Serve programs over HTTP."),
        "mcp": ("serve:mcp", "Answer an agent over the Model Context Protocol."),
        "keys": ("serve:keys", "Manage the API keys of a server."),
        "registry": ("registry", "List and promote compiled programs registered in MLflow."),
    },
    "Manage": {
        "datasets": ("datasets", "List, show, check, fetch and build datasets."),
        "models": ("doctor:models", "List and fetch small models."),
        "doctor": ("doctor", "Check LMs, Java, models and index."),
        "research": ("main:research", "Make the papers' tables, check judges, train rankers, compare programs."),
    },
}
RESEARCH: Table = {
    "Commands": {
        "papers": ("papers", "Make the tables of the papers, beside what was published."),
        "judges": ("judges", "Check judges against people's labels, and let a judge compare runs."),
        "ranker": ("ranker", "Train a list ranker (RichRAG), and measure rankers on pools of passages."),
        "revelator": ("revelator", "Train and measure the revelator of program hanrag."),
        "cost": ("research:cost", "Add up what runs have spent."),
        "diff": ("research:diff", "Show what changed from one program to another."),
    },
}

WELCOME = """\
typedrag answers questions such as "why…", "how do I…", "which is better…" from your documents.

A first answer, with an LM that runs on this machine and a small sample of documents:

  typedrag models fetch qwen2.5-coder-1.5b      once, 1.1 GB
  typedrag ask "Why does homemade bread turn out dense and heavy?" --trace

From your own documents:

  typedrag index build FOLDER --out my-index
  typedrag ask "…" --index my-index

With your own LM:

  typedrag ask "…" --lm openai/gpt-4o-mini      or --lm vllm:MODEL --api-base URL

What works on this machine:  typedrag doctor      All commands:  typedrag --help
"""


class _TypedRAG(Commands):
    """All commands."""

    def invoke(self, ctx: click.Context) -> Any:
        with report_errors():
            return super().invoke(ctx)


@click.group(
    cls=_TypedRAG,
    table=COMMANDS,
    moved=dict.fromkeys(RESEARCH["Commands"], "research"),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="typedrag")
@click.option("-v", "--verbose", is_flag=True, help="Log progress to stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.option("--no-color", is_flag=True, help="Print without colors; so does the variable NO_COLOR.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool, quiet: bool, no_color: bool) -> None:
    """Answer non-factoid questions over a document collection.

    Each option can also be set by an environment variable: --top-k of `typedrag ask` by TYPEDRAG_ASK_TOP_K.
    """
    if no_color:
        os.environ["NO_COLOR"] = "1"  # which rich heeds
    log_to_stderr(verbose=verbose, quiet=quiet)
    bypass_proxies()
    if ctx.invoked_subcommand is None:
        echo(WELCOME, nl=False)


@click.group(cls=Commands, table=RESEARCH)
def research() -> None:
    """Make the tables of the papers, check judges, train rankers, and look into runs and programs."""


command = research
read_environment(cli, "TYPEDRAG")

_SIGNALS = {
    signal.SIGINT: ("Interrupted", ExitCode.INTERRUPTED),
    signal.SIGTERM: ("Terminated", ExitCode.TERMINATED),
}
_received: list[int] = []


def _stop(number: int, _: object) -> None:
    _received.append(number)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # shut down in order
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line."""
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as a shell sets it for what runs in the background
            signal.signal(number, _stop)
    try:
        with report_errors():
            sys.exit(cli(prog_name="typedrag", standalone_mode=False))  # click returns the status of ctx.exit
    except click.ClickException as error:
        error.show(shown := io.StringIO())
        echo(shown.getvalue(), err=True, nl=False)
        sys.exit(ExitCode.BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    finally:
        if _received:  # whatever became of the exception on its way
            message, status = _SIGNALS[signal.Signals(_received[0])]
            with suppress(OSError):
                echo(message, err=True)
                sys.stdout.flush()
            os._exit(status)  # without waiting for calls in threads: at an interpreter's usual end, they would crash it


if __name__ == "__main__":
    main()

"""The command `typedrag`, and the handling of errors and signals."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, NoReturn

import click

from typedrag import __version__
from typedrag.cli.commands import Commands, read_environment
from typedrag.core.errors import InputError, TypedRAGError, Unavailable, path_error
from typedrag.core.extras import name_missing_extras
from typedrag.core.redaction import without_keys

COMMANDS = (
    "ask",
    "compare",
    "compile",
    "cost",
    "datasets",
    "diff",
    "doctor",
    "evaluate",
    "index",
    "judges",
    "keys",
    "mcp",
    "models",
    "papers",
    "ranker",
    "registry",
    "report",
    "revelator",
    "serve",
    "sweep",
)

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


class ExitCode(IntEnum):
    """The exit statuses of commands."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNAVAILABLE = 3
    INTERRUPTED = 130
    TERMINATED = 143


class _Commands(Commands):
    """All commands."""

    names = COMMANDS

    def invoke(self, ctx: click.Context) -> Any:
        with errors_said():
            return super().invoke(ctx)


@contextmanager
def errors_said() -> Iterator[None]:
    """Turn typedrag's errors, and those of unusable files, into a message and an exit status."""
    try:
        with name_missing_extras():
            yield
    except TypedRAGError as error:
        click.echo(f"Error: {error}", err=True)
        if isinstance(error, InputError):
            sys.exit(ExitCode.BAD_INPUT)
        sys.exit(ExitCode.UNAVAILABLE if isinstance(error, Unavailable) else ExitCode.FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            with suppress(OSError):  # flushing stdout at exit would fail again
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with errors_said():
            raise path_error(error.filename or "what was to be written", error) from error


class _Lines(logging.Formatter):
    """Log lines without keys, since those of libraries contain addresses; typedrag's warnings read like its errors."""

    def format(self, record: logging.LogRecord) -> str:
        line = without_keys(super().format(record))
        own = record.name.startswith("typedrag.") and record.levelno == logging.WARNING
        return f"Warning: {line.removeprefix(f'{record.name}: ')}" if own else line


def log_to_stderr(*, verbose: bool) -> None:
    """Make this process log to stderr, without keys."""
    lines = logging.StreamHandler()
    lines.setFormatter(_Lines("%(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[lines])
    logging.getLogger("typedrag").setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("typedrag.lms.vllm").setLevel(logging.INFO)  # what it says while minutes pass
    if not verbose:
        # it warns of each reply that was cut off, as answers do; the level of `dspy` itself is set by its import
        for noisy in ("httpx", "dspy.clients.lm", "huggingface_hub", "sentence_transformers"):
            logging.getLogger(noisy).setLevel(logging.ERROR)


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="typedrag")
@click.option("-v", "--verbose", is_flag=True, help="Log progress to stderr.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Answer non-factoid questions over a document collection.

    Each option can also be set by an environment variable: --top-k of `typedrag ask` by TYPEDRAG_ASK_TOP_K.
    """
    log_to_stderr(verbose=verbose)
    if ctx.invoked_subcommand is None:
        click.echo(WELCOME, nl=False)


read_environment(cli, _Commands.variables)


_SIGNALS = {
    signal.SIGINT: ("Interrupted", ExitCode.INTERRUPTED),
    signal.SIGTERM: ("Terminated", ExitCode.TERMINATED),
}
_received: list[int] = []


def _stop(number: int, _: object) -> None:
    _received.append(number)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # shut down in order
    raise KeyboardInterrupt


def _leave(number: int) -> NoReturn:
    """Exit for a signal, without waiting for calls in threads: at an interpreter's usual end, they would crash it."""
    message, status = _SIGNALS[signal.Signals(number)]
    with suppress(OSError):
        click.echo(message, err=True)
        sys.stdout.flush()
    os._exit(status)


def main() -> None:
    """Run the command line."""
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as a shell sets it for what runs in the background
            signal.signal(number, _stop)
    try:
        with errors_said():
            sys.exit(cli(prog_name="typedrag", standalone_mode=False))  # click returns the status of ctx.exit
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    finally:
        if _received:  # whatever became of the exception on its way
            _leave(_received[0])


if __name__ == "__main__":
    main()

"""`crucible ARGS` -> one command, its output and its exit code; turns every error into a sentence and a fix, never a traceback.

Commands are loaded when they are called, from the table below, so that `crucible exposure` does not wait for NumPy.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click
import typer

import crucible
from crucible.cli import output
from crucible.errors import CrucibleError

COMMANDS = {
    "ari": ("crucible.cli.ari", "ARI Bench: run an agent for its hour, grade it, look at what it did."),
    "board": ("crucible.cli.board", "Rows and ranks from the records of many runs."),
    "bundles": ("crucible.cli.bundles", "Check a bundle file; build bundles from events."),
    "cache": ("crucible.cli.cache", "What the embedding cache holds; make room in it."),
    "capsule": ("crucible.cli.capsule", "Pack, unpack and verify a run; build one from three seeds."),
    "compare": ("crucible.cli.compare", "Compare scoreboards; refuses across different eval sets."),
    "config": ("crucible.cli.config", "Check and show a configuration, and the exposures it means."),
    "corpus": ("crucible.cli.corpus", "Real events and bundles from an installed WordNet."),
    "eval": ("crucible.cli.evaluate", "Evaluate a model on an eval set: scoreboard, items, record, report."),
    "evalset": ("crucible.cli.evalset", "Freeze, extend, show and compare evaluation sets."),
    "exposure": ("crucible.cli.exposure", "Expected exposures of a legacy pool, and whether it is diluted."),
    "init": ("crucible.cli.init", "Start a project: configuration, sample data, next steps."),
    "ledger": ("crucible.cli.ledger", "Verify and read hash-chained ledgers."),
    "mine": ("crucible.cli.mine", "Mine organic hard negatives, validated over many lineups."),
    "pareto": ("crucible.cli.pareto", "The frontier of a sweep over two truths, with a recommendation."),
    "pool": ("crucible.cli.pool", "Merge, split, filter and count pools of bundles."),
    "report": ("crucible.cli.report", "One self-contained page about a run, a sweep or a mining."),
    "sweep": ("crucible.cli.sweep", "Train conditions x seeds; resumable, with a recommendation."),
    "train": ("crucible.cli.train", "Train on a curriculum of tiers and pools, with guardrails."),
}

INTERRUPTED, PIPE_CLOSED = 130, 141
"""What a shell shows for a process ended by SIGINT and SIGPIPE; SIGTERM and SIGHUP are 143 and 129."""


class Commands(click.Group):
    """A group that knows its commands by name and imports one only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        app: typer.Typer = importlib.import_module(COMMANDS[cmd_name][0]).app
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=Commands, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(crucible.__version__, prog_name="crucible")
def root() -> None:
    """Machine-learning results nobody can fool themselves with.

    Exit codes: 0 success, 1 general, 2 configuration, 3 data, 4 device, 5 fingerprint mismatch, 6 integrity,
    7 sandbox or engine unavailable.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    args = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asks for exactly that
        signal.signal(signal.SIGHUP, _terminate)
    sys.exit(_run(args))


def _run(args: list[str]) -> int:
    as_json = "--json" in args
    try:
        # Not root.main(): click's own handling of Ctrl-C and of a closed pipe would come before ours.
        with root.make_context("crucible", list(args)) as ctx:
            root.invoke(ctx)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as done:  # --help and --version
        sys.stdout.flush()
        return done.exit_code
    except CrucibleError as error:
        return output.fail(type(error).__name__, error.message, error.fix, error.exit_code, error.facts, as_json)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "crucible"
        message = error.format_message() or f"`{command}` needs a command"
        return output.fail("Usage", message, f"See `{command} --help`.", 2, {}, as_json)
    except (KeyboardInterrupt, click.Abort):
        message, fix = "interrupted; no file was left half-written", "Run the same command again."
        return output.fail("Interrupted", message, fix, INTERRUPTED, {}, as_json)
    except BrokenPipeError:
        # The reader went away (`crucible … | head`): nothing to say, and Python must not try to flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        message = f"{error.filename or 'the system'}: {error.strerror or error}"
        return output.fail("System", message, "Check the path, its permissions and the disk.", 1, {}, as_json)
    except MemoryError:
        return output.fail("Memory", "out of memory", "Use a smaller input or a larger machine.", 1, {}, as_json)
    except Exception as error:  # noqa: BLE001  the last door: whatever arrives here is a bug of ours
        if os.environ.get("CRUCIBLE_DEBUG"):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"a bug in crucible: {type(error).__name__}: {error} (at {where.name}:{where.lineno})"
        return output.fail("Bug", message, "Run again with CRUCIBLE_DEBUG=1 and report the trace.", 1, {}, as_json)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM and a closed terminal unwind the stack, so that drafts are removed and boxes are closed on the way out."""
    raise SystemExit(128 + signum)

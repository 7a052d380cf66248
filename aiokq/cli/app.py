"""The root command `aiokq`: registers the commands, prints errors, and sets the exit codes.

Most commands of a command group, such as `topics list`, are registered in the module of the group.
Commands import the client when they run, so that `aiokq --help` imports little more than Typer.

Exit codes: 0 success; 1 failure of the command or of a part of it; 2 wrong usage; 130 ended by
Ctrl-C; 143 ended by SIGTERM; 141 the reader of the output closed the pipe.

Every option with a numeric value has a maximum (`aiokq.cli.options.at_most`, or Typer's `max`), so
that a number that Kafka cannot represent is wrong usage. Without the maximum, the client would
raise a ValueError, which `execute` does not catch.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TextIO, cast

import typer

from aiokq._version import __version__
from aiokq.cli.acls import acls
from aiokq.cli.check import check
from aiokq.cli.cluster import cluster
from aiokq.cli.consume import consume
from aiokq.cli.doctor import doctor
from aiokq.cli.error_text import FAILED, explain, one_line
from aiokq.cli.forget_missing import forget_missing
from aiokq.cli.gateway import gateway
from aiokq.cli.groups import groups
from aiokq.cli.hand_over import hand_over
from aiokq.cli.help_text import examples, flowing
from aiokq.cli.kafka_options import instead_of
from aiokq.cli.log import log
from aiokq.cli.log_dirs import log_dirs
from aiokq.cli.log_repair import repair
from aiokq.cli.offsets import offsets
from aiokq.cli.output import OutputClosed, complain, discard_output
from aiokq.cli.partitions import partitions
from aiokq.cli.produce import produce
from aiokq.cli.quotas import quotas
from aiokq.cli.session import Session, Terminated
from aiokq.cli.spark import spark
from aiokq.cli.storage import storage
from aiokq.cli.topics import topics
from aiokq.cli.transactions import transactions
from aiokq.cli.users import users
from aiokq.core.errors import KafkaError
from aiokq.core.nearest_name import nearest_name

if TYPE_CHECKING:
    from typer import Context
    from typer.core import TyperGroup

__all__ = ["execute", "main"]

WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143

# Newer versions of Typer contain a copy of Click, and export BadParameter, but not UsageError and
# ClickException. These two classes are therefore taken from the base classes of BadParameter.
_UsageError, _ClickException = cast(
    "list[type[typer.BadParameter]]", typer.BadParameter.__mro__[1:3]
)

app = typer.Typer(
    name="aiokq",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aiokq {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "aiokq broker --data-dir ./kafka-data",
        "export KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9092",
        "aiokq topics create orders --partitions 3",
        "seq 5 | aiokq produce orders",
        "aiokq consume orders --until-end",
    )
)
def root(
    ctx: typer.Context,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Show warnings of the client on stderr; given twice, show its whole log.",
        ),
    ] = 0,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Kafka for asyncio: an embedded broker, and a client for any Kafka cluster.

    Client commands find the cluster by --bootstrap-servers or KAFKA_BOOTSTRAP_SERVERS. Every client
    setting can be given as a variable such as KAFKA_SECURITY_PROTOCOL, or in the file of --config.

    Exit codes: 0 success; 1 failure of the command or of a part of it, explained on stderr; 2 wrong
    usage; 130 ended by Ctrl-C; 143 ended by SIGTERM; 141 the reader of the output closed the pipe.
    """
    if ctx.invoked_subcommand != "broker":  # the broker sets up its own logs
        ctx.with_resource(_logs(verbose))


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
    add_help_option=False,
)
def broker(ctx: typer.Context) -> None:
    """Run an embedded Kafka broker as a process."""
    # If no option precedes the word `broker`, aiokq/__main__.py runs the broker without Typer.
    from aiokq.broker.process import main as run_broker

    raise typer.Exit(run_broker(ctx.args))


app.add_typer(topics, name="topics")
app.add_typer(partitions, name="partitions")
app.command(
    epilog=examples(
        "seq 1000 | aiokq produce numbers -b 127.0.0.1:9092",
        "aiokq produce orders --key-separator : --compression-type zstd < orders.txt",
    )
)(produce)
app.command(
    epilog=examples(
        "aiokq consume orders",
        "aiokq consume orders --from end",
        "aiokq consume orders --from -10 --until-end --keys --offsets",
        "aiokq consume orders --from PT1H --json | jq .value",
    )
)(consume)
app.add_typer(groups, name="groups")
app.add_typer(transactions, name="transactions")
app.add_typer(quotas, name="quotas")
app.command(
    epilog=examples(
        "aiokq offsets orders",
        "aiokq offsets orders --at 2026-01-31T12:00:00Z --at PT1H --json",
    )
)(offsets)
log.command(
    "hand-over",
    epilog=examples("aiokq log hand-over kafka-data", "aiokq log hand-over /disk1/log /disk2/log"),
)(hand_over)
log.command(
    "forget-missing",
    epilog=examples(
        "aiokq log forget-missing /disk1/log /disk2/log",
        "aiokq log forget-missing /disk1/log /disk2/log --execute",
    ),
)(forget_missing)
log.command(
    epilog=examples("aiokq log repair kafka-data", "aiokq log repair kafka-data --execute")
)(repair)
app.add_typer(log, name="log")
app.add_typer(storage, name="storage")
app.add_typer(spark, name="spark")
app.add_typer(gateway, name="gateway")
app.add_typer(cluster, name="cluster")
app.add_typer(acls, name="acls")
app.add_typer(users, name="users")
app.command("log-dirs", epilog=examples("aiokq log-dirs", "aiokq log-dirs --partitions --json"))(
    log_dirs
)
app.command(epilog=examples("aiokq check history.jsonl", "aiokq check history.jsonl --json"))(check)
app.command(epilog=examples("aiokq doctor", "aiokq doctor -b 127.0.0.1:9092"))(doctor)


@contextlib.contextmanager
def _logs(verbose: int) -> Iterator[None]:
    """Write aiokq's logs to stderr; without --verbose, only critical messages.

    Other messages need --verbose, because commands print their own errors.
    """
    from aiokq.core.log_lines import stderr_handler  # imports asyncio, which --help does not need

    levels = (logging.CRITICAL, logging.WARNING, logging.DEBUG)
    logger = logging.getLogger("aiokq")
    before = logger.level
    handler = stderr_handler()
    logger.setLevel(levels[min(verbose, len(levels) - 1)])
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def main() -> NoReturn:
    """Run the command line on the process's arguments and end the process."""
    code = execute(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # a full disk was reported; the flush at exit would report it again
        discard_output()
    sys.exit(code)


def execute(arguments: Sequence[str], session: Session | None = None) -> int:
    """Run one command and return its exit code; errors are printed to stderr, one line each."""
    command = command_tree()
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        try:
            result = command.main(
                list(arguments), prog_name="aiokq", standalone_mode=False, obj=session or Session()
            )
            sys.stdout.flush()
        except _ClickException as error:
            return _usage(error)
        except (OutputClosed, BrokenPipeError):
            discard_output()
            return BROKEN_PIPE
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
        except Terminated:
            return TERMINATED
        except KafkaError as error:
            complain(explain(error))
            return FAILED
        except OSError as error:
            complain(str(error))
            return FAILED
    return result if isinstance(result, int) else 0


@functools.cache
def command_tree() -> TyperGroup:
    """Return the tree of all commands.

    The tree is cached, because building it takes longer than running a short command.
    """
    commands = cast("TyperGroup", typer.main.get_command(app))
    flowing(commands)
    return commands


def _usage(error: typer.BadParameter) -> int:
    message = str(getattr(error, "message", error))
    if getattr(error, "param", None) is not None:  # the formatted message names the option
        message = error.format_message()
    if not isinstance(error, _UsageError):
        complain(message)
        return FAILED
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "aiokq"
    option = getattr(error, "option_name", None)
    if option is not None and context is not None:  # Click's NoSuchOption
        message = f"No such option: {option}{_meant(context, option)}"
    if message:
        complain(f"{message.rstrip('.')} (see {command} --help)", command=command)
    elif context is not None:  # a command group without a command: show its help
        typer.echo(context.get_help(), err=True)
    return WRONG_USAGE


def _meant(context: Context, option: str) -> str:
    """Return advice for an unknown option, such as ": did you mean --json?", or ""."""
    instead = instead_of(context.command_path.removeprefix("aiokq "), option)
    if instead is not None:
        return f": {instead}"
    parameters = context.command.params
    names = [name for each in parameters for name in (*each.opts, *each.secondary_opts)]
    near = nearest_name(option, names)
    return "" if near is None else f": did you mean {near}?"


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without the file and line of the code that raised it."""
    print(f"aiokq: warning: {one_line(str(message))}", file=sys.stderr)

"""LoadRun: one run of `aiokq spark load`, with its signals, progress bar and summary."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import IO, TYPE_CHECKING, Final

import typer

from aiokq.cli.error_text import one_line
from aiokq.cli.output import Json, Output
from aiokq.cli.session import Terminated
from aiokq.cli.settings import client_settings
from aiokq.cluster.settings import ClusterSettings
from aiokq.core.errors import ConfigError, KafkaError
from aiokq.core.options import flag

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from aiokq.spark.loading.options import LoadOptions
    from aiokq.spark.loading.summary import LoadProgress, LoadSummary

__all__ = ["LoadRun", "document", "kafka_options", "refused"]

FLAGS: Final[Mapping[str, str]] = {
    "starting_timestamp_ms": "--from",
    "cluster": "--bootstrap-servers",
    "fail_on_data_loss": "--skip-lost",
}
"""The flags of some options, for error messages.

The flag of any other field of `LoadOptions` is in the field's metadata. An option that is no field
has a flag with its own name.
"""

WORDS: Final[Mapping[str, str]] = {
    "fail_on_data_loss=False": "--skip-lost",
    "kafka.bootstrap.servers": "--bootstrap-servers",
    # This setting has no flag of its own. It is given in the file of --config by this name.
    "kafka.security.protocol": "security.protocol",
}
"""Words in errors of a load, and the words of the command line that replace them."""


@contextlib.contextmanager
def refused(*, usage: bool) -> Iterator[None]:
    """Replace names of options by their flags in errors raised in the block.

    Args:
        usage: whether an OptionError is wrong usage (exit code 2) or a failure (exit code 1).
    """
    from aiokq.spark.loading.options import LoadOptions, OptionError

    try:
        yield
    except OptionError as error:
        # Options such as `master` and `conf` are not fields of LoadOptions.
        other = f"--{error.option.replace('_', '-')}"
        typed = FLAGS.get(error.option) or flag(LoadOptions, error.option) or other
        message = _typed(f"{typed}: {error.problem}")
        if usage:
            raise typer.BadParameter(message) from None
        raise ConfigError(message) from None
    except KafkaError as error:
        error.args = (_typed(error.message),)
        raise


def _typed(message: str) -> str:
    for word, typed in WORDS.items():
        message = message.replace(word, typed)
    return message


def kafka_options(bootstrap_servers: str | None, config: Path | None) -> dict[str, str]:
    """Return the given settings by Kafka's names, in the form that Spark's processes need.

    Raises:
        ConfigError: a setting is unknown or refused.
        typer.BadParameter: no bootstrap servers were given anywhere.
    """
    settings = client_settings(ClusterSettings, bootstrap_servers, config)
    values = settings.model_dump(include=set(settings.explicit), mode="python")
    return {name.replace("_", "."): _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    secret: Callable[[], str] | None = getattr(value, "get_secret_value", None)
    return str(value) if secret is None else secret()


class LoadRun:
    """One load, which Ctrl-C or SIGTERM ends after the current batch.

    A second signal, or a signal while Spark starts, ends the load without waiting for a batch.

    Args:
        master: Spark's master URL.
        conf: settings of Spark.
        quiet: whether Spark's output is discarded.
    """

    def __init__(
        self,
        options: LoadOptions,
        out: Output,
        master: str,
        conf: Mapping[str, str],
        *,
        quiet: bool,
    ) -> None:
        self._options = options
        self._out = out
        self._master = master
        self._conf = conf
        self._quiet = quiet
        self._stop = threading.Event()
        self._signal: int | None = None
        self._begun = False
        self._bar: Callable[[LoadProgress], None] | None = None
        self._stderr: IO[str] = sys.stderr

    def __call__(self) -> LoadSummary:
        """Run the load.

        If a signal ends the load after the current batch, the call returns a summary; see `end`.

        Raises:
            KeyboardInterrupt, Terminated: a signal ended the load without waiting for a batch.
            KafkaError, OSError: the load failed.
        """
        from aiokq.spark.loading.run import load

        # Messages go to a copy of stderr, because stderr is redirected while Spark starts.
        with _second_stderr() as self._stderr:
            try:
                with _bar(self._options, self._out) as bar, self._signals(), refused(usage=False):
                    self._bar = bar
                    return load(
                        self._options,
                        progress=self._report_progress,
                        stop=self._stop,
                        master=self._master,
                        conf=self._conf,
                        quiet=self._quiet,
                    )
            except (KafkaError, OSError, KeyboardInterrupt) as error:
                if self._signal is not None:
                    # The signal may have ended Spark's JVM, too, and so caused the error.
                    why = (
                        "" if isinstance(error, KeyboardInterrupt) else f" ({one_line(str(error))})"
                    )
                    when = "at once" if self._begun else "before the load began"
                    self._say(f"ended {when}{why}; the same command continues the load")
                    self.end()
                raise

    def end(self) -> None:
        """Raise the exception for the signal that ended the load; return if there was no signal.

        Raises:
            KeyboardInterrupt, Terminated: there was a signal.
        """
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal == signal.SIGTERM:
            raise Terminated

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._caught)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        if self._stop.is_set() or not self._begun:
            # A second signal ends the load without waiting for the batch. So does the first signal
            # while Spark starts, which may take a minute: there is no batch to wait for.
            self._stop.set()
            raise KeyboardInterrupt
        self._stop.set()
        self._say("ending after this batch; press Ctrl-C again to end now")

    def _say(self, line: str) -> None:
        print(f"aiokq: {line}", file=self._stderr, flush=True)

    def _report_progress(self, progress: LoadProgress) -> None:
        self._begun = True
        if self._bar is not None:
            self._bar(progress)

    def print(self, summary: LoadSummary) -> None:
        """Print the summary as text."""
        plural = "" if summary.rows == 1 else "s"
        dead = f", {summary.dead_letters} not decoded (dead letters)" * bool(summary.dead_letters)
        self._out.line(
            f"{summary.rows} record{plural} loaded to {summary.to} in {summary.seconds:.1f} s "
            f"({summary.rate:.0f}/s): {summary.batches} batches, {summary.files} files, "
            f"{summary.size} bytes{dead}"
        )
        if len(summary.topics) > 1:
            rows = [[name, t.rows, t.dead_letters] for name, t in summary.topics.items()]
            self._out.table(["topic", "records", "dead letters"], rows)


@contextlib.contextmanager
def _second_stderr() -> Iterator[IO[str]]:
    """Yield a copy of stderr that ignores later redirections; stderr if it cannot be copied."""
    try:
        second = os.fdopen(os.dup(sys.stderr.fileno()), "w")
    except (OSError, ValueError):  # io.UnsupportedOperation is a subclass of both
        yield sys.stderr
        return
    with second:
        yield second


def document(summary: LoadSummary) -> dict[str, Json]:
    """Return the summary as a JSON document."""
    return {
        "to": str(summary.to),
        "query_id": summary.query,
        "batches": summary.batches,
        "rows": summary.rows,
        "dead_letters": summary.dead_letters,
        "files": summary.files,
        "bytes": summary.size,
        "seconds": round(summary.seconds, 3),
        "rows_per_second": round(summary.rate, 1),
        "interrupted": summary.interrupted,
        "topics": {
            name: {"rows": topic.rows, "dead_letters": topic.dead_letters}
            for name, topic in summary.topics.items()
        },
    }


@contextlib.contextmanager
def _bar(options: LoadOptions, out: Output) -> Iterator[Callable[[LoadProgress], None] | None]:
    """Show a progress bar and yield a callback that moves the bar.

    If stderr is not a terminal or the output is JSON, show no bar and yield None.
    """
    if out.as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Teller(bar, options.root.name)


class _Teller:
    def __init__(self, bar: Progress, name: str) -> None:
        self._bar = bar
        self._name = name
        self._task = bar.add_task("starting Spark", total=None)

    def __call__(self, progress: LoadProgress) -> None:
        batch = "" if progress.batch is None else f", batch {progress.batch}"
        self._bar.update(
            self._task,
            description=f"{self._name}: {progress.rows} records{batch}",
            completed=progress.offsets,
            total=progress.total,
        )

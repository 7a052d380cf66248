"""The Typer application: which commands there are. Owns no command's work."""

from __future__ import annotations

import typer

from aiokq._version import __version__
from aiokq.cli import doctor, records, topics

__all__ = ["app", "main"]

app = typer.Typer(
    name="aiokq",
    help="Kafka for asyncio: topics, records, and a broker of its own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(topics.app, name="topics")
app.command()(records.produce)
app.command()(records.consume)
app.command()(doctor.doctor)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def broker(context: typer.Context) -> None:
    """Run an embedded Kafka broker as a process (aiokq broker --help)."""
    # Listed here for --help; `aiokq broker` itself does not come this way.
    from aiokq.broker.process import main as run_broker

    raise typer.Exit(run_broker(context.args))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aiokq {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    app()

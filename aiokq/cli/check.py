"""`aiokq check`: find anomalies in a history of client operations; aiokq.testing has the checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiokq.cli.error_text import FAILED
from aiokq.cli.options import AsJson, at_most
from aiokq.cli.output import Output, complain
from aiokq.core import limits

__all__ = ["check"]


def check(
    history: Annotated[
        Path,
        typer.Argument(
            metavar="HISTORY",
            help="A file of JSON lines, as docs/reference/histories.md describes.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    shown: Annotated[
        int,
        typer.Option(
            "--shown",
            min=1,
            callback=at_most(limits.INT32_MAX),
            help="How many anomalies of each kind to print.",
        ),
    ] = 5,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg",
            metavar="FILE",
            help="Also write pictures of the anomalies printed to an SVG file.",
            dir_okay=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find anomalies in the records that clients wrote and read, such as lost or doubled records.

    Prints each kind of anomaly with its definition, the operations that show it, and a picture.
    Anomalies that break a guarantee of Kafka are condemned. All other anomalies are only reported.
    Exit code 1 if an anomaly is condemned.
    """
    from aiokq.testing import HistoryError
    from aiokq.testing import check as check_history

    output = Output(as_json=as_json)
    try:
        report = check_history(history)
    except HistoryError as error:
        complain(f"{history}: {error}")
        raise typer.Exit(FAILED) from None
    if svg is not None:
        try:
            svg.write_text(report.svg(shown), encoding="utf-8")
        except OSError as error:
            complain(f"{svg}: {error.strerror}")
            raise typer.Exit(FAILED) from None
    output.line(report.to_json() if as_json else report.text(shown))
    if not report.ok:
        raise typer.Exit(FAILED)

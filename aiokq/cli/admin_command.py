"""AdminCall: what all commands on the admin client have, declared and done once.

Owns the options --json, --bootstrap-servers and --config of such commands, opening and closing the
client, and the exit code. What a command asks and prints is its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from aiokq.cli.options import AsJson, BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.session import Session

if TYPE_CHECKING:
    from aiokq.admin.client import Admin

__all__ = ["AdminCall", "admin_command"]

KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
SHARED: Final = (
    inspect.Parameter("as_json", KEYWORD, default=False, annotation=AsJson),
    inspect.Parameter("bootstrap_servers", KEYWORD, default=None, annotation=BootstrapServers),
    inspect.Parameter("config", KEYWORD, default=None, annotation=ConfigFile),
)
"""They come after a command's own ones, so the help lists them last."""


@dataclass(frozen=True, slots=True)
class AdminCall:
    """One run of a command.

    Attributes:
        out: where its output goes, and what says whether anything failed.
    """

    session: Session
    out: Output
    _admin: Admin

    def run(self, main: Callable[[Admin], Coroutine[object, object, None]]) -> None:
        """Run the asynchronous part, with the admin client open."""

        async def opened() -> None:
            async with self._admin as admin:
                await main(admin)

        self.session.run(opened())


def admin_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command of typer's, with the function's options and the shared ones.

    The function gets an `AdminCall` and its own options; the exit code is that of the output.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def run(
        ctx: typer.Context,
        as_json: bool,
        bootstrap_servers: str | None,
        config: Path | None,
        **options: object,
    ) -> None:
        session: Session = ctx.obj
        out = Output(as_json=as_json)
        call = AdminCall(session, out, session.admin(bootstrap_servers, config))
        command(call, **options)
        raise typer.Exit(out.exit_code)

    functools.update_wrapper(run, command)
    context = inspect.Parameter("ctx", KEYWORD, annotation=typer.Context)
    parameters = [each.replace(kind=KEYWORD) for each in (context, *own, *SHARED)]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run

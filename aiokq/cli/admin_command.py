"""The parts that most commands on the admin client share: options, client and exit code.

The shared options are --json, --bootstrap-servers and --config.
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
"""Options that follow a command's own options, so that the help lists them last."""


@dataclass(frozen=True, slots=True)
class AdminCall:
    """One run of a command on the admin client.

    Attributes:
        out: prints the results, and records whether anything failed.
    """

    session: Session
    out: Output
    _admin: Admin

    def run(self, main: Callable[[Admin], Coroutine[object, object, None]]) -> None:
        """Run the asynchronous part of the command with the admin client open."""

        async def opened() -> None:
            async with self._admin as admin:
                await main(admin)

        self.session.run(opened())


def admin_command(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` as a Typer command that also has the shared options.

    `command` is called with an `AdminCall` and its own options. The command ends with the exit
    code of `AdminCall.out`.
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

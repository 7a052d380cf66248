"""`aiokq users` and its commands `list`, `add` and `remove`: the SCRAM credentials of users."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.help_text import examples
from aiokq.cli.options import IfExists

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.users import ScramDeletion, ScramUpsertion

__all__ = ["users"]

users = typer.Typer(
    no_args_is_help=True,
    help="List, add and remove users: their SCRAM credentials, with which clients log in.",
)

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

UserNames = Annotated[
    list[str], typer.Argument(metavar="USER", help="Names of users.", show_default=False)
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. Default: "
        "those that the user has, and with add also those that a listener of the brokers offers.",
        show_default=False,
    ),
]


@users.command("list", epilog=examples("aiokq users list", "aiokq users list alice bob --json"))
@admin_command
def list_users(
    call: AdminCall,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[USER]...", help="Names of users; all if none is given.", show_default=False
        ),
    ] = None,
) -> None:
    """List the users that have a SCRAM credential, with its mechanisms and iterations."""

    async def run(admin: Admin) -> None:
        found = await admin.describe_user_scram_credentials(names or None)
        for name, error in found.errors.items():
            call.out.problem(name, error)
        rows = [
            (each.user, credential.mechanism, credential.iterations)
            for each in found.values()
            for credential in each.credentials
        ]
        if call.out.as_json:
            call.out.document(
                [
                    {"user": user, "mechanism": mechanism, "iterations": iterations}
                    for user, mechanism, iterations in rows
                ]
            )
        else:
            call.out.table(("User", "Mechanism", "Iterations"), rows)

    call.run(run)


@users.command(
    epilog=examples(
        "aiokq users add alice",
        "aiokq users add alice --password-file alice.password",
        "pwgen 20 1 | aiokq users add alice --password-file -",
    )
)
@admin_command
def add(
    call: AdminCall,
    name: Annotated[str, typer.Argument(metavar="USER", help="Name.", show_default=False)],
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="File with the password in its only line; - for standard input. Default: ask.",
            show_default=False,
        ),
    ] = None,
    mechanisms: Mechanisms = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations",
            min=4096,
            max=16384,
            help="Iterations of the hash; with more, it takes longer to guess the password of a "
            "stolen hash.",
        ),
    ] = 4096,
) -> None:
    """Add a user, or change its password.

    The password is never an argument, because every user of the machine can read the arguments of
    a program. Connections that are open stay open.
    """
    given = _mechanisms(mechanisms) if mechanisms else []
    password = _password(password_file, name)

    async def run(admin: Admin) -> None:
        from aiokq.admin.users import ScramUpsertion

        wanted = given or await _useful(call, admin, name)
        await _change(
            call,
            admin,
            [ScramUpsertion(name, password, mechanism, iterations) for mechanism in wanted],
            "set",
        )

    call.run(run)


@users.command(
    epilog=examples(
        "aiokq users remove alice", "aiokq users remove alice --mechanism SCRAM-SHA-256"
    )
)
@admin_command
def remove(
    call: AdminCall, names: UserNames, mechanisms: Mechanisms = None, if_exists: IfExists = False
) -> None:
    """Remove users: they cannot log in any more. Connections that are open stay open."""
    wanted = _mechanisms(mechanisms)

    async def run(admin: Admin) -> None:
        from aiokq.admin.users import ScramDeletion

        found = await admin.describe_user_scram_credentials(names)
        deletions: list[ScramUpsertion | ScramDeletion] = []
        for name in dict.fromkeys(names):
            has = {one.mechanism for one in found[name].credentials} if name in found else set()
            given = [one for one in wanted if one in has]
            deletions += [ScramDeletion(name, one) for one in given]
            if not given and not if_exists:
                call.out.trouble(f"{name}: there is no such credential")
        await _change(call, admin, deletions, "removed")

    call.run(run)


async def _change(
    call: AdminCall, admin: Admin, changes: list[ScramUpsertion | ScramDeletion], done: str
) -> None:
    results = await admin.alter_user_scram_credentials(changes)
    for (user, mechanism), error in results.errors.items():
        call.out.problem(f"{user} {mechanism}", error)
    changed = [key for key, result in results.items() if result.error is None]
    if call.out.as_json:
        call.out.document(
            [{"user": user, "mechanism": mechanism, "done": done} for user, mechanism in changed]
        )
        return
    for user, mechanism in changed:
        call.out.line(f"{user}: {mechanism} {done}")


async def _useful(call: AdminCall, admin: Admin, name: str) -> list[str]:
    """Return the mechanisms that the brokers offer, and those of the user's credentials.

    A new credential for a mechanism that is not offered would be of no use. The mechanisms of the
    user's credentials are included so that no credential keeps an earlier password. If the brokers
    do not say what they offer, return SCRAM-SHA-256 and SCRAM-SHA-512. If the brokers offer no
    SCRAM, return the same and print a note.
    """
    offered = await _offered(admin)
    if offered is not None and not offered:
        call.out.note("no listener offers SCRAM, so the user cannot log in with the password yet")
    found = await admin.describe_user_scram_credentials([name])
    has = {one.mechanism for one in found[name].credentials} if name in found else set()
    useful = has.union(offered) if offered else ()
    return [one for one in MECHANISMS if one in useful] or list(MECHANISMS)


async def _offered(admin: Admin) -> set[str] | None:
    """Return the SCRAM mechanisms that any broker enables; None if that is unknown."""
    from aiokq.admin.config_types import ConfigResource, ConfigResourceType

    brokers = (await admin.describe_cluster()).brokers
    described = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.BROKER, str(broker.node_id)) for broker in brokers]
    )
    offered: set[str] | None = None
    for each in described.values():
        for entry in each.entries.values():
            if entry.name.endswith("sasl.enabled.mechanisms") and entry.value is not None:
                names = {one.strip() for one in entry.value.split(",")}
                offered = (offered or set()).union(names.intersection(MECHANISMS))
    return offered


def _mechanisms(given: list[str] | None) -> list[str]:
    for name in given or ():
        if name not in MECHANISMS:
            raise typer.BadParameter(
                f"{name} is not one of {', '.join(MECHANISMS)}", param_hint="--mechanism"
            )
    return list(dict.fromkeys(given or MECHANISMS))


def _password(file: Path | None, name: str) -> str:
    """Return the password from the file or the terminal, without the line break.

    Raises:
        typer.BadParameter: the file cannot be read, or does not have exactly one line.
    """
    if file is None:
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "give a file, or - for standard input: there is no terminal to ask at",
                param_hint="--password-file",
            )
        return str(
            typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        )
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot be read: {error}", param_hint="--password-file") from None
    lines = text.splitlines()
    if len(lines) != 1 or not lines[0]:
        raise typer.BadParameter(
            f"must have the password in its only line, and has {len(lines)} lines",
            param_hint="--password-file",
        )
    return lines[0]

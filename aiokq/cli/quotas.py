"""`aiokq quotas` and its commands `list`, `set` and `remove`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.help_text import examples
from aiokq.cli.options import ValidateOnly, named_values, once
from aiokq.cli.output import Json, Output, error_json

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.quotas import ClientQuotaEntity

__all__ = ["quotas"]

quotas = typer.Typer(
    no_args_is_help=True,
    help="List, set and remove quotas of users, client ids and addresses.",
)

FORM: Final = "KEY=RATE"

_KINDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The attributes of `ClientQuotaEntity` by the words that --default takes."""

User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="A user, without its type: alice.")
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="A client id; with a user or alone.")
]
Ip = Annotated[
    str | None,
    typer.Option("--ip", metavar="ADDRESS", help="The address of clients; excludes the others."),
]
Default = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="TYPE",
        help="The default of a type, user, client-id or ip, in place of a name; repeatable.",
    ),
]
Keys = Annotated[
    list[str], typer.Argument(metavar="KEY...", help="Keys of quotas.", show_default=False)
]
Rates = Annotated[
    list[str],
    typer.Argument(
        metavar=f"{FORM}...",
        help="producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of "
        "one broker thread), controller_mutation_rate (partitions per second), or, for an address, "
        "connection_creation_rate (connections per second).",
        show_default=False,
    ),
]


@quotas.command(
    "list",
    epilog=examples(
        "aiokq quotas list",
        "aiokq quotas list --user alice --strict",
        "aiokq quotas list --default client-id --json",
    ),
)
@admin_command
def list_quotas(
    call: AdminCall,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Leave out quotas that depend on more than the given names."),
    ] = False,
) -> None:
    """List the quotas that are set, all of them or those of the given names."""
    entity = _entity(user, client_id, ip, default)

    async def run(admin: Admin) -> None:
        found = await admin.describe_client_quotas(entity, strict=strict)
        every = sorted(found.items(), key=lambda each: str(each[0]))
        if call.out.as_json:
            call.out.document(
                [{**_names(one), "quotas": dict(sorted(values.items()))} for one, values in every]
            )
            return
        rows = [
            (str(one), key, f"{value:.15g}")
            for one, values in every
            for key, value in sorted(values.items())
        ]
        call.out.table(("entity", "quota", "rate"), rows)

    call.run(run)


@quotas.command(
    "set",
    epilog=examples(
        "aiokq quotas set producer_byte_rate=1000000 --user alice",
        "aiokq quotas set request_percentage=10 --default client-id",
        "aiokq quotas set connection_creation_rate=5 --ip 10.0.0.1",
    ),
)
@admin_command
def set_quotas(
    call: AdminCall,
    rates: Rates,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    dry_run: ValidateOnly = False,
) -> None:
    """Set quotas of a user, a client id, a client id of a user, or an address."""
    values: dict[str, float | None] = {}
    for key, text in named_values(rates, FORM, FORM):
        if key in values:
            raise typer.BadParameter(f"{key} is given twice")
        values[key] = _rate(key, text)
    entity = _named_entity(user, client_id, ip, default)
    call.run(lambda admin: _alter(admin, call.out, entity, values, dry_run=dry_run))


@quotas.command(
    "remove",
    epilog=examples(
        "aiokq quotas remove producer_byte_rate consumer_byte_rate --user alice",
        "aiokq quotas remove connection_creation_rate --default ip",
    ),
)
@admin_command
def remove_quotas(
    call: AdminCall,
    keys: Keys,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default: Default = None,
    dry_run: ValidateOnly = False,
) -> None:
    """Remove quotas; a quota that is not set is no error."""
    entity = _named_entity(user, client_id, ip, default)
    values = dict.fromkeys(once(keys))
    call.run(lambda admin: _alter(admin, call.out, entity, values, dry_run=dry_run))


async def _alter(
    admin: Admin,
    out: Output,
    entity: ClientQuotaEntity,
    values: Mapping[str, float | None],
    *,
    dry_run: bool,
) -> None:
    results = await admin.alter_client_quotas({entity: values}, validate_only=dry_run)
    error = results[entity].error
    if error is not None:
        out.problem(str(entity), error)
    if out.as_json:
        out.document(
            {
                **_names(entity),
                "quotas": dict(values),
                "error": error_json(error),
                "executed": not dry_run,
            }
        )
    elif error is None:
        for key, value in values.items():
            done = "removed" if value is None else f"set to {value:.15g}"
            out.line(f"{entity}: {key} {'can be ' if dry_run else ''}{done}")


def _entity(
    user: str | None, client_id: str | None, ip: str | None, default: list[str] | None
) -> ClientQuotaEntity | None:
    """Return the entity that the options name; None if there are no options.

    Raises:
        typer.BadParameter: the options contradict each other.
    """
    from aiokq.admin.quotas import ClientQuotaEntity, QuotaName

    names: dict[str, str | QuotaName | None] = {"user": user, "client_id": client_id, "ip": ip}
    for kind in once(default or []):
        if kind not in _KINDS:
            raise typer.BadParameter(f"--default needs user, client-id or ip, not {kind!r}")
        if names[_KINDS[kind]] is not None:
            raise typer.BadParameter(f"--default {kind} and --{kind} exclude each other")
        names[_KINDS[kind]] = QuotaName.DEFAULT
    given = [name for name in names.values() if name is not None]
    if not given:
        return None
    if "" in given:
        raise typer.BadParameter("a name must not be empty; --default stands for the default")
    if names["ip"] is not None and len(given) > 1:
        raise typer.BadParameter("an address has quotas of its own: it excludes users and clients")
    return ClientQuotaEntity(**names)


def _named_entity(
    user: str | None, client_id: str | None, ip: str | None, default: list[str] | None
) -> ClientQuotaEntity:
    entity = _entity(user, client_id, ip, default)
    if entity is None:
        raise typer.BadParameter("name whose quotas: --user, --client-id, --ip or --default")
    return entity


def _rate(key: str, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise typer.BadParameter(f"{key} needs a number above 0, not {text[:40]!r}")
    return rate


def _names(entity: ClientQuotaEntity) -> dict[str, Json]:
    """Return the names of an entity for JSON; a default is `{"default": true}`."""
    from aiokq.admin.quotas import QuotaName

    found: dict[str, Json] = {}
    for attribute in _KINDS.values():
        name = getattr(entity, attribute)
        found[attribute] = {"default": True} if isinstance(name, QuotaName) else name
    return found

"""`aiokq acls`: lists, adds and removes ACLs as lines of text.

`list` prints the lines that `add` and `remove` read, so that ACLs can be kept in a file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.help_text import examples
from aiokq.cli.output import Json, Output, error_json

if TYPE_CHECKING:
    from aiokq.admin.acls import AclFilter
    from aiokq.admin.client import Admin
    from aiokq.core.acls import Acl

__all__ = ["acls"]

acls = typer.Typer(
    no_args_is_help=True, help="List, add and remove ACLs: who may do what on which resources."
)

Lines = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ACL",
        help="PRINCIPAL Allow|Deny OPERATION[,OPERATION] TYPE:NAME [from HOST], in quotes. A name "
        "that ends in * is a prefix; * alone means all.",
        show_default=False,
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Read more ACLs from a file, one on each line; - for stdin. Empty lines, and lines "
        "that begin with #, are skipped.",
        show_default=False,
    ),
]


@acls.command(
    "list",
    epilog=examples(
        "aiokq acls list",
        "aiokq acls list --principal User:alice",
        "aiokq acls list --covering Topic:orders",
        "aiokq acls list > acls.txt",
    ),
)
@admin_command
def list_acls(
    call: AdminCall,
    principal: Annotated[
        str | None,
        typer.Option(metavar="TYPE:NAME", help="Only ACLs of this principal.", show_default=False),
    ] = None,
    covering: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE:NAME",
            help="Only ACLs that apply to this resource, by its name, a prefix or *.",
            show_default=False,
        ),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE[:NAME]",
            help="Only ACLs on resources of this type, with exactly this name or prefix.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List ACLs, one on each line, in the form that add and remove read."""
    wanted = _filter(principal, covering, of)
    call.run(lambda admin: _list(admin, call.out, wanted))


def _filter(principal: str | None, covering: str | None, of: str | None) -> AclFilter:
    from aiokq.admin.acls import AclFilter
    from aiokq.core.acl_types import PatternType, ResourceType
    from aiokq.core.acls import resource_type_named
    from aiokq.core.errors import ConfigError

    if covering is not None and of is not None:
        raise typer.BadParameter("--covering and --of exclude each other")
    text = covering or of
    if text is None:
        return AclFilter(principal)
    kind, _, name = text.partition(":")
    try:
        resource_type = resource_type_named(kind, text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    if resource_type is ResourceType.CLUSTER and not name:
        name = "kafka-cluster"
    if covering is not None:
        if not name:
            raise typer.BadParameter(
                "--covering needs the name of a resource, such as Topic:orders"
            )
        pattern_type = PatternType.MATCH
    else:
        pattern_type = PatternType.ANY
    if of is not None and name.endswith("*") and name != "*":
        name, pattern_type = name[:-1], PatternType.PREFIXED
    return AclFilter(
        principal,
        resource_type=resource_type,
        resource_name=name or None,
        pattern_type=pattern_type,
    )


async def _list(admin: Admin, out: Output, wanted: AclFilter) -> None:
    found = await admin.describe_acls(wanted)
    if out.as_json:
        out.document([_json(acl) for acl in found])
    else:
        for acl in found:
            out.line(str(acl))


@acls.command(
    epilog=examples(
        "aiokq acls add 'User:alice Allow Write,Describe,Create Topic:orders'",
        "aiokq acls add 'User:bob Allow Read Topic:orders' 'User:bob Allow Read Group:billing-*'",
        "aiokq acls add 'User:* Deny All Topic:* from 192.0.2.7'",
        "aiokq acls add --file acls.txt",
    )
)
@admin_command
def add(call: AdminCall, lines: Lines = None, file: File = None) -> None:
    """Add ACLs, which are in force at once. An ACL that exists already is no error."""
    wanted = _read(lines, file)

    async def run(admin: Admin) -> None:
        results = await admin.create_acls(wanted)
        documents: list[Json] = []
        for acl, result in results.items():
            if result.error is not None:
                call.out.problem(str(acl), result.error)
            elif not call.out.as_json:
                call.out.line(f"added: {acl}")
            documents.append({**_json(acl), "error": error_json(result.error)})
        if call.out.as_json:
            call.out.document(documents)

    call.run(run)


@acls.command(
    epilog=examples(
        "aiokq acls remove 'User:alice Allow Write Topic:orders'",
        "aiokq acls list --principal User:alice | aiokq acls remove --file -",
    )
)
@admin_command
def remove(call: AdminCall, lines: Lines = None, file: File = None) -> None:
    """Remove ACLs, each exactly as it was added. An ACL that does not exist is an error."""
    wanted = _read(lines, file)

    async def run(admin: Admin) -> None:
        from aiokq.admin.acls import AclFilter

        filters = {AclFilter.of(acl): acl for acl in wanted}
        results = await admin.delete_acls(filters)
        documents: list[Json] = []
        for each, result in results.items():
            acl = filters[each]
            if result.error is not None:
                call.out.problem(str(acl), result.error)
            elif not result.acls:
                call.out.trouble(f"{acl}: there is no such ACL")
            elif not call.out.as_json:
                call.out.line(f"removed: {acl}")
            documents.append(
                {**_json(acl), "removed": bool(result.acls), "error": error_json(result.error)}
            )
        if call.out.as_json:
            call.out.document(documents)

    call.run(run)


def _read(lines: list[str] | None, file: Path | None) -> list[Acl]:
    """Return the ACLs of the arguments and of the file."""
    from aiokq.core.acls import parse_acl
    from aiokq.core.errors import ConfigError

    given = list(lines or ())
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"--file {file}: {error}") from None
        given += [
            line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
        ]
    if not given:
        raise typer.BadParameter("give an ACL, or --file")
    try:
        return list(dict.fromkeys(acl for line in given for acl in parse_acl(line)))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _json(acl: Acl) -> dict[str, Json]:
    return {
        "acl": str(acl),
        "principal": acl.principal,
        "permission": acl.permission_type.name,
        "operation": acl.operation.name,
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "host": acl.host,
    }

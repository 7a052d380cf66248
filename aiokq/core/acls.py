"""`Acl`: an access control entry, and its form as a line of text.

The line is ``PRINCIPAL Allow|Deny OPERATION[,OPERATION] TYPE:NAME [from HOST]``::

    User:alice Allow Read,Describe Topic:orders
    User:alice Allow Read Group:billing-*
    User:* Deny All Topic:* from 192.0.2.7
    User:admin Allow Alter Cluster

A name that ends in ``*`` is a prefix, and ``*`` alone covers all resources of the type. The forms
``TYPE:LITERAL:NAME`` and ``TYPE:PREFIXED:NAME`` take the name literally. Only the principal, the
name, the host, and the words LITERAL and PREFIXED are case-sensitive. The principal, the name and
the host may be JSON strings, such as ``Group:"night shift "``; a name in quotes is taken literally,
too.

Tests: ``tests/unit/core/test_acls.py``.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.core.acl_types import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from aiokq.core.errors import ConfigError
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import IntEnum

__all__ = ["Acl", "canonical_host", "operation_named", "parse_acl", "resource_type_named"]

E = TypeVar("E", bound="IntEnum")

LONGEST_SHORT: Final = 1000
"""Maximum length, in characters, of the short form of a line.

The short form leaves out the pattern type, and the host `*`. If the short form is longer, `str()`
returns the full form.
"""

LONGEST_ADDRESS: Final = 128
"""Number of characters above which a host is no address; an address may have a zone."""

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_IS_STRING: Final = re.compile(_STRING, re.DOTALL)

_LINE: Final = re.compile(
    rf"(?P<principal>{_STRING}|.*?\S)\s+(?P<permission>allow|deny)"
    r"\s+(?P<operations>[a-z_]+(?:\s*,\s*[a-z_]+)*)\s+(?P<type>[a-z_]+)"
    rf"(?::(?P<name>(?:LITERAL:|PREFIXED:)?{_STRING}|.*?))?(?:\s+from\s+(?P<host>{_STRING}|\S+))?",
    re.IGNORECASE | re.DOTALL,
)

_PLAIN: Final = re.compile(r'[^\s"\\#]+')
"""A principal, name or host that needs no quotes in the full form of a line."""

_FORM: Final = "PRINCIPAL Allow|Deny OPERATION TYPE:NAME [from HOST]"
_EXAMPLE: Final = "'User:alice Allow Read Topic:orders'"


@frozen
class Acl:
    """An access control entry: it allows or denies an operation on resources to a principal.

    `str()` gives the line that `Acl.parse` reads.

    Attributes:
        principal: type and name, such as `User:alice`; `User:*` means every client.
        operation: the operation; ALL means all operations.
        resource_type: the type of the resources.
        resource_name: the name or, with PREFIXED, the beginning of the names. The LITERAL name `*`
            covers all resources of the type.
        pattern_type: LITERAL or PREFIXED.
        permission_type: ALLOW or DENY. A DENY takes precedence over any ALLOW.
        host: IP address of the clients to which the entry applies; `*` means any.
    """

    principal: str
    operation: Operation
    resource_type: ResourceType
    resource_name: str = CLUSTER_NAME
    pattern_type: PatternType = PatternType.LITERAL
    permission_type: PermissionType = PermissionType.ALLOW
    host: str = ANY_HOST

    @classmethod
    def parse(cls, line: str) -> tuple[Acl, ...]:
        """Return the entries of a line: one for each operation that it names.

        Raises:
            ConfigError: the line is malformed, or names something that does not exist.
        """
        return parse_acl(line)

    def __str__(self) -> str:
        short = self._short()
        try:
            # Parsing a line of many spaces takes time that grows with the square of its length.
            if (
                len(short) <= LONGEST_SHORT
                and short.isprintable()
                and not short.startswith("#")
                and parse_acl(short) == (self,)
            ):
                return short
        except ConfigError:
            pass
        principal, name, host = map(_quoted, (self.principal, self.resource_name, self.host))
        resource = f"{_words(self.resource_type)}:{self.pattern_type.name}:{name}"
        return f"{principal} {self._action()} {resource} from {host}"

    def _short(self) -> str:
        resource = _words(self.resource_type)
        if self.resource_type is not ResourceType.CLUSTER or self.resource_name != CLUSTER_NAME:
            prefixed = self.pattern_type is PatternType.PREFIXED
            resource += f":{self.resource_name}{'*' if prefixed else ''}"
        if self.host != ANY_HOST:
            resource += f" from {self.host}"
        return f"{self.principal} {self._action()} {resource}"

    def _action(self) -> str:
        return f"{_words(self.permission_type)} {_words(self.operation)}"


def parse_acl(line: str) -> tuple[Acl, ...]:
    """Return the entries of a line: one for each operation that it names.

    Raises:
        ConfigError: the line is malformed, or names something that does not exist.
    """
    if not isinstance(line, str):
        raise ConfigError(f"an ACL must be a line of text such as {_EXAMPLE}, not {line!r}")
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise ConfigError(f"ACL {line!r}: the form is {_FORM}, for example {_EXAMPLE}")
    principal = _unquoted(found["principal"], line)
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name) or kind != kind.strip():
        raise ConfigError(
            f"ACL {line!r}: write the principal with its type, such as User:{name or kind}"
        )
    resource_type = resource_type_named(found["type"], line)
    pattern_type, resource_name = _pattern(found["name"], resource_type, line)
    permission = PermissionType[found["permission"].upper()]
    operations = [
        operation_named(each.strip(), resource_type, line)
        for each in found["operations"].split(",")
    ]
    host = _host(found["host"], line)
    return tuple(
        Acl(principal, operation, resource_type, resource_name, pattern_type, permission, host)
        for operation in operations
    )


def resource_type_named(text: str, line: str) -> ResourceType:
    """Return the resource type that `text` names, in upper or lower case, with or without `_`.

    Raises:
        ConfigError: there is no such type; the message quotes `line`.
    """
    return _named(text, _RESOURCE_TYPES, "type of resource", line)


def operation_named(text: str, resource_type: ResourceType, line: str) -> Operation:
    """Return the operation that `text` names, in upper or lower case, with or without `_`.

    Raises:
        ConfigError: there is no such operation, or it has no meaning for `resource_type`; the
            message quotes `line`.
    """
    operation = _named(text, _OPERATIONS, "operation", line)
    supported = [Operation.ALL, *SUPPORTED_OPERATIONS[resource_type]]
    if resource_type is ResourceType.CLUSTER:
        supported.append(Operation.DELETE)  # Kafka checks it for DeleteTopics, but does not list it
    if operation not in supported:
        raise ConfigError(
            f"ACL {line!r}: {_words(resource_type)} has no operation {_words(operation)}; it has "
            + ", ".join(map(_words, supported))
        )
    return operation


def canonical_host(host: str) -> str:
    """Return the canonical text of an IP address; other text is returned unchanged.

    For example, ``0:0:0:0:0:0:0:1`` (as Java writes it) and ``[::1]`` become ``::1``. An IPv4
    address inside an IPv6 address is returned as IPv4, and a zone is left out.
    """
    if host == ANY_HOST or len(host) > LONGEST_ADDRESS:
        return host
    return _canonical_address(host)


@functools.lru_cache(maxsize=4096)  # many ACLs have the same host
def _canonical_address(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address if mapped is None else mapped)


def _pattern(text: str | None, resource_type: ResourceType, line: str) -> tuple[PatternType, str]:
    if resource_type is ResourceType.CLUSTER and text in (None, CLUSTER_NAME):
        return PatternType.LITERAL, CLUSTER_NAME
    if not text:
        raise ConfigError(
            f"ACL {line!r}: name the resource, such as {_words(resource_type)}:NAME, or "
            f"{_words(resource_type)}:* for all"
        )
    kind, _, rest = text.partition(":")
    if kind in (PatternType.LITERAL.name, PatternType.PREFIXED.name):
        pattern_type, name = PatternType[kind], _unquoted(rest, line)
    elif _IS_STRING.fullmatch(text):
        pattern_type, name = PatternType.LITERAL, _unquoted(text, line)
    elif text.endswith("*") and text != ANY_NAME:
        pattern_type, name = PatternType.PREFIXED, text[:-1]
    else:
        pattern_type, name = PatternType.LITERAL, text
    if not name:
        raise ConfigError(f"ACL {line!r}: the name of the resource is empty")
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise ConfigError(f"ACL {line!r}: there is one cluster: write Cluster without a name")
    return pattern_type, name


def _host(text: str | None, line: str) -> str:
    text = ANY_HOST if text is None else _unquoted(text, line)
    if text == ANY_HOST:
        return text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ConfigError(
            f"ACL {line!r}: the host must be an IP address or *, not {text!r}; networks and names "
            "of hosts never match"
        ) from None
    return text


def _quoted(text: str) -> str:
    """Return a principal, name or host, in quotes if it could be read as something else."""
    if text.isprintable() and _PLAIN.fullmatch(text):
        return text
    import json  # imported here: few ACLs need quotes

    return json.dumps(text)


def _unquoted(text: str, line: str) -> str:
    """Return the text between the quotes; text without quotes is returned unchanged.

    Raises:
        ConfigError: the text in quotes is not valid JSON.
    """
    if not _IS_STRING.fullmatch(text):
        return text
    import json

    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        raise ConfigError(f"ACL {line!r}: {text} is not a valid JSON string") from None


def _named(text: str, members: Mapping[str, E], what: str, line: str) -> E:
    member = members.get(_word(text))
    if member is not None:
        return member
    known = [_words(member) for member in members.values()]
    raise ConfigError.unknown(f"ACL {line!r}: unknown {what} {text!r}", text, known)


def _word(text: str) -> str:
    return text.replace("_", "").lower()


_RESOURCE_TYPES: Final = {
    _word(kind.name): kind for kind in ResourceType if kind is not ResourceType.ANY
}
_OPERATIONS: Final = {
    _word(operation.name): operation for operation in Operation if operation is not Operation.ANY
}


def _words(member: IntEnum) -> str:
    """Return the name of a member as Kafka's tools write it: ``DescribeConfigs``."""
    return member.name.title().replace("_", "")

"""CPU time of a decision by ACLs: `python -m benchmarks.micro.acls`.

A client asks a `StandardAuthorizer` with 10,000 ACLs for one topic or for a hundred topics, whose
answers are known or not. The ACLs are those of 1,000 principals, on names and prefixes of 250
different lengths.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.core.acl_types import PatternType, PermissionType
from aiokq.wire.principal_records import AccessControlEntryRecord

ACLS: Final = 10_000
LENGTHS: Final = 250
TOPICS: Final = 100

KNOWN: Final = "known, one topic"
KNOWN_OF_MANY: Final = f"known, of {TOPICS} topics"
UNKNOWN: Final = "not known, one topic"
UNKNOWN_OF_MANY: Final = f"not known, of {TOPICS} topics"
UNKNOWN_LONG: Final = "not known, a name of 249 characters"

ASKED: Final = {
    **dict.fromkeys((KNOWN, KNOWN_OF_MANY), "under 1"),
    **dict.fromkeys((UNKNOWN, UNKNOWN_OF_MANY, UNKNOWN_LONG), "under 50"),
}
"""What each kind of decision may take, in microseconds per topic, as text."""


def acls() -> list[AccessControlEntryRecord]:
    return [
        AccessControlEntryRecord(
            id=uuid.UUID(int=number),
            resource_type=ResourceType.TOPIC,
            resource_name=f"topic-{number}-".ljust(1 + number % LENGTHS, "x"),
            pattern_type=PatternType.PREFIXED if number % 2 else PatternType.LITERAL,
            principal=f"User:u{number % 1000}",
            host="*",
            operation=Operation.WRITE,
            permission_type=PermissionType.ALLOW,
        )
        for number in range(ACLS)
    ]


def client(number: int) -> RequestContext:
    context = RequestContext(1, "127.0.0.1:5000", "127.0.0.1", "PLAINTEXT")
    context.session.principal = Principal.user(f"u{number}")
    return context


def measure(rounds: int = 2000) -> dict[str, float]:
    """Return CPU microseconds per topic of each kind of decision."""
    authorizer = StandardAuthorizer()
    records = acls()
    authorizer.load(records)
    who = client(7)
    names = [records[7 + 1000 * number].resource_name for number in range(10)]
    names = [f"{names[number % 10]}{number}" for number in range(TOPICS)]

    def ask(topics: list[str]) -> Callable[[], object]:
        return lambda: authorizer.authorize(who, Operation.WRITE, ResourceType.TOPIC, topics)

    def forget_and_ask(topics: list[str]) -> Callable[[], object]:
        def run() -> None:
            authorizer._forget()
            authorizer.authorize(who, Operation.WRITE, ResourceType.TOPIC, topics)

        return run

    def change() -> None:
        extra = AccessControlEntryRecord(
            id=uuid.UUID(int=ACLS),
            resource_type=ResourceType.TOPIC,
            resource_name="another",
            pattern_type=PatternType.LITERAL,
            principal="User:another",
            host="*",
            operation=Operation.READ,
            permission_type=PermissionType.ALLOW,
        )
        authorizer._index.add(extra)
        authorizer._index.remove(extra)

    rows: dict[str, tuple[Callable[[], object], int]] = {
        KNOWN: (ask(names[:1]), 1),
        KNOWN_OF_MANY: (ask(names), TOPICS),
        UNKNOWN: (forget_and_ask(names[:1]), 1),
        UNKNOWN_OF_MANY: (forget_and_ask(names), TOPICS),
        UNKNOWN_LONG: (forget_and_ask(["n" * 249]), 1),
        "an ACL added and removed": (change, 1),
    }
    found = {}
    for name, (run, topics) in rows.items():
        run()
        best = float("inf")
        for _ in range(5):
            started = time.process_time()
            for _ in range(rounds // topics):
                run()
            best = min(best, time.process_time() - started)
        found[name] = 1e6 * best / (rounds // topics) / topics
    return found


def main() -> None:
    for name, microseconds in measure().items():
        print(f"{name}: {microseconds:.2f} us a topic")


if __name__ == "__main__":
    main()

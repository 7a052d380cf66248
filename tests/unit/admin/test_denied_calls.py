"""Every call of `Admin` that an authorizer can deny says who lacks what on which resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

import aiokq
from aiokq import errors
from tests.denials import (
    CLUSTER,
    DESCRIBE_SECRET,
    NO_GROUP,
    READ_GROUP,
    READ_SEEN,
    READABLE,
    SECRET,
    SEEN,
    Denial,
    check,
    check_completeness,
    denials_of,
    denying_broker,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kafka() -> AsyncIterator[aiokq.EmbeddedCluster]:
    async with denying_broker() as kafka:
        yield kafka


Call = Callable[[aiokq.Admin], Awaitable[object]]


def raising(name: str, *arguments: Any, **options: Any) -> Call:
    """Return a function that calls a method of `Admin` that can return or raise its errors."""
    return lambda admin: getattr(admin, name)(*arguments, raise_errors=True, **options)


async def offsets_of_topics(admin: aiokq.Admin) -> None:
    """Raise the errors of the partitions of a group, which `list_group_offsets` only returns."""
    listed = await admin.list_group_offsets({"readable": [SECRET]}, raise_errors=True)
    raise errors.CommitFailed(dict(listed["readable"].errors))


TOPIC = aiokq.ConfigResource(aiokq.ConfigResourceType.TOPIC, "seen")
GROUP = aiokq.ConfigResource(aiokq.ConfigResourceType.GROUP, "readable")
BROKER = aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "0")
CONFIGS = {"TOPIC:seen": TOPIC, "GROUP:readable": GROUP, CLUSTER: BROKER}
ACL = aiokq.Acl.parse("User:x Allow Read Topic:t")
QUOTA = {aiokq.ClientQuotaEntity(user="x"): {"producer_byte_rate": 1.0}}
SPEC = aiokq.AbortTransactionSpec(READABLE, 1, 0, 0)

ADMIN: list[tuple[str, Call, Denial]] = [
    ("abort_transaction", lambda a: a.abort_transaction(SPEC), ("ALTER", CLUSTER)),
    (
        "abort_transaction",
        lambda a: a.abort_transaction(aiokq.AbortTransactionSpec(SECRET, 1, 0, 0)),
        DESCRIBE_SECRET,
    ),
    ("alter_client_quotas", raising("alter_client_quotas", QUOTA), ("ALTER_CONFIGS", CLUSTER)),
    *(
        (name, raising(name, argument), (operation, resource))
        for resource, config in (
            ("TOPIC:seen", TOPIC),
            ("GROUP:readable", GROUP),
            (CLUSTER, BROKER),
        )
        for name, argument, operation in (
            ("alter_configs", {config: {"x": "1"}}, "ALTER_CONFIGS"),
            ("describe_configs", config, "DESCRIBE_CONFIGS"),
        )
    ),
    ("alter_group_offsets", raising("alter_group_offsets", "hidden", {READABLE: 0}), NO_GROUP),
    ("alter_group_offsets", raising("alter_group_offsets", "described", {READABLE: 0}), READ_GROUP),
    ("alter_group_offsets", raising("alter_group_offsets", "readable", {SEEN: 0}), READ_SEEN),
    (
        "alter_partition_reassignments",
        raising("alter_partition_reassignments", {SEEN: [0]}),
        ("ALTER", CLUSTER),
    ),
    (
        "alter_user_scram_credentials",
        raising("alter_user_scram_credentials", aiokq.ScramDeletion("x", "SCRAM-SHA-256")),
        ("ALTER", CLUSTER),
    ),
    ("create_acls", raising("create_acls", ACL), ("ALTER", CLUSTER)),
    ("create_partitions", raising("create_partitions", {"seen": 4}), ("ALTER", "TOPIC:seen")),
    ("create_topics", raising("create_topics", "new"), ("CREATE", "TOPIC:new")),
    ("delete_acls", raising("delete_acls", ACL), ("ALTER", CLUSTER)),
    ("delete_group_offsets", raising("delete_group_offsets", "hidden", [READABLE]), NO_GROUP),
    (
        "delete_group_offsets",
        raising("delete_group_offsets", "readable", [READABLE]),
        ("DELETE", "GROUP:readable"),
    ),
    ("delete_group_offsets", raising("delete_group_offsets", "deletable", [SEEN]), READ_SEEN),
    ("delete_groups", raising("delete_groups", "hidden"), NO_GROUP),
    ("delete_groups", raising("delete_groups", "readable"), ("DELETE", "GROUP:readable")),
    ("delete_records", raising("delete_records", {SEEN: 0}), ("DELETE", "TOPIC:seen")),
    ("delete_records", raising("delete_records", {SECRET: 0}), DESCRIBE_SECRET),
    ("delete_topics", raising("delete_topics", "seen"), ("DELETE", "TOPIC:seen")),
    ("describe_acls", lambda a: a.describe_acls(), ("DESCRIBE", CLUSTER)),
    (
        "describe_client_quotas",
        lambda a: a.describe_client_quotas(),
        ("DESCRIBE_CONFIGS", CLUSTER),
    ),
    ("describe_groups", raising("describe_groups", "hidden"), NO_GROUP),
    ("describe_log_dirs", raising("describe_log_dirs"), ("DESCRIBE", CLUSTER)),
    ("describe_metadata_quorum", lambda a: a.describe_metadata_quorum(), ("DESCRIBE", CLUSTER)),
    ("describe_producers", raising("describe_producers", [SEEN]), READ_SEEN),
    ("describe_producers", raising("describe_producers", [SECRET]), DESCRIBE_SECRET),
    ("describe_topics", raising("describe_topics", "secret"), DESCRIBE_SECRET),
    (
        "describe_transactions",
        raising("describe_transactions", "hidden"),
        ("DESCRIBE", "TRANSACTIONAL_ID:hidden"),
    ),
    (
        "describe_user_scram_credentials",
        raising("describe_user_scram_credentials"),
        ("DESCRIBE", CLUSTER),
    ),
    ("elect_leaders", raising("elect_leaders"), ("ALTER", CLUSTER)),
    *(
        (name, call("hidden"), ("DESCRIBE", "TRANSACTIONAL_ID:hidden"))
        for name, call in (
            ("fence_producers", lambda x: raising("fence_producers", x)),
            ("terminate_transaction", lambda x: lambda a: a.terminate_transaction(x)),
        )
    ),
    *(
        (name, call("described"), ("WRITE", "TRANSACTIONAL_ID:described"))
        for name, call in (
            ("fence_producers", lambda x: raising("fence_producers", x)),
            ("terminate_transaction", lambda x: lambda a: a.terminate_transaction(x)),
        )
    ),
    ("group_lag", raising("group_lag", "hidden"), NO_GROUP),
    (
        "import_group_offsets",
        raising("import_group_offsets", {"hidden": {READABLE: 0}}),
        NO_GROUP,
    ),
    (
        "import_group_offsets",
        raising("import_group_offsets", {"described": {READABLE: 0}}, overwrite=True),
        READ_GROUP,
    ),
    (
        "import_group_offsets",
        raising("import_group_offsets", {"readable": {SECRET: 0}}),
        DESCRIBE_SECRET,
    ),
    (
        "list_config_resources",
        lambda a: a.list_config_resources(),
        ("DESCRIBE_CONFIGS", CLUSTER),
    ),
    ("list_group_offsets", raising("list_group_offsets", "hidden"), NO_GROUP),
    ("list_group_offsets", offsets_of_topics, DESCRIBE_SECRET),
    ("list_offsets", raising("list_offsets", {SECRET: "latest"}), DESCRIBE_SECRET),
    (
        "list_partition_reassignments",
        lambda a: a.list_partition_reassignments(),
        ("DESCRIBE", CLUSTER),
    ),
    ("remove_members", raising("remove_members", "hidden", None), NO_GROUP),
    *(
        case
        for name in ("reset_group_offsets", "rewind_group")
        for case in (
            (name, raising(name, "hidden", "earliest", ["readable"]), NO_GROUP),
            (name, raising(name, "described", "earliest", ["readable"]), READ_GROUP),
            (name, raising(name, "readable", "earliest", ["seen"]), READ_SEEN),
            (name, raising(name, "readable", "earliest", ["secret"]), DESCRIBE_SECRET),
            (name, raising(name, "readable", "earliest", [SECRET]), DESCRIBE_SECRET),
        )
    ),
    ("unregister_broker", lambda a: a.unregister_broker(5), ("ALTER", CLUSTER)),
    ("update_features", raising("update_features", {"group.version": 1}), ("ALTER", CLUSTER)),
]


@pytest.mark.parametrize(("name", "call", "expected"), ADMIN)
async def test_admin(kafka: aiokq.EmbeddedCluster, name: str, call: Call, expected: Denial) -> None:
    async with aiokq.Admin(**kafka.client_settings("alice")) as admin:
        check(await denials_of(lambda: call(admin)), "User:alice", expected)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("name", ["remove_members", "rewind_group"])
async def test_admin_of_a_group_with_members(
    kafka: aiokq.EmbeddedCluster, protocol: str, name: str
) -> None:
    group_id = f"members-{name}-{protocol}"
    call = raising(name, group_id, *((None,) if name == "remove_members" else ("earliest", [SEEN])))
    async with (
        aiokq.Cluster(**kafka.client_settings("root")) as cluster,
        cluster.consumer(
            "seen", group_id=group_id, group_protocol=protocol, auto_offset_reset="earliest"
        ) as consumer,
        aiokq.Admin(**kafka.client_settings("alice")) as admin,
    ):
        await consumer.getone()
        denials = await denials_of(lambda: call(admin))
        check(denials, "User:alice", ("READ", f"GROUP:{group_id}"))


async def test_no_call_is_forgotten() -> None:
    # A listing and the description of the cluster leave out what a client may not see.
    listings = {"list_topics", "list_groups", "list_transactions", "describe_cluster"}
    check_completeness(
        aiokq.Admin,
        {name for name, _, _ in ADMIN},
        {*listings, "describe_features", "start", "close"},
    )

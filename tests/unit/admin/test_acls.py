"""Admin.describe_acls, create_acls and delete_acls on an embedded broker."""

from __future__ import annotations

import pytest

import aiokq
from aiokq import Acl, AclFilter, errors
from aiokq.core.acl_types import Operation, PatternType, PermissionType, ResourceType

LINE = "User:alice Allow Read Topic:orders"


@pytest.fixture
async def admin():
    lines = ["User:ANONYMOUS Allow All Cluster"]
    async with (
        aiokq.EmbeddedCluster(acls=lines) as kafka,
        aiokq.Admin(kafka.bootstrap_servers) as admin,
    ):
        await admin.delete_acls([AclFilter("nobody")])
        yield admin


async def test_acls_are_created_listed_and_deleted(admin):
    [acl] = Acl.parse(LINE)
    results = await admin.create_acls([LINE, acl, "User:bob Deny Read,Write Topic:o* from ::1"])
    assert results.ok
    assert [str(each) for each in results] == [
        LINE,
        "User:bob Deny Read Topic:o* from ::1",
        "User:bob Deny Write Topic:o* from ::1",
    ]
    assert await admin.describe_acls(AclFilter("User:alice")) == (acl,)
    covering = AclFilter(
        resource_type=ResourceType.TOPIC, resource_name="orders", pattern_type=PatternType.MATCH
    )
    assert len(await admin.describe_acls(covering)) == 3
    deleted = await admin.delete_acls(
        [LINE, AclFilter("User:bob", permission_type=PermissionType.DENY), AclFilter("User:x")]
    )
    assert [len(each.acls) for each in deleted.values()] == [1, 2, 0]
    assert deleted.ok
    assert deleted[AclFilter.of(acl)].acls == (acl,)
    assert len(await admin.describe_acls()) == 1


async def test_each_acl_has_its_own_error(admin):
    bad = Acl("alice", Operation.READ, ResourceType.TOPIC, "orders")
    results = await admin.create_acls([bad, LINE])
    assert isinstance(results[bad].error, errors.InvalidRequest)
    assert results[Acl.parse(LINE)[0]].error is None
    with pytest.raises(errors.InvalidRequest):
        await admin.create_acls([bad], raise_errors=True)


async def test_a_denied_client_learns_what_it_lacks():
    async with (
        aiokq.EmbeddedCluster(acls=[]) as kafka,
        aiokq.Admin(kafka.bootstrap_servers) as admin,
    ):
        with pytest.raises(errors.ClusterAuthorization) as caught:
            await admin.describe_acls()
        assert caught.value.operation == "DESCRIBE"
        assert caught.value.resource == "CLUSTER:kafka-cluster"
        results = await admin.create_acls([LINE])
        [result] = results.values()
        assert isinstance(result.error, errors.ClusterAuthorization)


async def test_without_an_authorizer_acls_are_disabled():
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Admin(kafka.bootstrap_servers) as admin,
    ):
        with pytest.raises(errors.SecurityDisabled):
            await admin.describe_acls()
        [result] = (await admin.delete_acls([AclFilter()])).values()
        assert isinstance(result.error, errors.SecurityDisabled)


@pytest.mark.parametrize(
    ("call", "given", "error"),
    [
        ("create_acls", LINE, TypeError),
        ("create_acls", [3], TypeError),
        ("create_acls", 3, TypeError),
        ("create_acls", ["x"], errors.ConfigError),
        (
            "create_acls",
            [Acl("User:a", Operation.ANY, ResourceType.TOPIC, "t")],
            errors.ConfigError,
        ),
        ("delete_acls", AclFilter(), TypeError),
        ("delete_acls", [None], TypeError),
        ("describe_acls", LINE, TypeError),
    ],
)
async def test_a_wrong_argument_is_refused(admin, call, given, error):
    with pytest.raises(error):
        await getattr(admin, call)(given)

"""`Admin.describe_client_quotas` and `alter_client_quotas`, against a broker in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokq import Admin, ClientQuotaEntity, EmbeddedCluster, QuotaName
from aiokq.core.errors import ConfigError, InvalidRequest
from tests.sim.harness.simulation import Simulation, run

ALICE = ClientQuotaEntity(user="alice")
APP = ClientQuotaEntity(client_id="app")
ALICES_APP = ClientQuotaEntity(user="alice", client_id="app")
ANYBODY = ClientQuotaEntity(user=QuotaName.DEFAULT)


def with_admin(main: Callable[[Admin], Awaitable[None]]) -> None:
    async def started(world: Simulation) -> None:
        kafka = EmbeddedCluster(port=9092, environment=world.environment())
        async with kafka, Admin(kafka.bootstrap_servers, _environment=world.environment()) as admin:
            await main(admin)

    run(1, started)


def test_what_was_set_is_described() -> None:
    """By entity and key; a filter takes names, the default, and any name."""

    async def main(admin: Admin) -> None:
        rates = {"producer_byte_rate": 1e6, "request_percentage": 2.5}
        changes = {ALICE: rates, ANYBODY: rates, ALICES_APP: {"consumer_byte_rate": 5}}
        done = await admin.alter_client_quotas(changes)
        assert done.ok
        assert list(done) == list(changes)
        assert await admin.describe_client_quotas() == changes
        assert await admin.describe_client_quotas(ANYBODY) == {ANYBODY: rates}
        found = await admin.describe_client_quotas(ALICE)
        assert found == {ALICE: rates, ALICES_APP: {"consumer_byte_rate": 5}}
        assert await admin.describe_client_quotas(ALICE, strict=True) == {ALICE: rates}
        every = ClientQuotaEntity(user=QuotaName.ANY)
        assert await admin.describe_client_quotas(every) == changes
        assert list(await admin.describe_client_quotas(every, strict=True)) == [ALICE, ANYBODY]
        await admin.alter_client_quotas({ALICE: {"producer_byte_rate": None}}, raise_errors=True)
        found = await admin.describe_client_quotas(ALICE, strict=True)
        assert found == {ALICE: {"request_percentage": 2.5}}

    with_admin(main)


def test_each_entity_has_its_own_error() -> None:
    """A wrong rate of one leaves the others alone."""

    async def main(admin: Admin) -> None:
        done = await admin.alter_client_quotas(
            {ALICE: {"producer_byte_rate": 0.5}, APP: {"producer_byte_rate": 5}}
        )
        assert list(done.errors) == [ALICE]
        with pytest.raises(InvalidRequest, match="cannot be a fractional value"):
            done.raise_for_errors()
        assert await admin.describe_client_quotas() == {APP: {"producer_byte_rate": 5}}
        await admin.alter_client_quotas({ALICE: {"producer_byte_rate": 5}}, validate_only=True)
        assert ALICE not in await admin.describe_client_quotas()

    with_admin(main)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"alice": {}}, TypeError),
        ({ALICE: 5}, TypeError),
        ({ALICE: {5: 5}}, TypeError),
        ({ALICE: {"producer_byte_rate": "5"}}, TypeError),
        ({ALICE: {"producer_byte_rate": True}}, TypeError),
        ({ALICE: {"producer_byte_rate": 0}}, ValueError),
        ({ALICE: {"producer_byte_rate": float("nan")}}, ValueError),
        ({ClientQuotaEntity(): {}}, ConfigError),
        ({ClientQuotaEntity(user=""): {}}, ConfigError),
        ({ClientQuotaEntity(user=QuotaName.ANY): {}}, ConfigError),
        ({ClientQuotaEntity(user="a", ip="10.0.0.1"): {}}, ConfigError),
        ({ClientQuotaEntity(user=5): {}}, TypeError),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    changes: Any, error: type[Exception]
) -> None:
    """The message names the entity and the key."""

    async def main(admin: Admin) -> None:
        with pytest.raises(error):
            await admin.alter_client_quotas(changes)

    with_admin(main)


def test_entities_have_a_text() -> None:
    """For messages and tables; a user may have the name of the default."""
    assert str(ALICES_APP) == "user 'alice', client-id 'app'"
    assert str(ANYBODY) == "user <default>"
    assert str(ClientQuotaEntity(user="<default>")) == "user '<default>'"
    assert str(ClientQuotaEntity()) == "no entity"

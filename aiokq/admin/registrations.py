"""Removal of a broker's registration."""

from __future__ import annotations

from collections.abc import Mapping

from aiokq.admin.coordinator_calls import may_have_been_done
from aiokq.admin.retrying import per_item
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import CONTROLLER
from aiokq.core import limits
from aiokq.core.errors import BrokerIdNotRegistered, ConnectionLost, RequestTimeout, raise_for
from aiokq.wire.unregister_broker import UnregisterBrokerRequest

__all__ = ["unregister_broker"]


async def unregister_broker(
    engine: ClusterEngine, broker_id: int, *, timeout: float | None
) -> None:
    """Implement `Admin.unregister_broker`."""
    limits.count(broker_id, "broker_id", 0)
    unanswered = False

    async def attempt(left: Mapping[int, None], remaining: float) -> dict[int, None]:
        nonlocal unanswered
        try:
            response = await engine.request(
                UnregisterBrokerRequest(broker_id=broker_id), node=CONTROLLER, timeout=remaining
            )
        except (ConnectionLost, RequestTimeout) as error:
            unanswered |= may_have_been_done(error)
            raise
        # BROKER_ID_NOT_REGISTERED is a success if the response to an earlier attempt was lost.
        if not (unanswered and response.error_code == BrokerIdNotRegistered.code):
            raise_for(response.error_code, response.error_message, api="UnregisterBroker")
        return dict(left)

    await per_item(engine, {broker_id: None}, attempt, api="UnregisterBroker", timeout=timeout)

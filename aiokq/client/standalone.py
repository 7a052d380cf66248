"""`process()` with a Cluster of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from aiokq.client.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.client.process.handler_calls import Handler
    from aiokq.client.process.options import ProcessReport
    from aiokq.client.process_arguments import ProcessArguments
    from aiokq.cluster.settings import ClusterSettings

__all__ = ["process"]


async def process(
    bootstrap_servers: str | Sequence[str],
    topics: Sequence[str] | str,
    handler: Handler,
    /,
    *,
    settings: ClusterSettings | None = None,
    **arguments: Unpack[ProcessArguments],
) -> ProcessReport:
    """Connect to a cluster, and handle each record of topics; see `Cluster.process`.

    Args:
        bootstrap_servers: "host:port" addresses, in a comma-separated string or in a list.
        settings: further settings of the Cluster, for example of its security.
        arguments: the keyword arguments of `Cluster.process`.

    Raises:
        BootstrapFailed: no bootstrap server answered.
        Exception: see `Cluster.process`.
    """
    async with Cluster(bootstrap_servers, settings=settings) as cluster:
        return await cluster.process(topics, handler, **arguments)

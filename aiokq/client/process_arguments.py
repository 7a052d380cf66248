"""The keyword arguments of `process()` as a TypedDict, for editors and type checkers.

`Cluster.process` documents the arguments. tests/unit/client/test_process_arguments.py compares the
TypedDict with the signature of the method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Required, TypedDict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from aiokq.client.cluster import Cluster
    from aiokq.client.process.options import Guarantee, OrderBy

__all__ = ["ProcessArguments"]


class ProcessArguments(TypedDict, total=False):
    """The keyword arguments of `Cluster.process`."""

    group_id: Required[str]
    guarantee: Guarantee
    batch: bool
    concurrency: int
    order_by: OrderBy
    output: Cluster | None
    group_instance_id: str | None
    transaction_timeout_ms: int
    commit_interval_ms: int
    max_records: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    dead_letter_topic: str | None
    stop: asyncio.Event | None
    consumer_settings: Mapping[str, object] | None
    producer_settings: Mapping[str, object] | None

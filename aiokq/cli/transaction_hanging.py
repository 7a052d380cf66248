"""`aiokq transactions find-hanging`: open transactions that no coordinator will end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import at_most
from aiokq.cli.output import Output
from aiokq.cli.transaction_options import NodeId
from aiokq.core import limits

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.transaction_types import ProducerState, TransactionDescription
    from aiokq.core.types import TopicPartition

__all__ = ["find_hanging"]

Open = tuple["TopicPartition", "ProducerState"]

MAX_PARTITIONS: Final = 500
"""Maximum number of partitions in a DescribeProducers request, as in Kafka's tool."""

MINUTE_MS: Final = 60_000


@admin_command
def find_hanging(
    call: AdminCall,
    node_id: NodeId = None,
    timeout_minutes: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            callback=at_most(limits.INT32_MAX),
            help="Only transactions whose last record is older than this.",
        ),
    ] = 15,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.", show_default=False),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            metavar="P",
            min=0,
            callback=at_most(limits.INT32_MAX),
            help="Only this partition of the topic.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find hanging transactions: open transactions that no coordinator will end.

    Readers with isolation level read_committed stop at the start of a hanging transaction. To end
    the transaction, use `aiokq transactions abort`.
    """
    if topic is None and node_id is None:
        raise typer.BadParameter("give --topic or --broker-id, to limit the search")
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")

    async def run(admin: Admin) -> None:
        from aiokq.core.types import TopicPartition

        if topic is not None and partition is not None:
            searched = [TopicPartition(topic, partition)]
        else:
            searched = await _partitions(admin, topic, node_id)
        now_ms = call.session.now_ms()
        found = await _open(call.out, admin, searched, node_id)
        older = now_ms - timeout_minutes * MINUTE_MS
        old = [(tp, state) for tp, state in found if state.last_timestamp_ms < older]
        _print(call.out, await _hanging(call.out, admin, old), now_ms)

    call.run(run)


async def _partitions(admin: Admin, topic: str | None, node_id: int | None) -> list[TopicPartition]:
    """Return the partitions of a topic, or of all topics if `topic` is None.

    If `node_id` is given, partitions without a replica on this broker are left out.
    """
    from aiokq.core.types import TopicPartition

    names = [topic] if topic is not None else list(await admin.list_topics(internal=True))
    described = await admin.describe_topics(names, raise_errors=True)
    return [
        TopicPartition(name, each.partition)
        for name, found in described.items()
        for each in found.partitions
        if node_id is None or node_id in each.replicas
    ]


async def _open(
    out: Output, admin: Admin, partitions: Sequence[TopicPartition], node_id: int | None
) -> list[Open]:
    """Return the open transactions of the partitions."""
    found: list[Open] = []
    for start in range(0, len(partitions), MAX_PARTITIONS):
        described = await admin.describe_producers(
            partitions[start : start + MAX_PARTITIONS], node_id=node_id
        )
        for tp, each in described.items():
            if each.error is not None:
                out.problem(str(tp), each.error)
            found += [
                (tp, state)
                for state in each.producers
                if state.current_transaction_start_offset is not None
            ]
    return found


async def _hanging(out: Output, admin: Admin, found: Iterable[Open]) -> list[Open]:
    """Return the transactions that no coordinator will end.

    A transaction hangs if its producer id belongs to no transactional id, or if its partition is
    not in the current transaction of the transactional id. Otherwise the coordinator will write the
    marker.
    """
    found = list(found)
    if not found:
        return []
    listed = await admin.list_transactions(producer_ids={state.producer_id for _, state in found})
    # If a broker did not answer, its transactions are missing in the listing and seem to hang.
    listed.raise_for_errors()
    names = {each.producer_id: each.transactional_id for each in listed.values()}
    described = await admin.describe_transactions(sorted(set(names.values())))
    return [
        (tp, state)
        for tp, state in found
        if not _is_known(out, tp, names.get(state.producer_id), described)
    ]


def _is_known(
    out: Output,
    tp: TopicPartition,
    name: str | None,
    described: Mapping[str, TransactionDescription],
) -> bool:
    """Return whether the coordinator will write the marker to the partition.

    If the transactional id cannot be described, print the error and return true.
    """
    from aiokq.core.errors import TransactionalIdNotFound

    if name is None:
        return False
    found = described[name]
    if found.error is None or isinstance(found.error, TransactionalIdNotFound):
        return tp in found.topic_partitions
    out.problem(name, found.error)
    return True


def _print(out: Output, hanging: Sequence[Open], now_ms: int) -> None:
    if out.as_json:
        out.document(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "producer_id": state.producer_id,
                    "producer_epoch": state.producer_epoch,
                    "coordinator_epoch": state.coordinator_epoch,
                    "start_offset": state.current_transaction_start_offset,
                    "last_timestamp_ms": state.last_timestamp_ms,
                    "duration_ms": now_ms - state.last_timestamp_ms,
                }
                for tp, state in hanging
            ]
        )
        return
    out.table(
        (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "Duration(min)",
        ),
        [
            (
                tp.topic,
                tp.partition,
                state.producer_id,
                state.producer_epoch,
                -1 if state.coordinator_epoch is None else state.coordinator_epoch,
                state.current_transaction_start_offset,
                state.last_timestamp_ms,
                (now_ms - state.last_timestamp_ms) // MINUTE_MS,
            )
            for tp, state in hanging
        ],
    )

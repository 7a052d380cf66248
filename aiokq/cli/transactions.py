"""`aiokq transactions` and its commands `list`, `describe` and `describe-producers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.help_text import examples
from aiokq.cli.options import at_most
from aiokq.cli.output import Json, Output, error_json
from aiokq.cli.transaction_changes import abort, terminate
from aiokq.cli.transaction_hanging import find_hanging
from aiokq.cli.transaction_options import (
    NodeId,
    Partition,
    Topic,
    TransactionalIdOptions,
    TransactionalIds,
    wanted_ids,
)
from aiokq.core import limits

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.transaction_types import TransactionDescription

__all__ = ["transactions"]

transactions = typer.Typer(
    no_args_is_help=True,
    help="List and describe transactions; find, abort and terminate those that hang.",
)


@transactions.command(
    "list",
    epilog=examples(
        "aiokq transactions list",
        "aiokq transactions list --state ongoing --duration-filter 60000",
        "aiokq transactions list --transactional-id-pattern 'orders-.*' --json",
    ),
)
@admin_command
def list_transactions(
    call: AdminCall,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only transactional ids in this state (Ongoing, Empty, ...); repeatable.",
        ),
    ] = None,
    duration: Annotated[
        int | None,
        typer.Option(
            "--duration-filter",
            metavar="MS",
            callback=at_most(limits.INT64_MAX),
            help="Only transactions that began longer ago than this, in milliseconds; all if it is "
            "negative.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--transactional-id-pattern",
            metavar="REGEX",
            help="Only transactional ids that match this regular expression.",
        ),
    ] = None,
) -> None:
    """List the transactional ids of a cluster, from all of its brokers."""

    async def run(admin: Admin) -> None:
        longer = None if duration is None or duration < 0 else duration
        found = await admin.list_transactions(
            states=states or (), longer_than_ms=longer, pattern=pattern
        )
        for node, error in found.errors.items():
            call.out.problem(f"broker {node}", error)
        if call.out.as_json:
            call.out.document(
                [
                    {
                        "transactional_id": each.transactional_id,
                        "coordinator": each.coordinator,
                        "producer_id": each.producer_id,
                        "state": each.state,
                    }
                    for each in found.values()
                ]
            )
            return
        call.out.table(
            ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
            [(t.transactional_id, t.coordinator, t.producer_id, t.state) for t in found.values()],
        )

    call.run(run)


@transactions.command(
    epilog=examples(
        "aiokq transactions describe orders-1", "aiokq transactions describe orders-1 --json"
    )
)
@admin_command
def describe(
    call: AdminCall,
    transactional_ids: TransactionalIds = None,
    named: TransactionalIdOptions = None,
) -> None:
    """Show the state of transactional ids and the partitions of their transactions."""
    wanted = wanted_ids(transactional_ids or (), named or ())
    call.run(lambda admin: _describe(admin, call.out, wanted, call.session.now_ms()))


async def _describe(admin: Admin, out: Output, wanted: list[str], now_ms: int) -> None:
    found = await admin.describe_transactions(wanted)
    for name, error in found.errors.items():
        out.problem(name, error)
    if out.as_json:
        out.document([_description_json(each, now_ms) for each in found.values()])
        return
    described = [each for each in found.values() if each.error is None]
    if not described:
        return
    out.table(
        (
            "CoordinatorId",
            "TransactionalId",
            "ProducerId",
            "ProducerEpoch",
            "TransactionState",
            "TransactionTimeoutMs",
            "CurrentTransactionStartTimeMs",
            "TransactionDurationMs",
            "TopicPartitions",
        ),
        [
            (
                each.coordinator,
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                each.state,
                each.transaction_timeout_ms,
                "None" if each.start_timestamp_ms is None else each.start_timestamp_ms,
                "None" if each.start_timestamp_ms is None else now_ms - each.start_timestamp_ms,
                ",".join(map(str, each.topic_partitions)),
            )
            for each in described
        ],
    )


def _description_json(found: TransactionDescription, now_ms: int) -> Json:
    started = found.start_timestamp_ms
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "transaction_timeout_ms": found.transaction_timeout_ms,
        "start_timestamp_ms": started,
        "duration_ms": None if started is None else now_ms - started,
        "partitions": [
            {"topic": topic, "partition": number} for topic, number in found.topic_partitions
        ],
        "error": error_json(found.error),
    }


@transactions.command(
    "describe-producers",
    epilog=examples("aiokq transactions describe-producers --topic orders --partition 0"),
)
@admin_command
def describe_producers(
    call: AdminCall, topic: Topic, partition: Partition, node_id: NodeId = None
) -> None:
    """Show the producer states of a partition, including open transactions."""

    async def run(admin: Admin) -> None:
        results = await admin.describe_producers(
            [(topic, partition)], node_id=node_id, raise_errors=True
        )
        (found,) = results.values()
        if call.out.as_json:
            call.out.document(
                [
                    {
                        "producer_id": each.producer_id,
                        "producer_epoch": each.producer_epoch,
                        "coordinator_epoch": each.coordinator_epoch,
                        "last_sequence": each.last_sequence,
                        "last_timestamp_ms": each.last_timestamp_ms,
                        "current_transaction_start_offset": each.current_transaction_start_offset,
                    }
                    for each in found.producers
                ]
            )
            return
        call.out.table(
            (
                "ProducerId",
                "ProducerEpoch",
                "LatestCoordinatorEpoch",
                "LastSequence",
                "LastTimestamp",
                "CurrentTransactionStartOffset",
            ),
            [
                (
                    each.producer_id,
                    each.producer_epoch,
                    -1 if each.coordinator_epoch is None else each.coordinator_epoch,
                    each.last_sequence,
                    each.last_timestamp_ms,
                    "None"
                    if each.current_transaction_start_offset is None
                    else each.current_transaction_start_offset,
                )
                for each in found.producers
            ],
        )

    call.run(run)


transactions.command(
    "find-hanging",
    epilog=examples(
        "aiokq transactions find-hanging --topic orders",
        "aiokq transactions find-hanging --broker-id 1 --max-transaction-timeout 30",
    ),
)(find_hanging)
transactions.command(
    epilog=examples(
        "aiokq transactions abort --topic orders --partition 0 --start-offset 1200",
    )
)(abort)
transactions.command(epilog=examples("aiokq transactions terminate orders-1"))(terminate)
# kafka-transactions has this name for `terminate`.
transactions.command("forceTerminateTransaction", hidden=True)(terminate)

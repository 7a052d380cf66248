"""`aiokq transactions abort` (one partition's transaction) and `terminate` (a producer's)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import at_most
from aiokq.cli.transaction_options import (
    Partition,
    TerminatedId,
    Topic,
    TransactionalId,
    one_id,
)
from aiokq.core import limits

if TYPE_CHECKING:
    from aiokq.admin.client import Admin
    from aiokq.admin.transaction_types import AbortTransactionSpec
    from aiokq.core.types import TopicPartition

__all__ = ["abort", "terminate"]


OLDER = "Brokers older than 3.0"


@admin_command
def abort(
    call: AdminCall,
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="OFFSET",
            min=0,
            callback=at_most(limits.INT64_MAX),
            help="First offset of the transaction, as find-hanging and describe-producers show it.",
            show_default=False,
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            "--producer-id",
            min=0,
            callback=at_most(limits.INT64_MAX),
            show_default=False,
            rich_help_panel=OLDER,
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(
            "--producer-epoch",
            min=0,
            callback=at_most(limits.INT16_MAX),
            show_default=False,
            rich_help_panel=OLDER,
        ),
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch",
            min=-1,
            callback=at_most(limits.INT32_MAX),
            show_default=False,
            rich_help_panel=OLDER,
        ),
    ] = None,
) -> None:
    """Abort a hanging transaction in one partition, by writing an abort marker.

    If a coordinator still manages the transaction, use `aiokq transactions terminate` instead.
    """
    if start_offset is None and producer_id is None:
        raise typer.BadParameter(
            "name the transaction by --start-offset, or for brokers older than 3.0 by "
            "--producer-id, --producer-epoch and --coordinator-epoch"
        )
    if start_offset is None and (producer_epoch is None or coordinator_epoch is None):
        raise typer.BadParameter("--producer-id needs --producer-epoch and --coordinator-epoch")

    async def run(admin: Admin) -> None:
        from aiokq.admin.transaction_types import AbortTransactionSpec
        from aiokq.core.types import TopicPartition

        tp = TopicPartition(topic, partition)
        spec: AbortTransactionSpec | None
        if start_offset is not None:
            spec = await _starting_at(admin, tp, start_offset)
        else:
            assert producer_id is not None
            assert producer_epoch is not None
            assert coordinator_epoch is not None
            # describe-producers shows -1 for a producer without an earlier marker. The partition
            # then accepts any epoch from 0.
            spec = AbortTransactionSpec(tp, producer_id, producer_epoch, max(0, coordinator_epoch))
        if spec is None:
            call.out.trouble(f"{tp}: no open transaction starts at offset {start_offset}")
            return
        await admin.abort_transaction(spec)
        if call.out.as_json:
            call.out.document(
                {
                    "topic": topic,
                    "partition": partition,
                    "producer_id": spec.producer_id,
                    "producer_epoch": spec.producer_epoch,
                    "coordinator_epoch": spec.coordinator_epoch,
                    "aborted": True,
                }
            )
        else:
            call.out.line(f"{tp}: transaction of producer {spec.producer_id} aborted")

    call.run(run)


async def _starting_at(
    admin: Admin, tp: TopicPartition, start_offset: int
) -> AbortTransactionSpec | None:
    """Return the open transaction that starts at the offset; None if there is none."""
    from aiokq.admin.transaction_types import AbortTransactionSpec

    found = (await admin.describe_producers([tp], raise_errors=True))[tp]
    for producer in found.producers:
        if producer.current_transaction_start_offset == start_offset:
            return AbortTransactionSpec.of(tp, producer)
    return None


@admin_command
def terminate(
    call: AdminCall, argument: TransactionalId = None, named: TerminatedId = None
) -> None:
    """Abort the open transaction of a transactional id and fence its producer."""
    transactional_id = one_id(argument, named)

    async def run(admin: Admin) -> None:
        from aiokq.core.errors import TransactionalIdNotFound

        # Check first, because terminating an unknown transactional id would create it.
        described = (await admin.describe_transactions(transactional_id))[transactional_id]
        if isinstance(described.error, TransactionalIdNotFound):
            call.out.problem(transactional_id, described.error)
            return
        await admin.terminate_transaction(transactional_id)
        if call.out.as_json:
            call.out.document({"transactional_id": transactional_id, "terminated": True})
        else:
            call.out.line(f"{transactional_id} terminated")

    call.run(run)

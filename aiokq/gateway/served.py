"""Served: the part of a gateway that its HTTP interface and its reports use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aiokq import Cluster
    from aiokq.fastpath.gateway import Pool
    from aiokq.gateway.accounting import Accounting, Snapshot
    from aiokq.gateway.dead_letters import DeadLetters
    from aiokq.gateway.engine import Engine
    from aiokq.gateway.inputs import InputTotals, OpenInput
    from aiokq.gateway.router import Router
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.gateway.spool.spool import Spool
    from aiokq.metrics import HasClientCounters

__all__ = ["Problems", "Served"]


class Problems(NamedTuple):
    """Problems of a gateway, as texts for its operator.

    Attributes:
        reasons: why no messages are accepted; empty if the gateway is ready.
        warnings: problems that do not keep the gateway from accepting messages.
    """

    reasons: list[str]
    warnings: list[str]


class Served(Protocol):
    """The attributes and methods of `Gateway` that reports use. Context: loop."""

    settings: GatewaySettings
    pool: Pool
    router: Router
    accounting: Accounting
    spool: Spool | None
    started_at: float
    reload_error: str | None

    @property
    def cluster(self) -> Cluster:
        """The cluster that gets the messages."""
        ...

    @property
    def clients(self) -> Sequence[HasClientCounters]:
        """The cluster and the clients before it."""
        ...

    @property
    def engine(self) -> Engine:
        """The engine that delivers the messages."""
        ...

    @property
    def dead_letters(self) -> DeadLetters:
        """The writer of dead letters."""
        ...

    @property
    def inputs(self) -> Sequence[OpenInput]:
        """The inputs, in the order of the configuration."""
        ...

    def input_totals(self) -> Mapping[str, InputTotals]:
        """Return the counts of inputs by transport, with those of closed inputs."""
        ...

    @property
    def unguarded_ends(self) -> int:
        """Number of TCP inputs that were closed without refusing connections first."""
        ...

    @property
    def accepting(self) -> bool:
        """Whether the inputs are open."""
        ...

    @property
    def failed(self) -> BaseException | None:
        """The error with which a part of the gateway failed; None if none did."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the current counts."""
        ...

    def problems(self) -> Problems:
        """Return the reasons why no messages are accepted, and the warnings."""
        ...

    def measures(
        self, snapshot: Snapshot
    ) -> Iterable[tuple[str, Iterable[tuple[tuple[str, ...], float]]]]:
        """Return the metrics of the reports: names with samples, which are labels and values.

        Args:
            snapshot: the counts of this iteration of the loop.
        """
        ...

    def update_metadata(self) -> None:
        """Begin to request new metadata."""
        ...

    async def reload(self) -> list[str]:
        """Read the configuration file again; return the names of changed tables and options."""
        ...

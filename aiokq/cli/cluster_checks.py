"""Checks of a cluster for `aiokq doctor`: each address, and the latency and APIs of its broker."""

from __future__ import annotations

import asyncio
import ipaddress
import statistics
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from aiokq.cli.error_text import reason
from aiokq.cli.handshake_steps import Step, advice, failed_step
from aiokq.cli.installation_checks import Check, Status
from aiokq.cluster.addresses import BootstrapAddress
from aiokq.cluster.connection_settings import connection_options
from aiokq.cluster.values import ClusterValues
from aiokq.connection.handshake import open_connection
from aiokq.connection.network import system_environment
from aiokq.core.counters import ClientCounters
from aiokq.core.errors import ClusterAuthorization, KafkaError
from aiokq.wire import (
    ApiVersionsRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    Request,
    Response,
)
from aiokq.wire.describe_cluster import DescribeClusterRequest

if TYPE_CHECKING:
    from aiokq.admin.clusters import ClusterDescription
    from aiokq.cli.clouds import Cloud
    from aiokq.cli.session import Session
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.connection.connection import Connection
    from aiokq.core.environment import Address, Environment

__all__ = ["ClusterChecks"]

PINGS: Final = 5
_TOKEN_FIX: Final = "check sasl_oauth_token_provider, or the sasl_oauthbearer_ settings"
NEEDED: Final[tuple[type[Request[Response]], ...]] = (
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    InitProducerIdRequest,
)
"""For each of these requests, the check of a broker shows the newest common version."""


OPERATIONS: Final = {
    5: "CREATE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
"""The operations on a cluster, by their codes."""


class ClusterChecks:
    """Checks whether the brokers of a cluster answer, and how fast.

    Args:
        session: session that creates the clients.
        settings: settings of the cluster.
        cloud: the cluster's cloud service, with the advice to show; None for an unknown service.

    Raises:
        ConfigError: a file or a library that the settings need is missing.
    """

    def __init__(
        self, session: Session, settings: ClusterSettings, cloud: Cloud | None = None
    ) -> None:
        self._session = session
        self._settings = settings
        self._cloud = cloud
        self._environment: Environment = session.environment or system_environment()
        self._options = connection_options(ClusterValues.of(settings), self._environment)
        self._reached: set[BootstrapAddress] = set()
        self._others: list[Address] = []  # addresses that are not loopback addresses
        self._permissions: Check | None = None

    async def checks(self) -> AsyncIterator[Check]:
        """Check every address of bootstrap_servers, then all other brokers in the metadata.

        If the clients log in with a token, obtain a token first. Warn if a password or token is
        sent to another machine without TLS. The checks end early if there is no token, if no
        address answers, or if the cluster cannot be described.
        """
        prepare = self._options.security.prepare
        if prepare is not None:
            try:
                await prepare()
            except KafkaError as error:
                fix = _TOKEN_FIX if self._cloud is None else self._cloud.token_fix
                yield Check("token", Status.FAIL, reason(error), fix)
                return
            yield Check("token", Status.OK, "the source of SASL tokens gave a token")
        for address in self._settings.bootstrap_addresses:
            for check in await self._try(address, "bootstrap"):
                yield check
        warned = self._exposed_secret()
        if warned is not None:
            yield warned
        if not self._reached:
            return  # a Cluster would fail in the same way, but only after bootstrap_timeout_ms
        try:
            description = await self._describe()
        except KafkaError as error:
            denied = failed_step(error) is Step.AUTHORIZATION
            fix = advice(Step.AUTHORIZATION, error, "") if denied else "see the log of the broker"
            yield Check("metadata", Status.FAIL, reason(error), fix)
            return
        yield Check(
            "metadata",
            Status.OK,
            f"cluster {description.cluster_id}, controller {description.controller_id}, brokers "
            + ", ".join(str(broker.node_id) for broker in description.brokers),
        )
        if self._permissions is not None:
            yield self._permissions
        for broker in description.brokers:
            address = BootstrapAddress(broker.host, broker.port)
            if address in self._reached:
                continue
            for check in await self._try(address, f"broker {broker.node_id}"):
                yield check
        if warned is None and (late := self._exposed_secret()) is not None:
            yield late

    def _exposed_secret(self) -> Check | None:
        """Return a warning if a password or token is sent to another machine without TLS."""
        settings = self._settings
        mechanism = settings.sasl_mechanism
        sends_secret = mechanism in ("PLAIN", "OAUTHBEARER")
        if settings.security_protocol != "SASL_PLAINTEXT" or not sends_secret or not self._others:
            return None
        return Check(
            "login",
            Status.WARN,
            f"{mechanism} without TLS sends the password or token to {self._others[0]} in clear "
            "text",
            "use a listener with SASL_SSL, or SCRAM, which does not send the password",
        )

    def close(self) -> None:
        """End the threads that were started for name resolution."""
        if self._session.environment is None:
            self._environment.offload.close()

    async def _describe(self) -> ClusterDescription:
        async with (
            self._session.cluster(self._settings) as cluster,
            cluster.admin() as admin,
        ):
            return await admin.describe_cluster()

    async def _try(self, address: BootstrapAddress, name: str) -> list[Check]:
        """Check each IP address of a host; a failure is only a warning if another address works."""
        advertised = not name.startswith("bootstrap")
        where = "the broker's advertised.listeners" if advertised else "bootstrap_servers"
        try:
            found = await self._environment.network.resolve(*address)
        except OSError as error:
            detail = f"{address}: unknown host ({error.strerror or error})"
            return [Check(name, Status.FAIL, detail, f"check the name in {where}, and DNS")]
        checks = []
        for numeric in found:
            if not ipaddress.ip_address(numeric.host).is_loopback:
                self._others.append(numeric)
            of_name = "" if str(numeric) == str(address) else f" ({address})"
            try:
                detail = await self._handshake(numeric, address)
            except KafkaError as error:
                step = failed_step(error)
                status = Status.WARN if len(found) > 1 else Status.FAIL
                detail = f"{numeric}{of_name}: {reason(error)} [failed step: {step.value}]"
                checks.append(Check(name, status, detail, self._advice(step, error, where)))
                continue
            self._reached.add(address)
            checks.append(Check(name, Status.OK, f"{numeric}{of_name}: {detail}"))
        if address not in self._reached:
            checks = [Check(each.name, Status.FAIL, each.detail, each.fix) for each in checks]
        return checks

    def _advice(self, step: Step, error: KafkaError, where: str) -> str:
        hint = None if self._cloud is None else self._cloud.hints.get(step)
        told = advice(step, error, where)
        return (
            told if self._cloud is None or hint is None else f"{told}. {self._cloud.name}: {hint}"
        )

    async def _handshake(self, numeric: Address, address: BootstrapAddress) -> str:
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection = await open_connection(
            numeric,
            self._options,
            host=address.host,
            name=str(address),
            timeout=self._options.setup_timeout,
            environment=self._environment,
            counters=ClientCounters("doctor"),
        )
        try:
            connected = loop.time() - began
            latency = await _latency(connection)
            spoken = ", ".join(_version(connection, request) for request in NEEDED)
            if self._permissions is None and self._settings.security_protocol != "PLAINTEXT":
                self._permissions = await _permissions(connection)
        finally:
            await connection.close("checked")
        return (
            f"connected in {connected * 1000:.1f} ms, answers in {latency * 1000:.2f} ms; {spoken}"
        )


async def _latency(connection: Connection) -> float:
    """Return the median round-trip time of a few requests, in seconds."""
    loop = asyncio.get_running_loop()
    taken = []
    for _ in range(PINGS):
        began = loop.time()
        await connection.request(
            ApiVersionsRequest(client_software_name="aiokq", client_software_version="doctor"),
        )
        taken.append(loop.time() - began)
    return statistics.median(taken)


async def _permissions(connection: Connection) -> Check:
    """Check the permissions of the client: operations on the cluster, and visible topics."""
    try:
        cluster = await connection.request(
            DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
        metadata = await connection.request(MetadataRequest(topics=None))
    except KafkaError as error:
        return Check("authorization", Status.WARN, reason(error), "")
    bits = cluster.cluster_authorized_operations
    operations = [name for number, name in OPERATIONS.items() if bits >= 0 and bits >> number & 1]
    allowed = ", ".join(operations) or "no operation"
    detail = f"{allowed} on the cluster; sees {len(metadata.topics)} topics"
    if operations or metadata.topics:
        return Check("authorization", Status.OK, detail)
    denied = ClusterAuthorization()
    return Check("authorization", Status.WARN, detail, advice(Step.AUTHORIZATION, denied, ""))


def _version(connection: Connection, request: type[Request[Response]]) -> str:
    """Return the name of an API and the newest version that the client and the broker both support.

    Raises:
        UnsupportedVersion: there is no such version.
    """
    name = request.__name__.removesuffix("Request")
    return f"{name} {connection.version_for(request)}"

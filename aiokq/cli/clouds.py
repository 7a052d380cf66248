"""The host names, ports and logins of cloud Kafka services, for `aiokq doctor`.

A service is recognised by the host name of the cluster, or else by the source of its tokens. The
checks compare the client's settings with the logins of the service, before a connection is made. No
text of a check contains a secret.

Sources, looked up in 2026 (the guide "Managed Kafkas" names the pages): Amazon MSK Developer
Guide, "Port information" and "Sign-in credentials"; Confluent Cloud, "OAuth Configuration
Reference" and "mTLS"; Microsoft's samples for Event Hubs; Google Cloud, "Configure SASL
authentication" and "Configure mTLS authentication".
Tests: ``tests/unit/cli/test_clouds.py``, ``tests/fault/test_doctor_of_clouds.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aiokq.cli.handshake_steps import Step
from aiokq.cli.installation_checks import Check, Status
from aiokq.cluster.sasl_login import SaslLogin, sasl_login
from aiokq.cluster.values import ClusterValues
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.cluster.settings import ClusterSettings

__all__ = ["Cloud", "cloud_checks", "cloud_of"]

NAME: Final = "cloud"
"""The `Check.name` of all checks of this module."""


class Way(NamedTuple):
    """A kind of login that a service supports.

    Attributes:
        ports: the ports of the service for this login.
        protocol: the value of security_protocol.
        mechanism: the value of sasl_mechanism; None without SASL.
    """

    ports: tuple[int, ...]
    protocol: str
    mechanism: str | None

    def __str__(self) -> str:
        return self.protocol if self.mechanism is None else f"{self.protocol} with {self.mechanism}"


class Problem(NamedTuple):
    """A setting that is wrong for the service.

    Attributes:
        detail: what is wrong.
        fix: what to change.
        status: FAIL if the setting cannot work; WARN if it can work in some cases, such as a
            private link.
    """

    detail: str
    fix: str
    status: Status = Status.FAIL


class Cloud(NamedTuple):
    """The Kafka service of a cloud provider.

    Attributes:
        name: name of the service.
        host: pattern of the host names. The regex group `cluster` matches the same text for all
            brokers of a cluster; the regex group `region`, if any, matches the cluster's region.
        ways: the supported logins, the usual one first.
        provider: the value of sasl_oauth_token_provider for the service's tokens; None without one.
        check: returns the problems of a login.
        token_fix: advice for a client that cannot obtain a token.
        hints: advice for the service, by the step of the handshake that failed.
    """

    name: str
    host: re.Pattern[str]
    ways: tuple[Way, ...]
    provider: str | None
    check: Callable[[ClusterValues, SaslLogin], Iterator[Problem]]
    token_fix: str
    hints: Mapping[Step, str]


def cloud_of(settings: ClusterSettings) -> Cloud | None:
    """Return the service of the first bootstrap address, or else of the token provider.

    The result is None if neither is of a known service.
    """
    for address in settings.bootstrap_addresses[:1]:
        for cloud in CLOUDS:
            if cloud.host.fullmatch(address.host.lower().rstrip(".")):
                return cloud
    for cloud in CLOUDS:  # the host name may be a custom one, as with private links
        if cloud.provider is not None and cloud.provider == settings.sasl_oauth_token_provider:
            return cloud
    return None


def cloud_checks(settings: ClusterSettings, cloud: Cloud) -> list[Check]:
    """Return a failure or warning for each wrong setting, or one passed check if there are none."""
    problems = [*_of_addresses(settings, cloud), *_of_login(settings, cloud)]
    if problems:
        return [
            Check(NAME, each.status, f"{cloud.name}: {each.detail}", each.fix) for each in problems
        ]
    return [Check(NAME, Status.OK, f"{cloud.name}: the settings are those of the service")]


def _of_addresses(settings: ClusterSettings, cloud: Cloud) -> Iterator[Problem]:
    used = _way(settings)
    parts: dict[str, set[str]] = {"cluster": set(), "region": set()}
    for address in settings.bootstrap_addresses:
        found = cloud.host.fullmatch(address.host.lower().rstrip("."))
        if found is None:
            continue
        for name, value in found.groupdict().items():
            if value is not None:
                parts[name].add(value)
        fitting = [way for way in cloud.ways if address.port in way.ports]
        if any(way[1:] == used[1:] for way in fitting):
            continue
        same = [way for way in cloud.ways if way[1:] == used[1:]]
        offered = " or ".join(map(str, fitting))
        if same and fitting:
            port = same[0].ports[0]
            yield Problem(
                f"{address}: {used} is on port {port}; port {address.port} has {offered}",
                f"use port {port}, or set {offered}",
            )
        elif same:
            port = same[0].ports[0]
            yield Problem(
                f"{address}: {used} is usually on port {port}", f"use port {port}", Status.WARN
            )
        elif fitting:
            yield Problem(
                f"{address}: the port has {offered}, and the settings are {used}",
                f"set {offered}",
            )
        else:
            every = ", ".join(f"{way} (port {way.ports[0]})" for way in cloud.ways)
            yield Problem(f"{address}: the service does not offer {used}", f"choose one of {every}")
    for name, values in parts.items():
        if len(values) > 1:
            yield Problem(
                f"bootstrap_servers has hosts of different {name}s: {', '.join(sorted(values))}",
                f"name brokers of one {name} only",
            )
            return


def _of_login(settings: ClusterSettings, cloud: Cloud) -> Iterator[Problem]:
    provider = settings.sasl_oauth_token_provider
    if isinstance(provider, str) and provider != cloud.provider:
        own = f"set {cloud.provider}" if cloud.provider else "use another way of logging in"
        yield Problem(f"sasl_oauth_token_provider={provider} is of another service", own)
        return
    if settings.security_protocol.startswith("SASL_"):
        values = ClusterValues.of(settings)
        yield from cloud.check(values, sasl_login(values))


def _way(settings: ClusterSettings) -> Way:
    protocol = settings.security_protocol
    return Way((), protocol, settings.sasl_mechanism if protocol.startswith("SASL_") else None)


# --- what each service demands of a login


def _of_confluent(settings: ClusterValues, login: SaslLogin) -> Iterator[Problem]:
    if settings.sasl_mechanism == "PLAIN" and "@" in login.username:
        yield Problem(
            "the user name is an e-mail address", "use an API key of this cluster and its secret"
        )
    if settings.sasl_mechanism == "OAUTHBEARER" and "logicalCluster" not in login.extensions:
        yield Problem(
            "the extension logicalCluster is missing, which only Enterprise clusters behind AWS "
            "PrivateLink do without",
            "set sasl_oauthbearer_extensions=logicalCluster=lkc-...,identityPoolId=pool-...",
            Status.WARN,
        )


def _of_msk(settings: ClusterValues, login: SaslLogin) -> Iterator[Problem]:
    if settings.sasl_mechanism == "OAUTHBEARER" and login.request is not None:
        yield Problem(
            "the service takes tokens that AWS credentials have signed, and none of other servers",
            "set sasl_oauth_token_provider=aws_msk_iam",
        )


def _of_event_hubs(settings: ClusterValues, login: SaslLogin) -> Iterator[Problem]:
    if settings.sasl_mechanism != "PLAIN":
        return
    if login.username != "$ConnectionString":
        yield Problem(
            "the user name is not $ConnectionString",
            "set sasl_plain_username to the text $ConnectionString; a shell replaces it in double "
            "quotes",
        )
    parts = {
        name.strip().lower(): value.strip()
        for name, _, value in (part.partition("=") for part in login.password.split(";"))
    }
    missing = [
        name
        for name in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey")
        if not parts.get(name.lower())
    ]
    if missing:
        yield Problem(
            f"the password is not a connection string: {', '.join(missing)} missing",
            "copy the whole connection string of a shared access policy",
        )
        return
    namespace = parts["endpoint"].lower().removeprefix("sb://").rstrip("/").partition(":")[0]
    hosts = {address.host.lower().rstrip(".") for address in settings.bootstrap_addresses}
    if namespace not in hosts:
        yield Problem(
            f"the connection string is of {namespace}, and bootstrap_servers names "
            + ", ".join(sorted(hosts)),
            f"set bootstrap_servers={namespace}:9093, or use a connection string of this namespace",
        )


def _of_google(settings: ClusterValues, login: SaslLogin) -> Iterator[Problem]:
    if settings.sasl_mechanism == "PLAIN" and "@" not in login.username:
        yield Problem(
            "the user name is not the e-mail address of a service account",
            "set sasl_plain_username to the address, or sasl_mechanism=OAUTHBEARER and "
            "sasl_oauth_token_provider=google_managed_kafka",
        )


# --- the services

CONFLUENT: Final = Cloud(
    "Confluent Cloud",
    re.compile(
        r"(?:[a-z0-9-]+\.)*?(?:b[0-9]+-)?(?P<cluster>[pl]kc-[a-z0-9]+)[a-z0-9.-]*\.confluent\.cloud"
    ),
    (
        Way((9092,), "SASL_SSL", "PLAIN"),
        Way((9092,), "SASL_SSL", "OAUTHBEARER"),
        Way((9092,), "SSL", None),
    ),
    None,
    _of_confluent,
    "check the authorization server of the identity pool",
    {
        Step.TCP: "a cluster with private networking is reached from its own network only",
        Step.CREDENTIALS: "an API key belongs to one cluster, and a Cloud API key to none; a new "
        "key may take minutes to work",
    },
)

MSK: Final = Cloud(
    "Amazon MSK",
    re.compile(
        r"[a-z0-9-]+\.(?:(?:iam|scram|tls)\.)?(?:(?P<cluster>[a-z0-9-]+\.[a-z0-9]+)\.)?(?:[a-z0-9-]+\.)?"
        r"kafka(?:-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?"
    ),
    (
        # ports: within AWS, public access, IPv6
        Way((9098, 9198, 20098), "SASL_SSL", "OAUTHBEARER"),
        Way((9096, 9196, 20096), "SASL_SSL", "SCRAM-SHA-512"),
        Way((9094, 9194, 20094), "SSL", None),
        Way((9092, 20092), "PLAINTEXT", None),
    ),
    "aws_msk_iam",
    _of_msk,
    "botocore must find credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or give this machine a role",
    {
        Step.TCP: "the brokers' security group must allow the port, and only networks of the VPC "
        "reach them unless public access is on",
        Step.MECHANISM: "the port decides: 9098 IAM, 9096 SCRAM, 9094 TLS",
        Step.API_VERSIONS: "the port decides: 9098 IAM, 9096 SCRAM, 9094 TLS",
        Step.CREDENTIALS: "the identity needs kafka-cluster:Connect on this cluster, and its "
        "token the cluster's region; a secret for SCRAM has a name that begins with AmazonMSK_, a "
        "KMS key of your own, and is associated with the cluster",
    },
)

EVENT_HUBS: Final = Cloud(
    "Azure Event Hubs",
    re.compile(r"(?P<cluster>[a-z0-9-]+)\.servicebus\.[a-z0-9.-]+"),
    (
        Way((9093,), "SASL_SSL", "PLAIN"),
        Way((9093,), "SASL_SSL", "OAUTHBEARER"),
    ),
    "azure_event_hubs",
    _of_event_hubs,
    "azure-identity must find an identity: az login, the environment variables AZURE_CLIENT_ID, "
    "AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or a managed identity",
    {
        Step.TCP: "the tier Basic has no Kafka, and a firewall of the namespace may refuse this "
        "machine",
        Step.TLS: "the tier Basic has no Kafka",
        Step.API_VERSIONS: "the tier Basic has no Kafka",
        Step.CREDENTIALS: "the shared access policy needs Send or Listen, or the identity a role "
        "such as Azure Event Hubs Data Sender",
    },
)

GOOGLE: Final = Cloud(
    "Google Managed Service for Apache Kafka",
    re.compile(
        r"[a-z0-9-]+\.(?P<cluster>[a-z0-9-]+)\.(?P<region>[a-z0-9-]+)\.managedkafka\."
        r"[a-z0-9.-]+\.cloud\.goog"
    ),
    (
        Way((9092,), "SASL_SSL", "OAUTHBEARER"),
        Way((9092,), "SASL_SSL", "PLAIN"),
        Way((9192,), "SSL", None),
    ),
    "google_managed_kafka",
    _of_google,
    "google-auth must find credentials: GOOGLE_APPLICATION_CREDENTIALS, or the service account of "
    "this machine; credentials that do not name an account need "
    "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL, too",
    {
        Step.TCP: "the cluster is reached from the networks that it is connected to only",
        Step.CREDENTIALS: "the service account needs the role Managed Kafka Client",
    },
)

CLOUDS: Final = (CONFLUENT, MSK, EVENT_HUBS, GOOGLE)

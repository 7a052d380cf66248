"""`ClusterSettings`: the settings of connections, metadata, backoff and security."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from aiokq.cluster.rules import (
    ClusterRules,
    no_other_type,
    readable_addresses,
    supported_mechanism,
    upper_case,
)
from aiokq.core.errors import ConfigError
from aiokq.core.limits import INT32_MAX, INT64_MAX
from aiokq.core.settings import Settings

__all__ = ["ClusterSettings", "SecurityProtocol"]

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


class ClusterSettings(ClusterRules, Settings):
    """The settings that all clients of a cluster share.

    Settings that exist in Kafka have Kafka's names, units and defaults, except for the defaults of
    client_id and sasl_mechanism.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    FILES: ClassVar[frozenset[str]] = frozenset(("ssl_cafile", "ssl_certfile", "ssl_keyfile"))

    bootstrap_servers: Annotated[
        str | Sequence[str], BeforeValidator(no_other_type), AfterValidator(readable_addresses)
    ] = Field(
        default=(),
        description="Addresses of brokers to find the cluster: 'host:port', several separated by "
        "commas or in a list; an IPv6 address in brackets.",
    )
    client_id: str = Field(
        default="aiokq", description="Name of this client in the brokers' logs and quotas."
    )
    client_rack: str = Field(
        default="",
        description="Rack in which this client runs, for reading from the nearest replica.",
    )

    request_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT32_MAX,
        description="How long a request may wait for its response.",
    )
    default_api_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        le=INT32_MAX,
        description="Time limit, including retries, of calls that have no timeout argument or "
        "get none.",
    )
    bootstrap_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        le=INT64_MAX,
        description="How long start() and `async with` wait for the first metadata; with 0, they "
        "do not wait.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000,
        ge=1,
        le=INT64_MAX,
        description="Age at which metadata is requested again.",
    )
    allow_auto_create_topics: bool = Field(
        default=True,
        description="Whether a metadata request for a topic may create it, if the brokers also "
        "allow that.",
    )
    metadata_recovery_strategy: Literal["none", "rebootstrap"] = Field(
        default="rebootstrap",
        description="What to do when no known broker answers (KIP-899): keep asking the known "
        "brokers only ('none'), or ask bootstrap_servers as well ('rebootstrap').",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = Field(
        default=300_000,
        ge=0,
        le=INT64_MAX,
        description="How long metadata may be older than metadata_max_age_ms before the client "
        "asks bootstrap_servers instead of the known brokers (KIP-1102).",
    )

    retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=INT64_MAX,
        description="Pause before the first retry of a request.",
    )
    retry_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest pause before a retry of a request; the pause doubles with each "
        "retry (KIP-580).",
    )
    reconnect_backoff_ms: int = Field(
        default=50,
        ge=0,
        le=INT64_MAX,
        description="Pause before the first attempt to reconnect to a broker.",
    )
    reconnect_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest pause before an attempt to reconnect; the pause doubles with each "
        "failure.",
    )
    socket_connection_setup_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=INT64_MAX,
        description="Time limit for opening a connection; it doubles with each failure.",
    )
    socket_connection_setup_timeout_max_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT64_MAX,
        description="Largest time limit for opening a connection (KIP-601).",
    )
    connections_max_idle_ms: int = Field(
        default=540_000,
        ge=0,
        le=INT64_MAX,
        description="Time after which an unused connection is closed; with 0, it stays open.",
    )

    security_protocol: Annotated[SecurityProtocol, BeforeValidator(upper_case)] = Field(
        default="PLAINTEXT", description="Whether connections use TLS (SSL), SASL, both or neither."
    )
    sasl_mechanism: Annotated[str, AfterValidator(supported_mechanism)] = Field(
        default="PLAIN", description="SASL mechanism to authenticate with; only PLAIN is supported."
    )
    sasl_plain_username: str | None = Field(default=None, description="User name for PLAIN.")
    sasl_plain_password: SecretStr | None = Field(
        default=None, repr=False, description="Password for PLAIN."
    )
    ssl_context: ssl.SSLContext | None = Field(
        default=None, description="TLS context to use unchanged, instead of the ssl_* files."
    )
    ssl_cafile: str | None = Field(
        default=None, description="PEM file with the certificate authorities to trust."
    )
    ssl_certfile: str | None = Field(
        default=None, description="PEM file with this client's certificate chain."
    )
    ssl_keyfile: str | None = Field(
        default=None,
        description="PEM file with the private key of the certificate, if the key is not "
        "in ssl_certfile.",
    )
    ssl_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of the private key."
    )
    ssl_check_hostname: bool = Field(
        default=True,
        description="Whether a broker's certificate must contain the name of the broker's host.",
    )

    loop_stall_ms: int = Field(
        default=1000,
        ge=0,
        le=INT32_MAX,
        description="Report the event loop as stalled (LoopStalled, with the stack) when it runs "
        "nothing for this long. A thread watches the event loop of a consumer in a group, and of "
        "any other client if this setting is given; 0 turns the watch off.",
    )

    @classmethod
    def checked(cls, settings: Self) -> Self:
        """Return ``settings`` if it has the fields of this class and sets no others.

        Raises:
            ConfigError: ``settings`` is something else, such as another client's settings.
        """
        known = type(settings).model_fields if isinstance(settings, Settings) else {}
        if not cls.model_fields.keys() <= known.keys():
            raise ConfigError(
                f"settings must be {cls.__name__}, not {type(settings).__name__}; pass individual "
                "settings as keywords"
            )
        if beside := sorted(settings.explicit - cls.model_fields.keys()):
            raise ConfigError(
                f"{cls.__name__} has no {beside[0]}: give {type(settings).__name__} to its client"
            )
        return settings

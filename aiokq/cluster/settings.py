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
        ConfigError: a setting is unknown, out of range, or contradicts another setting.
    """

    FILES: ClassVar[frozenset[str]] = frozenset(("ssl_cafile", "ssl_certfile", "ssl_keyfile"))

    bootstrap_servers: Annotated[
        str | Sequence[str], BeforeValidator(no_other_type), AfterValidator(readable_addresses)
    ] = Field(
        default=(),
        description="Addresses of brokers through which the client finds the cluster, as "
        "'host:port'. Several addresses are separated by commas or given in a list. An IPv6 "
        "address is in brackets.",
    )
    client_id: str = Field(
        default="aiokq",
        description="Name by which brokers identify this client in logs and quotas.",
    )
    client_rack: str = Field(
        default="",
        description="Rack in which this client runs, so that consumers read from a replica in the "
        "same rack if the brokers allow it (KIP-392).",
    )

    request_timeout_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT32_MAX,
        description="Maximum time in milliseconds between a request and its response.",
    )
    default_api_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        le=INT32_MAX,
        description="Maximum duration in milliseconds, with all retries, of a call for which no "
        "timeout is given.",
    )
    bootstrap_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        le=INT64_MAX,
        description="Maximum time in milliseconds for which start() and `async with` wait for the "
        "first metadata; with 0, they do not wait.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000,
        ge=1,
        le=INT64_MAX,
        description="Age in milliseconds at which the metadata is requested again, even if nothing "
        "indicates a change.",
    )
    allow_auto_create_topics: bool = Field(
        default=True,
        description="Whether a request for the metadata of a missing topic may create the topic, "
        "if the brokers also allow the creation of topics.",
    )
    metadata_recovery_strategy: Literal["none", "rebootstrap"] = Field(
        default="rebootstrap",
        description="What to do when no known broker answers (KIP-899): ask only the known "
        "brokers again ('none'), or also ask bootstrap_servers ('rebootstrap').",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = Field(
        default=300_000,
        ge=0,
        le=INT64_MAX,
        description="Number of milliseconds by which metadata may be older than "
        "metadata_max_age_ms before the client asks bootstrap_servers instead of the known brokers "
        "(KIP-1102).",
    )

    retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=INT64_MAX,
        description="Pause in milliseconds before the first retry of a request.",
    )
    retry_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest pause in milliseconds before a retry of a request; the pause "
        "doubles with each retry (KIP-580).",
    )
    reconnect_backoff_ms: int = Field(
        default=50,
        ge=0,
        le=INT64_MAX,
        description="Pause in milliseconds before the first attempt to reconnect to a broker.",
    )
    reconnect_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest pause in milliseconds before an attempt to reconnect; the pause "
        "doubles with each failed attempt.",
    )
    socket_connection_setup_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=INT64_MAX,
        description="Maximum time in milliseconds for opening a connection. The time doubles with "
        "each failure, up to socket_connection_setup_timeout_max_ms.",
    )
    socket_connection_setup_timeout_max_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT64_MAX,
        description="Upper limit, in milliseconds, to which the time for opening a connection "
        "grows (KIP-601).",
    )
    connections_max_idle_ms: int = Field(
        default=540_000,
        ge=0,
        le=INT64_MAX,
        description="Time in milliseconds after which an unused connection is closed; with 0, the "
        "connection stays open.",
    )

    security_protocol: Annotated[SecurityProtocol, BeforeValidator(upper_case)] = Field(
        default="PLAINTEXT",
        description="Whether connections use TLS ('SSL'), SASL ('SASL_PLAINTEXT'), both "
        "('SASL_SSL') or neither ('PLAINTEXT').",
    )
    sasl_mechanism: Annotated[str, AfterValidator(supported_mechanism)] = Field(
        default="PLAIN", description="SASL mechanism to authenticate with; only PLAIN is supported."
    )
    sasl_plain_username: str | None = Field(
        default=None, description="User name for the SASL mechanism PLAIN."
    )
    sasl_plain_password: SecretStr | None = Field(
        default=None, repr=False, description="Password for the SASL mechanism PLAIN."
    )
    ssl_context: ssl.SSLContext | None = Field(
        default=None,
        description="TLS context to use as it is. No other ssl_ setting can be given with it.",
    )
    ssl_cafile: str | None = Field(
        default=None,
        description="PEM file with the certificate authorities to trust. Default: the certificate "
        "authorities of the system.",
    )
    ssl_certfile: str | None = Field(
        default=None, description="PEM file with this client's certificate chain."
    )
    ssl_keyfile: str | None = Field(
        default=None,
        description="PEM file with the private key of the client's certificate, if the key is not "
        "in ssl_certfile.",
    )
    ssl_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of the client's private key."
    )
    ssl_check_hostname: bool = Field(
        default=True,
        description="Whether a broker's certificate must contain the name of the broker's host.",
    )

    loop_stall_ms: int = Field(
        default=1000,
        ge=0,
        le=INT32_MAX,
        description="Time in milliseconds after which a blocked event loop is reported by the "
        "event LoopStalled; 0 turns the report off. A thread watches the event loop of consumers "
        "in a group, and the event loop of other clients only if this setting is given.",
    )

    @classmethod
    def checked(cls, settings: Self) -> Self:
        """Return ``settings`` if it has the fields of this class and sets no other fields.

        Raises:
            ConfigError: ``settings`` does not meet these conditions.
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

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
    """The settings that all clients of a cluster share. Names, units and defaults are Kafka's.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    FILES: ClassVar[frozenset[str]] = frozenset(("ssl_cafile", "ssl_certfile", "ssl_keyfile"))

    bootstrap_servers: Annotated[
        str | Sequence[str], BeforeValidator(no_other_type), AfterValidator(readable_addresses)
    ] = Field(
        default=(),
        description="Addresses to find the cluster by: 'host:port', several comma separated or "
        "in a list; an IPv6 address in brackets.",
    )
    client_id: str = Field(
        default="aiokq", description="Name of this client in the brokers' logs and quotas."
    )
    client_rack: str = Field(
        default="", description="Rack this client runs in, for reading from near replicas."
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
        description="Limit of calls that take no timeout or are given none, retries included.",
    )
    bootstrap_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        le=INT64_MAX,
        description="How long entering waits for the first metadata; 0 does not wait.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000,
        ge=1,
        le=INT64_MAX,
        description="Metadata is asked for again when it is this old.",
    )
    allow_auto_create_topics: bool = Field(
        default=True,
        description="Whether asking for a topic may create it, if the brokers allow that too.",
    )
    metadata_recovery_strategy: Literal["none", "rebootstrap"] = Field(
        default="rebootstrap",
        description="What to do when no known broker answers (KIP-899): go on asking them, or "
        "ask bootstrap_servers as well.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = Field(
        default=300_000,
        ge=0,
        le=INT64_MAX,
        description="Start over with bootstrap_servers when metadata could not be had for this "
        "long (KIP-1102).",
    )

    retry_backoff_ms: int = Field(
        default=100,
        ge=0,
        le=INT64_MAX,
        description="Pause before a request is tried again, the first time.",
    )
    retry_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest such pause; it doubles each time (KIP-580).",
    )
    reconnect_backoff_ms: int = Field(
        default=50,
        ge=0,
        le=INT64_MAX,
        description="Pause before a broker is connected to again, the first time.",
    )
    reconnect_backoff_max_ms: int = Field(
        default=1_000,
        ge=0,
        le=INT64_MAX,
        description="Longest such pause; it doubles each time.",
    )
    socket_connection_setup_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=INT64_MAX,
        description="How long opening a connection may take, at first.",
    )
    socket_connection_setup_timeout_max_ms: int = Field(
        default=30_000,
        ge=1,
        le=INT64_MAX,
        description="The same after several failures (KIP-601).",
    )
    connections_max_idle_ms: int = Field(
        default=540_000,
        ge=0,
        le=INT64_MAX,
        description="Unused connections are closed after this; 0 never.",
    )

    security_protocol: Annotated[SecurityProtocol, BeforeValidator(upper_case)] = Field(
        default="PLAINTEXT", description="Whether to use TLS (SSL) and SASL."
    )
    sasl_mechanism: Annotated[str, AfterValidator(supported_mechanism)] = Field(
        default="PLAIN", description="How to authenticate; PLAIN is what is supported."
    )
    sasl_plain_username: str | None = Field(default=None, description="User name for PLAIN.")
    sasl_plain_password: SecretStr | None = Field(
        default=None, repr=False, description="Password for PLAIN."
    )
    ssl_context: ssl.SSLContext | None = Field(
        default=None, description="TLS context to use as it is, instead of the ssl_* files."
    )
    ssl_cafile: str | None = Field(
        default=None, description="PEM file with the certificate authorities to trust."
    )
    ssl_certfile: str | None = Field(
        default=None, description="PEM file with this client's certificate chain."
    )
    ssl_keyfile: str | None = Field(
        default=None, description="PEM file with its private key, if not in ssl_certfile."
    )
    ssl_password: SecretStr | None = Field(
        default=None, repr=False, description="Password of that key."
    )
    ssl_check_hostname: bool = Field(
        default=True, description="Whether a broker's certificate must name its host."
    )

    loop_stall_ms: int = Field(
        default=1000,
        ge=0,
        le=INT32_MAX,
        description="Report the event loop as stalled (LoopStalled, with the stack) when it "
        "runs nothing for this long. It is watched, by a thread, where a group has a member, and "
        "otherwise if this is set; 0 never watches it.",
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
                f"settings must be {cls.__name__}, not {type(settings).__name__}; pass single "
                "settings as keywords"
            )
        if beside := sorted(settings.explicit - cls.model_fields.keys()):
            raise ConfigError(
                f"{cls.__name__} has no {beside[0]}: give {type(settings).__name__} to its client"
            )
        return settings

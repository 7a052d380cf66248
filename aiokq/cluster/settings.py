"""ClusterSettings: connections, metadata, backoff and security; what all clients share."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from aiokq.cluster.addresses import BootstrapAddress, parse_bootstrap_servers
from aiokq.core.errors import ConfigError
from aiokq.core.settings import Settings

__all__ = ["SASL_MECHANISMS", "ClusterSettings", "SecurityProtocol"]

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

SASL_MECHANISMS = ("PLAIN",)
"""The SASL mechanisms that are supported."""


class ClusterSettings(Settings):
    """How to reach a cluster and how to follow it. Names, units and defaults are Kafka's.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

    bootstrap_servers: str | Sequence[str] = Field(
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
        default=30_000, ge=1, description="How long a request may wait for its response."
    )
    default_api_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        description="Limit of calls that take no timeout or are given none, retries included.",
    )
    bootstrap_timeout_ms: int = Field(
        default=10_000,
        ge=0,
        description="How long entering waits for the first metadata; 0 does not wait.",
    )
    metadata_max_age_ms: int = Field(
        default=300_000, ge=1, description="Metadata is asked for again when it is this old."
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
        description="Start over with bootstrap_servers when metadata could not be had for this "
        "long (KIP-1102).",
    )

    retry_backoff_ms: int = Field(
        default=100, ge=0, description="Pause before a request is tried again, the first time."
    )
    retry_backoff_max_ms: int = Field(
        default=1_000, ge=0, description="Longest such pause; it doubles each time (KIP-580)."
    )
    reconnect_backoff_ms: int = Field(
        default=50, ge=0, description="Pause before a broker is connected to again, the first time."
    )
    reconnect_backoff_max_ms: int = Field(
        default=1_000, ge=0, description="Longest such pause; it doubles each time."
    )
    socket_connection_setup_timeout_ms: int = Field(
        default=10_000, ge=1, description="How long opening a connection may take, at first."
    )
    socket_connection_setup_timeout_max_ms: int = Field(
        default=30_000, ge=1, description="The same after several failures (KIP-601)."
    )
    connections_max_idle_ms: int = Field(
        default=540_000, ge=0, description="Unused connections are closed after this; 0 never."
    )

    security_protocol: SecurityProtocol = Field(
        default="PLAINTEXT", description="Whether to use TLS (SSL) and SASL."
    )
    sasl_mechanism: str = Field(
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
        description="Report the event loop as stalled (LoopStalled, with the stack) when it "
        "runs nothing for this long. It is watched, by a thread, where a group has a member, and "
        "otherwise if this is set; 0 never watches it.",
    )

    _of_cluster: frozenset[str] = PrivateAttr(default_factory=frozenset)

    @model_validator(mode="wrap")
    @classmethod
    def _take_of_cluster(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """No setting, so that it is neither validated nor shown: `sharing` gives it."""
        values = dict(values) if isinstance(values, dict) else values
        of_cluster = values.pop("_of_cluster", frozenset()) if isinstance(values, dict) else None
        settings = validate(values)
        if of_cluster is not None:
            settings._of_cluster = of_cluster
        return settings

    @property
    def of_cluster(self) -> frozenset[str]:
        """The explicit names that were given to the Cluster which this client shares."""
        return self._of_cluster

    def with_overrides(self, **values: Any) -> Self:
        """These settings with some replaced; all are validated together again."""
        return super().with_overrides(
            **({"_of_cluster": self._of_cluster - values.keys()} | values)
        )

    @classmethod
    def sharing(cls, cluster: ClusterSettings, own: Mapping[str, Any]) -> Self:
        """A client's own settings together with those of the Cluster that it is made from.

        Raises:
            ConfigError: they contradict each other.
        """
        shared = {name: getattr(cluster, name) for name in cluster.explicit}
        values = shared | dict(own)
        return cls(**(values | {"_of_cluster": cluster.explicit - own.keys()}))

    @classmethod
    def combine(
        cls,
        settings: Self | None,
        overrides: Mapping[str, object],
        bootstrap_servers: str | Sequence[str] | None = None,
    ) -> Self:
        """What a client's constructor was given, as one.

        Args:
            settings: to start from; the defaults if not given.
            overrides: single settings, by name.
            bootstrap_servers: the constructor's positional argument.

        Raises:
            ConfigError: a setting is unknown, out of range, contradicts another, or
                ``bootstrap_servers`` is given twice; the settings are another client's.
        """
        values = dict(overrides)
        if bootstrap_servers is not None:
            if "bootstrap_servers" in values:
                raise ConfigError("bootstrap_servers is given twice")
            values["bootstrap_servers"] = bootstrap_servers
        base = cls() if settings is None else cls.checked(settings)
        return base.with_overrides(**values) if values else base

    @classmethod
    def checked(cls, settings: Self) -> Self:
        """What was given as ``settings``, if it has all of this class and nothing beside it.

        Raises:
            ConfigError: it is something else, such as another client's settings.
        """
        known = type(settings).model_fields if isinstance(settings, Settings) else {}
        if not cls.model_fields.keys() <= known.keys():
            raise ConfigError(
                f"settings is to be {cls.__name__}, not {type(settings).__name__}; single settings "
                "go as keywords"
            )
        if beside := sorted(settings.explicit - cls.model_fields.keys()):
            raise ConfigError(
                f"{cls.__name__} has no {beside[0]}: give {type(settings).__name__} to its client"
            )
        return settings

    @field_validator("bootstrap_servers", mode="after")
    @classmethod
    def _readable_addresses(cls, value: str | Sequence[str]) -> tuple[str, ...]:
        return tuple(str(address) for address in parse_bootstrap_servers(value))

    @field_validator("security_protocol", mode="before")
    @classmethod
    def _upper_case(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("sasl_mechanism", mode="after")
    @classmethod
    def _supported_mechanism(cls, value: str) -> str:
        if value.upper() not in SASL_MECHANISMS:
            supported = ", ".join(SASL_MECHANISMS)
            raise ValueError(f"{value!r} is not supported; supported: {supported}")
        return value.upper()

    @model_validator(mode="after")
    def _consistent_backoffs(self) -> ClusterSettings:
        for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
            first = getattr(self, f"{name}_ms")
            longest = getattr(self, f"{name}_max_ms")
            if longest >= first:
                continue
            if {f"{name}_ms", f"{name}_max_ms"} <= self.model_fields_set:
                raise ValueError(
                    f"{name}_max_ms={longest} is below {name}_ms={first}: raise it to {first}"
                )
        return self

    @model_validator(mode="after")
    def _consistent_security(self) -> ClusterSettings:
        tls, sasl = self.uses_tls, self.uses_sasl
        given = sorted(name for name in self.model_fields_set if getattr(self, name) is not None)
        tls_given = [name for name in given if name.startswith("ssl_")]
        sasl_given = [name for name in given if name.startswith("sasl_plain_")]
        if tls_given and not tls:
            fix = "SASL_SSL" if sasl else "SSL"
            raise ValueError(
                f"{tls_given[0]} has no effect with security_protocol={self.security_protocol}: "
                f"set security_protocol={fix!r}"
            )
        if sasl_given and not sasl:
            fix = "SASL_SSL" if tls else "SASL_PLAINTEXT"
            raise ValueError(
                f"{sasl_given[0]} has no effect with security_protocol={self.security_protocol}: "
                f"set security_protocol={fix!r}"
            )
        if sasl and (self.sasl_plain_username is None or self.sasl_plain_password is None):
            raise ValueError(
                f"security_protocol={self.security_protocol} with PLAIN needs "
                "sasl_plain_username and sasl_plain_password"
            )
        if self.ssl_context is not None and (files := [n for n in tls_given if n != "ssl_context"]):
            raise ValueError(f"ssl_context and {files[0]} exclude each other: give one of them")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile needs ssl_certfile")
        return self

    @property
    def bootstrap_addresses(self) -> tuple[BootstrapAddress, ...]:
        """``bootstrap_servers``, parsed."""
        return parse_bootstrap_servers(self.bootstrap_servers)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections are authenticated by SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def request_timeout(self) -> float:
        """``request_timeout_ms`` in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def default_api_timeout(self) -> float:
        """``default_api_timeout_ms`` in seconds."""
        return self.default_api_timeout_ms / 1000

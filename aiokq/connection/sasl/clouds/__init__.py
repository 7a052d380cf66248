"""Tokens of cloud providers, selected by the name in `sasl_oauth_token_provider`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.connection.sasl.token_cache import TokenSource
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = ["CLOUDS", "check_cloud", "cloud_tokens"]

CLOUDS: Final = ("aws_msk_iam", "azure_event_hubs", "google_managed_kafka")
"""Values of `sasl_oauth_token_provider` that are texts."""


def check_cloud(name: str) -> None:
    """Check a value of `sasl_oauth_token_provider`.

    Raises:
        ConfigError: the text is not one of `CLOUDS`.
    """
    if name not in CLOUDS:
        raise ConfigError(
            "sasl_oauth_token_provider must be a function, an object with a method token(), or one "
            f"of {', '.join(CLOUDS)}"
        )


def cloud_tokens(
    name: str,
    host: str,
    *,
    offload: Offload,
    clock: Clock,
    environ: Callable[[str], str | None] = os.environ.get,
) -> TokenSource:
    """Return the source of tokens of a cloud provider.

    Args:
        name: one of `CLOUDS`.
        host: host name of a bootstrap address.
        offload: runs the library of the cloud provider, which blocks.
        clock: the time of signatures.
        environ: returns the value of an environment variable.

    Raises:
        ConfigError: the library is not installed, or the host name has no region or namespace.
    """
    if name == "aws_msk_iam":
        from aiokq.connection.sasl.clouds.aws import MskIamTokens, region_of

        return MskIamTokens(region_of(host, environ), offload=offload, clock=clock)
    if name == "azure_event_hubs":
        from aiokq.connection.sasl.clouds.azure import EventHubsTokens

        return EventHubsTokens(host, offload=offload)
    from aiokq.connection.sasl.clouds.google import ManagedKafkaTokens

    return ManagedKafkaTokens(offload=offload, clock=clock, environ=environ)

"""AdminSettings: the client settings of `ClusterSettings`; the admin client adds none."""

from __future__ import annotations

from aiokq.cluster.settings import ClusterSettings

__all__ = ["AdminSettings"]


class AdminSettings(ClusterSettings):
    """Settings of an admin client.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another.
    """

"""The ``kafka.*`` options as settings of a client: Kafka's names to ours."""

from __future__ import annotations

from collections.abc import Mapping

from aiokq import ClusterSettings

__all__ = ["cluster_settings"]


def cluster_settings(kafka: Mapping[str, str]) -> ClusterSettings:
    """Settings of a Cluster from ``kafka.*`` options; those of a consumer or producer are left out.

    Args:
        kafka: by Kafka's names, as in ``bootstrap.servers``.

    Raises:
        ConfigError: a setting is out of range.
    """
    known = ClusterSettings.model_fields
    given = {name.replace(".", "_"): value for name, value in kafka.items()}
    return ClusterSettings.model_validate(
        {name: value for name, value in given.items() if name in known}
    )

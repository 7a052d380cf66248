"""Merges a client's constructor arguments (settings, keywords, addresses) into its settings."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from aiokq.cluster.values import ClusterValues
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.cluster.settings import ClusterSettings

__all__ = ["standalone_settings", "child_settings"]

V = TypeVar("V", bound=ClusterValues)


def standalone_settings(
    kind: type[V],
    settings: ClusterSettings | None,
    overrides: Mapping[str, object],
    bootstrap_servers: str | Sequence[str] | None = None,
    beside: Sequence[object] = (),
) -> V:
    """Return the settings of a client that has a cluster of its own.

    Args:
        settings: settings to start from; the defaults if not given.
        overrides: single settings, by name.
        bootstrap_servers: the constructor's positional argument.
        beside: further positional arguments, which are refused.

    Raises:
        ConfigError: a setting is unknown, out of range or contradicts another setting;
            ``bootstrap_servers`` is given twice; `settings` is of another client's class; or a
            setting is given as a positional argument.
    """
    if beside:
        raise ConfigError(
            f"only the address is positional, not {reprlib.repr(beside[0])}: pass settings by "
            "keyword, with '_' in place of '.', as in client_id='me'"
        )
    values = dict(overrides)
    if bootstrap_servers is not None:
        if "bootstrap_servers" in values:
            raise ConfigError("bootstrap_servers is given twice")
        values["bootstrap_servers"] = bootstrap_servers
    if settings is None:
        return kind.given(values)
    base = kind.model().checked(settings)
    return kind.of(base.with_overrides(**values) if values else base)


def child_settings(
    kind: type[V],
    cluster: ClusterValues,
    settings: ClusterSettings | None,
    overrides: Mapping[str, object],
) -> V:
    """Return the settings of a client that shares a cluster, including the cluster's settings.

    Args:
        settings: settings to start from; the defaults if not given.
        overrides: single settings, by name.

    Raises:
        ConfigError: a setting is unknown, out of range, contradicts another setting or belongs to
            the cluster; or `settings` is of another client's class.
    """
    own: dict[str, object] = {}
    if settings is not None:
        checked = kind.model().checked(settings)
        own = {name: getattr(checked, name) for name in checked.explicit}
    own.update(overrides)
    misplaced = sorted(own.keys() & ClusterValues.TABLE.keys())
    if misplaced:
        raise ConfigError(
            f"{misplaced[0]} is a setting of the Cluster, which its clients share: pass it to "
            "Cluster(...), or create the client without a Cluster"
        )
    return kind.given(cluster.explicit_values() | own, cluster.explicit)

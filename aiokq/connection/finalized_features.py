"""FinalizedFeatures: the finalized feature levels in a broker's ApiVersions response."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["NO_FEATURES", "FinalizedFeatures"]


class FinalizedFeatures(NamedTuple):
    """The finalized feature levels of a cluster (KIP-584)."""

    epoch: int
    """Grows with each change; -1 if the broker does not know the features, or is older than 2.7."""
    levels: Mapping[str, int]
    """The level of each enabled feature."""


NO_FEATURES: Final = FinalizedFeatures(-1, MappingProxyType({}))
"""The value before the first ApiVersions response."""

"""FinalizedFeatures: the levels of features that a broker named in its ApiVersions response."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["NO_FEATURES", "FinalizedFeatures"]


class FinalizedFeatures(NamedTuple):
    """The levels of features in a cluster (KIP-584)."""

    epoch: int
    """Grows with each change; -1 if the broker does not know the features, or is older than 2.7."""
    levels: Mapping[str, int]
    """The level of each feature that is on."""


NO_FEATURES: Final = FinalizedFeatures(-1, MappingProxyType({}))
"""The features before a broker has named them."""

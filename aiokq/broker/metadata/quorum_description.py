"""Values of responses about the metadata quorum and the features of the cluster."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from aiokq.core.named_tuple import NamedTuple

__all__ = ["ControllerListener", "FinalizedFeatures", "QuorumDescription"]


class ControllerListener(NamedTuple):
    """An address of a controller."""

    name: str
    host: str
    port: int


class QuorumDescription(NamedTuple):
    """The state of a metadata quorum of which this node is the only voter and the leader.

    Attributes:
        epoch: the epoch in which the node leads.
        directory_id: id of the node's metadata log directory; zero if the log does not name its
            voters (``kraft.version`` 0).
        end_offset: offset of the next record of the metadata log.
        high_watermark: end offset of the durable records of the metadata log.
        listeners: the addresses of the node's listeners for controllers.
    """

    node_id: int
    epoch: int
    directory_id: uuid.UUID
    end_offset: int
    high_watermark: int
    listeners: Sequence[ControllerListener]


class FinalizedFeatures(NamedTuple):
    """The levels of features that apply to the cluster.

    Attributes:
        levels: levels above 0 of the features that this broker implements, by name.
        epoch: offset of the last metadata record that is in effect; it grows with each change of a
            level.
    """

    levels: Mapping[str, int]
    epoch: int

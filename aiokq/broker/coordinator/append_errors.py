"""Translation of errors that the clients of a coordinator do not handle.

Source: Kafka ``CoordinatorOperationExceptionHelper.java``.
"""

from __future__ import annotations

from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    KafkaStorage,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
    RecordBatchTooLarge,
    RecordTooLarge,
    RequestTimeout,
    UnknownServer,
    UnknownTopicOrPartition,
)

__all__ = ["coordinator_error"]


def coordinator_error(error: BrokerError | ProtocolError) -> BrokerError:
    """Return the error that a coordinator's clients get in place of `error`.

    An error without a translation is returned unchanged.
    """
    if isinstance(error, UnknownTopicOrPartition | NotEnoughReplicas | RequestTimeout):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, NotLeaderOrFollower | KafkaStorage):
        return NotCoordinator(str(error))
    if isinstance(error, RecordTooLarge | RecordBatchTooLarge | ProtocolError):
        return UnknownServer(str(error))
    return error

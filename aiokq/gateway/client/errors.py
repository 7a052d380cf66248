"""The errors of the gateway's clients."""

from __future__ import annotations

__all__ = [
    "ClientClosed",
    "GatewayAway",
    "GatewayClientError",
    "GatewayUnavailable",
    "InvalidMessage",
    "MessageTooLarge",
    "PathTooLong",
    "QueueFull",
    "TopicTooLarge",
    "WrongType",
]


class GatewayClientError(Exception):
    """The base of all errors of the gateway's clients."""


class InvalidMessage(GatewayClientError, ValueError):
    """A field has a value that the format does not allow. The message can never be sent."""


class WrongType(InvalidMessage, TypeError):
    """An argument has a type that the format does not allow. The text names the argument."""


class TopicTooLarge(InvalidMessage):
    """The topic has more than 32767 bytes."""


class MessageTooLarge(InvalidMessage):
    """The message has more bytes than the format or the socket allows.

    Attributes:
        size: bytes of the encoded message.
        limit: the largest size that can be sent.
    """

    def __init__(self, text: str, *, size: int, limit: int) -> None:
        super().__init__(text)
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self), self.size, self.limit)


class PathTooLong(GatewayClientError, ValueError):
    """The path of a socket has more bytes than a socket address holds."""


class GatewayUnavailable(GatewayClientError):
    """The message was not sent. The program can send the same message again later."""


class GatewayAway(GatewayUnavailable):
    """Nobody listens at the address, or the system refuses the connection.

    Attributes:
        errno: the system's error number; None for a connection that was not accepted in time.
    """

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.errno)


class QueueFull(GatewayUnavailable):
    """The gateway does not take messages as fast as programs write them.

    It is also raised if another call of the same client was still sending a message. This may be
    the call that a signal handler has interrupted.
    """


class ClientClosed(GatewayClientError):
    """The client is closed."""


def _rebuilt(
    kind: type[MessageTooLarge], text: str, size: int, limit: int
) -> MessageTooLarge:  # for pickle
    return kind(text, size=size, limit=limit)

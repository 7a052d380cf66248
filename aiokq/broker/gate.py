"""The gate: decides which requests a connection may send, and which resources they may use.

A request passes the gate at up to three points. The dispatcher calls ``admit`` before it decodes
anything but the first four bytes of the frame. Handlers, and the fast path of Produce, call
``authorize`` before they append, change or disclose anything. ``throttle_ms`` is called before a
response is encoded. Without an authorizer, everything is allowed. Without quotas, nothing is
throttled.

An authorizer that calls a coroutine function of the user cannot answer at once. It raises
``Undecided``, the dispatcher awaits the answers, and the handler runs again. A handler that would
change something between two authorizations calls ``Call.settle`` first.

Two rules are enforced in ``connection``, where the bytes are counted: a frame that is too large for
an authenticated client is refused before memory is allocated for it (``FrameReader``), and nothing
is read from a connection before its ``mute_until`` (``AcceptedConnection``).

Source: Kafka ``Processor.processCompletedReceives``, ``SaslServerAuthenticator``, ``AuthHelper``,
``ClientQuotaManager``; KIP-219, KIP-368.
Tests: ``tests/unit/broker/test_gate.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiokq.broker.permissions import (
    CLUSTER_NAME,
    PERMISSIONS,
    SUPPORTED_OPERATIONS,
    Operation,
    Permission,
    ResourceType,
    operation_bits,
)
from aiokq.connection.quota_windows import MAX_THROTTLE_MS
from aiokq.connection.request_context import CloseConnection, SessionState
from aiokq.wire import API_NAMES

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext, Session

__all__ = [
    "Audit",
    "Authorizer",
    "CallerAuthorizer",
    "Gate",
    "MutationQuota",
    "Quotas",
    "Undecided",
]

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

ADMITTED_APIS: Final[dict[SessionState, frozenset[int]]] = {
    SessionState.HANDSHAKE: frozenset({API_VERSIONS, SASL_HANDSHAKE}),
    SessionState.MECHANISM: frozenset({SASL_HANDSHAKE}),
    SessionState.EXPIRED: frozenset({SASL_HANDSHAKE}),
}
"""The APIs that a session may use before a login.

In these states, a request of any other API closes the connection without an answer. In the state
AUTHENTICATE, the dispatcher answers a request that is not SaslAuthenticate with ILLEGAL_SASL_STATE,
and then closes the connection.
"""

MOST_DENIALS: Final = 1000
"""Maximum number of denials kept until the end of a request; others are recorded immediately."""

# Python 3.11 finds the attributes of an enum slowly.
_READY: Final = SessionState.READY
_AUTHENTICATE: Final = SessionState.AUTHENTICATE

_ROWS: Final = {
    (key, permission.operation, permission.resource_type): permission
    for key, permissions in PERMISSIONS.items()
    for permission in permissions
}


class Undecided(Exception):
    """Raised by an authorizer that has to await answers; `CallerAuthorizer.settle` awaits them.

    It is not a BrokerError, so handlers do not treat it as a denial.

    Attributes:
        questions: the questions to await, in the authorizer's own form.
    """

    def __init__(self, questions: Sequence[object]) -> None:
        super().__init__(f"{len(questions)} questions")
        self.questions = questions


class Authorizer(Protocol):
    """Decides which operations a connection's client may perform.

    Called on the loop; must not block.
    """

    @property
    def asks_caller(self) -> bool:
        """Whether the methods may raise `Undecided`."""
        ...

    def authorize(
        self,
        connection: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        """Return the `names` of resources on which the operation is allowed.

        Raises:
            Undecided: answers have to be awaited.
        """
        ...

    def authorize_any(
        self, connection: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of this type."""
        ...

    def operations(self, connection: RequestContext, resource_type: ResourceType, name: str) -> int:
        """Return the operations that are allowed on a resource, as a bit field.

        The bits of operations that the type does not support have no meaning.

        Raises:
            Undecided: answers have to be awaited.
        """
        ...


class CallerAuthorizer(Authorizer, Protocol):
    """An authorizer that may raise `Undecided`."""

    def begin(self, connection: RequestContext) -> None:
        """Begin a request of a connection."""
        ...

    def end(self, connection: RequestContext) -> None:
        """End a request: discard its answers."""
        ...

    async def settle(self, connection: RequestContext, undecided: Undecided) -> None:
        """Await the answers to questions, and keep them for the rest of the request."""
        ...


class Audit(Protocol):
    """Records denied operations, failed logins, and changes of ACLs, users, quotas and loggers."""

    def denied(
        self,
        connection: RequestContext,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Record that an operation on a resource was denied to a client."""
        ...

    def changed(self, connection: RequestContext, what: str, items: Iterable[str]) -> None:
        """Record changes of ACLs, users, quotas or levels of loggers, and who made them."""
        ...

    def changed_also(self, connection: RequestContext, what: str, items: Collection[str]) -> None:
        """Record further changes of a request, all in one entry; see `changed`."""
        ...

    def login_failed(self, connection: RequestContext, mechanism: str, reason: str) -> None:
        """Record a failed authentication; `reason` contains no part of the credentials."""
        ...


class MutationQuota(Protocol):
    """Counts the partitions that one request creates, deletes or adds (KIP-599)."""

    @property
    def throttle_ms(self) -> int:
        """The throttle time, in ms, that results from the partitions counted so far."""
        ...

    def charge(self, partitions: int) -> None:
        """Count partitions, before they are created or deleted.

        Raises:
            ThrottlingQuotaExceeded: the quota is used up, and the request must be refused.
        """
        ...


class Quotas(Protocol):
    """Decides how long a client is throttled. Called on the loop; must not block."""

    def throttle_ms(
        self,
        connection: RequestContext,
        api_key: int,
        client_id: str | None,
        nbytes: int,
        *,
        answered: bool,
        in_login: bool,
    ) -> int:
        """Count a request that was handled; return its throttle time in ms.

        A consumer's Fetch was counted by `fetched`, and is not counted again.

        Args:
            nbytes: size of the request, in bytes.
            answered: whether the request gets a response; False for Produce with acks=0.
            in_login: whether the session was in a login when the request arrived.
        """
        ...

    def fetch_bytes(self, connection: RequestContext, client_id: str | None) -> int:
        """Return how many bytes are worth reading for the response to a consumer's Fetch.

        The result is the larger of two numbers: what is left of the client's quota in the quota's
        window, and the quota for one sample of the window.
        """
        ...

    def fetched(self, connection: RequestContext, client_id: str | None, nbytes: int) -> int:
        """Count a response to a consumer's Fetch; return the throttle time in ms.

        If the throttle time is above 0, the response is not counted, and must be replaced by an
        empty one.
        """
        ...

    def mutations(
        self, connection: RequestContext, client_id: str | None, *, is_strict: bool
    ) -> MutationQuota | None:
        """Return the quota of partitions for one request; None if there is none.

        Args:
            is_strict: whether `charge` refuses once the quota is used up; False only throttles the
                client.
        """
        ...


class Gate:
    """The gate of one node.

    Args:
        versions: the key, the oldest and the newest supported version of each API.
        max_frame_bytes: the largest request, in bytes (`socket.request.max.bytes`).
        max_login_frame_bytes: the largest request of a session that is not READY, in bytes
            (`sasl.server.max.receive.size`).

    Attributes:
        authorizer: decides which operations a client may perform; None allows everything.
        audit: records denied operations, failed logins and changes; None records nothing.
        quotas: decides how long a client is throttled; None throttles nothing.
    """

    __slots__ = (
        "_denials",
        "_max_frame_bytes",
        "_max_login_frame_bytes",
        "_versions",
        "audit",
        "authorizer",
        "quotas",
    )

    def __init__(
        self,
        versions: Iterable[tuple[int, int, int]],
        *,
        max_frame_bytes: int,
        max_login_frame_bytes: int = 512 * 1024,
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._versions = frozenset(
            key << 16 | version for key, low, high in versions for version in range(low, high + 1)
        )
        self._max_frame_bytes = max_frame_bytes
        self._max_login_frame_bytes = min(max_frame_bytes, max_login_frame_bytes)
        self.authorizer = authorizer
        self.audit: Audit | None = None
        self.quotas = quotas
        self._denials: dict[
            RequestContext, dict[tuple[int, Operation, ResourceType, str], None]
        ] = {}
        """The denials of the requests between `begin` and `end`, in order."""

    def frame_limit(self, state: SessionState) -> int:
        """Return the largest frame, in bytes, that a session in this state may send."""
        return self._max_frame_bytes if state is _READY else self._max_login_frame_bytes

    def admit(self, connection: RequestContext, api_and_version: int, nbytes: int) -> bool:
        """Decide whether a request is handled.

        Args:
            api_and_version: the first four bytes of the frame, as an unsigned number.
            nbytes: size of the frame, in bytes.

        Returns:
            True if the handler of the API handles the request. False for an unsupported version of
            ApiVersions, which the caller answers with UNSUPPORTED_VERSION. In the state
            AUTHENTICATE, False for every frame that is not a SaslAuthenticate request, and for
            every frame of a client that sends tokens without request headers.

        Raises:
            CloseConnection: the API or version is not supported; or the session is not READY, and
                the API is not allowed or the frame is too large. Kafka closes the connection, too.
        """
        # Hot path, measured by benchmarks/micro/produce.py.
        session = connection.session
        if session.state is _READY and session.expires_at is None:
            if api_and_version in self._versions:
                return True
        elif not self._has_handler(session, api_and_version >> 16, nbytes):
            return False
        elif api_and_version in self._versions:
            return True
        key, version = api_and_version >> 16, api_and_version & 0xFFFF
        if not any(served >> 16 == key for served in self._versions):
            raise CloseConnection(f"unknown API key {key}")
        if key == API_VERSIONS:
            return False
        version -= (version & 0x8000) << 1  # a version is a signed number
        raise CloseConnection(f"{API_NAMES[key]} version {version} is not supported")

    def _has_handler(self, session: Session, key: int, nbytes: int) -> bool:
        """Return whether the handler of the API handles a frame.

        In the state AUTHENTICATE, only a SaslAuthenticate request is handled by its handler. If the
        client sends tokens without request headers, none of its frames is.

        An expired session becomes EXPIRED here, so that no session needs a timer.

        Raises:
            CloseConnection: the session's state does not admit the API or the size of the frame.
        """
        if session.state is _READY:
            if session.expires_at is None or _now() < session.expires_at:
                return True
            session.state = SessionState.EXPIRED
        state = session.state
        if nbytes > self._max_login_frame_bytes:
            raise CloseConnection(f"request of {nbytes} bytes before the login is complete")
        if state is _AUTHENTICATE:
            return key == SASL_AUTHENTICATE and not session.sends_tokens
        if key not in ADMITTED_APIS[state]:
            name = API_NAMES.get(key, key)
            raise CloseConnection(f"API {name} is not allowed before the login is complete")
        return True

    def authorize(
        self,
        connection: RequestContext,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        """Return the `names` of resources on which a request may perform an operation.

        Raises:
            KeyError: there is an authorizer, and `PERMISSIONS` has no row for this API, operation
                and type.
            Undecided: see `Authorizer.authorize`.
        """
        if self.authorizer is None or not names:
            return names
        self.row(api_key, operation, resource_type)
        return self.authorizer.authorize(connection, operation, resource_type, names)

    def authorize_any(
        self,
        connection: RequestContext,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool:
        """Return whether a request may perform an operation on at least one resource of a type.

        Raises:
            KeyError: there is an authorizer, and `PERMISSIONS` has no row for this API, operation
                and type.
        """
        if self.authorizer is None:
            return True
        self.row(api_key, operation, resource_type)
        return self.authorizer.authorize_any(connection, operation, resource_type)

    @staticmethod
    def row(api_key: int, operation: Operation, resource_type: ResourceType) -> Permission:
        """Return a row of `PERMISSIONS`; the row has the error for a denial.

        Raises:
            KeyError: there is no such row.
        """
        return _ROWS[api_key, operation, resource_type]

    def operations(
        self, connection: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> int:
        """Return the operations that a client may perform on a resource, as a bit field.

        Raises:
            Undecided: see `Authorizer.operations`.
        """
        supported = operation_bits(SUPPORTED_OPERATIONS[resource_type])
        if self.authorizer is None:
            return supported
        return self.authorizer.operations(connection, resource_type, name) & supported

    def denied(
        self,
        connection: RequestContext,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Record that an operation was denied on a resource that the request names.

        Resources that a response leaves out, because the request did not name them, are not
        recorded.
        """
        if self.audit is None:
            return
        if self._denials:
            of_request = self._denials.get(connection)
            if of_request is not None and len(of_request) < MOST_DENIALS:
                of_request[api_key, operation, resource_type, name] = None
                return
        self.audit.denied(connection, api_key, operation, resource_type, name)

    @property
    def asks_caller(self) -> bool:
        """Whether an authorization may await an answer of the user's code."""
        return self.authorizer is not None and self.authorizer.asks_caller

    def begin(self, connection: RequestContext) -> None:
        """Begin a request whose authorization may await answers."""
        cast("CallerAuthorizer", self.authorizer).begin(connection)
        self._denials[connection] = {}

    def again(self, connection: RequestContext) -> None:
        """Begin the request again with the answers.

        The denials of the previous run are dropped, because the handler reports them again.
        """
        self._denials[connection] = {}

    def end(self, connection: RequestContext) -> None:
        """End a request that `begin` began, and record its denials once."""
        cast("CallerAuthorizer", self.authorizer).end(connection)
        for denial in self._denials.pop(connection, ()):
            self.denied(connection, *denial)

    async def settle(self, connection: RequestContext, undecided: Undecided) -> None:
        """Await the answers to questions, and keep them for the rest of the request."""
        await cast("CallerAuthorizer", self.authorizer).settle(connection, undecided)

    def throttle_ms(
        self,
        connection: RequestContext,
        api_key: int,
        client_id: str | None,
        nbytes: int,
        *,
        answered: bool = True,
        in_login: bool = False,
        least_ms: int = 0,
    ) -> int:
        """Count a request that was handled; return its throttle time in ms, 0 without quotas.

        If the time is above 0, the connection is muted: the server reads nothing from it during the
        throttle time. A client that supports KIP-219 also sends nothing.

        Args:
            answered: whether the request gets a response; False for Produce with acks=0.
            in_login: whether the session was in a login when the request arrived.
            least_ms: the throttle time that the handler has decided, for fetched bytes or changes
                of the metadata.
        """
        if self.quotas is None:
            return 0
        throttle_ms = self.quotas.throttle_ms(
            connection, api_key, client_id, nbytes, answered=answered, in_login=in_login
        )
        throttle_ms = min(max(throttle_ms, least_ms), MAX_THROTTLE_MS)
        if throttle_ms > 0:
            until = asyncio.get_running_loop().time() + throttle_ms / 1000
            connection.mute_until = max(connection.mute_until, until)
        return throttle_ms


def _now() -> float:
    return asyncio.get_running_loop().time()

"""Fetch sessions (KIP-227): each client's partitions, and the offsets last sent to the client.

This module implements the cache of sessions, session epochs and incremental responses. The fetch
handler reads the logs and waits for data.

Source: Kafka ``FetchSession.scala``. Tests: ``tests/unit/broker/replica/test_fetch_sessions.py``.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokq.connection.turn import STEPS_PER_LOOK, Steps, at_once
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.wire.fetch import FetchPartitionData, FetchRequest

__all__ = [
    "FetchContext",
    "FetchSession",
    "FetchSessionCache",
    "FetchTarget",
    "asked_targets",
]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_SESSION_ID: Final = 2**31 - 1

NONE: Final = 0
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106

EVICTION_SECONDS: Final = 120.0
"""Kafka's constant `min.incremental.fetch.session.eviction.ms`, in seconds."""

MAX_SESSION_TARGETS: Final = 200_000
"""The maximum number of partitions in one session.

Without a limit, one request of 100 MB could create a session of 3,000,000 partitions, because each
partition takes 33 bytes in a request. The session would outlive its connection, and each small
request of the session would read all of its partitions.
"""

MAX_TARGETS: Final = 1_000_000
"""The maximum number of partitions in all sessions together.

So many partitions use some hundreds of MB of memory.
"""

TargetKey = tuple[str | uuid.UUID, int]
"""Topic and partition number. The topic is an id from version 13 of Fetch on, a name before."""


@dataclass(slots=True)
class FetchTarget:
    """A partition of a fetch request or session, and the offsets last sent to the client."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start_offset: int = -1

    @property
    def key(self) -> TargetKey:
        return (self.topic if self.topic_id == ZERO_UUID else self.topic_id, self.partition)

    def take(self, asked: FetchTarget) -> None:
        """Take over the fields of a later request for the same partition."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def is_news(self, data: FetchPartitionData) -> bool:
        """Whether an incremental response must include this partition."""
        return bool(
            data.records
            or data.error_code
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start_offset
            or data.diverging_epoch is not None
            or data.preferred_read_replica != -1
        )

    def tell(self, data: FetchPartitionData) -> None:
        """Store the offsets that are sent to the client.

        If `data` has an error, the stored high watermark is reset. As a result, the first response
        after the error includes the partition, even if its high watermark is unchanged.
        """
        self.told_high_watermark = -1 if data.error_code else data.high_watermark
        self.told_log_start_offset = data.log_start_offset


@dataclass(slots=True)
class FetchSession:
    """A fetch session, which keeps a client's partitions between its Fetch requests (KIP-227).

    Attributes:
        privileged: whether the session belongs to a follower; if not, it belongs to a consumer.
        epoch: the session epoch that the next request must have.
        targets: the partitions, in the order in which they are read.
    """

    session_id: int
    uses_topic_ids: bool
    privileged: bool
    created: float
    last_used: float
    epoch: int
    targets: dict[TargetKey, FetchTarget] = field(default_factory=dict)


Result = tuple[FetchTarget, "FetchPartitionData"]


class FetchContext:
    """The session state of one request: an error code, or the partitions to read.

    The results of the reads are passed to `finish`.
    """

    __slots__ = ("_cache", "_full", "error_code", "session", "targets", "uses_topic_ids")

    def __init__(
        self,
        cache: FetchSessionCache,
        *,
        error_code: int = NONE,
        targets: Sequence[FetchTarget] = (),
        session: FetchSession | None = None,
        full: bool = False,
        uses_topic_ids: bool = False,
    ) -> None:
        self._cache = cache
        self._full = full
        self.error_code = error_code
        self.targets = targets
        self.session = session
        self.uses_topic_ids = uses_topic_ids

    @property
    def session_id(self) -> int:
        """The id of the session that the request continues; 0 if it continues none."""
        return NO_SESSION if self.session is None else self.session.session_id

    def included(self, results: Sequence[Result]) -> Steps[Sequence[Result]]:
        """Return the results that the response includes; the session does not change.

        Yields after each `STEPS_PER_LOOK` results, so that other tasks can run.
        """
        if self._full or self.session is None:
            return results
        news: list[Result] = []
        for start in range(0, len(results), STEPS_PER_LOOK):
            some = results[start : start + STEPS_PER_LOOK]
            news += [(target, data) for target, data in some if target.is_news(data)]
            if len(results) > STEPS_PER_LOOK:
                yield
        return news

    def finish(
        self, results: Sequence[Result], *, privileged: bool = False
    ) -> Steps[tuple[int, Sequence[Result]]]:
        """Return the session id and the results that the response includes.

        Yields after each `STEPS_PER_LOOK` results, so that other tasks can run.

        For a request with session epoch 0, a session is created if the limits of the cache allow
        it. Without a session, the id is 0.
        """
        if self._full:
            if not self._cache.has_room(results, privileged):
                return NO_SESSION, results
            targets: dict[TargetKey, FetchTarget] = {}
            for number, (target, data) in enumerate(results, 1):
                target.tell(data)
                targets[target.key] = target
                if not number % STEPS_PER_LOOK:
                    yield
            return self._cache.create(targets, self.uses_topic_ids, privileged), results
        session = self.session
        if session is None:
            return NO_SESSION, results
        news = yield from self.included(results)
        for number, (target, data) in enumerate(news, 1):
            target.tell(data)
            # A partition that returned records moves to the end of the session, for fairness.
            if data.records and session.targets.pop(target.key, None) is not None:
                session.targets[target.key] = target
            if not number % STEPS_PER_LOOK:
                yield
        return session.session_id, news


class FetchSessionCache:
    """The fetch sessions of a node, at most `slots`.

    The number of partitions is limited per session and for all sessions. A client whose session
    would exceed a limit has to name all partitions in each request.
    """

    def __init__(self, slots: int, *, clock: Clock, rng: random.Random) -> None:
        self._slots = slots
        self._clock = clock
        self._random = rng
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Discard all sessions; later requests in them get FETCH_SESSION_ID_NOT_FOUND."""
        self._sessions.clear()

    def open(
        self,
        request: FetchRequest,
        version: int,
        asked: dict[TargetKey, FetchTarget] | None = None,
    ) -> FetchContext:
        """Return the context of a request: an error code, or the partitions to read.

        A request with session epoch 0 or -1 ends the session whose id it has. Any other request
        updates its session, and reads all partitions of the session. If the partitions that the
        request adds would exceed `MAX_SESSION_TARGETS` or `MAX_TARGETS`, the session ends with
        FETCH_SESSION_ID_NOT_FOUND, and the client begins a new session.

        Args:
            asked: the partitions of the request, if `asked_targets` has found them already.
        """
        if asked is None:
            asked = at_once(asked_targets(request))
        uses_topic_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full fetch request ends the session that its session id names.
            self._sessions.pop(request.session_id, None)
            targets = list(asked.values())
            full = request.session_epoch == INITIAL_EPOCH
            return FetchContext(self, targets=targets, full=full, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext(self, error_code=FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext(self, error_code=INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(self, error_code=FETCH_SESSION_TOPIC_ID_ERROR)
        del self._sessions[session.session_id]
        size = len(session.targets) + sum(key not in session.targets for key in asked)
        if size > len(session.targets) and self._is_full(size):
            return FetchContext(self, error_code=FETCH_SESSION_ID_NOT_FOUND)
        _update(session, asked, request)
        if not session.targets:
            return FetchContext(self, uses_topic_ids=uses_topic_ids)
        self._sessions[session.session_id] = session  # now the most recently used
        session.last_used = self._clock.monotonic()
        session.epoch = 1 if session.epoch == MAX_SESSION_ID else session.epoch + 1
        return FetchContext(
            self,
            targets=list(session.targets.values()),
            session=session,
            uses_topic_ids=uses_topic_ids,
        )

    def has_room(self, targets: Collection[object], privileged: bool) -> bool:
        """Return whether the limits allow a new session with these partitions.

        Other sessions may be evicted for the new session; see `_evict`.
        """
        now = self._clock.monotonic()
        if len(targets) > MAX_SESSION_TARGETS:
            return False
        while len(self._sessions) >= self._slots or self._is_full(len(targets)):
            if not self._evict(now, len(targets), privileged):
                return False
        return True

    def create(
        self, targets: dict[TargetKey, FetchTarget], uses_topic_ids: bool, privileged: bool
    ) -> int:
        """Create a session with these partitions; return its id, or 0 if the limits forbid it.

        The limits are checked here even if `has_room` returned True before, because other tasks may
        have run since.
        """
        if not self.has_room(targets, privileged):
            return NO_SESSION
        now = self._clock.monotonic()
        session_id = self._random.randint(1, MAX_SESSION_ID)
        while session_id in self._sessions:
            session_id = self._random.randint(1, MAX_SESSION_ID)
        session = FetchSession(
            session_id, uses_topic_ids, privileged, now, now, epoch=1, targets=targets
        )
        self._sessions[session_id] = session
        return session_id

    def _is_full(self, size: int) -> bool:
        """Return whether a session of `size` partitions would exceed a limit of partitions."""
        if size > MAX_SESSION_TARGETS:
            return True
        return size + sum(len(one.targets) for one in self._sessions.values()) > MAX_TARGETS

    def _evict(self, now: float, size: int, privileged: bool) -> bool:
        """Evict one session for a new session, if the rules permit; return whether one was evicted.

        The least recently used session is evicted if it has not been used for `EVICTION_SECONDS`.
        Otherwise, the session with the lowest priority is evicted if its priority is lower than
        the new session's. Followers' sessions have priority over consumers' sessions, and larger
        sessions over smaller sessions. A session that was created less than `EVICTION_SECONDS` ago
        is evicted only if it belongs to a consumer and the new session belongs to a follower.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used > EVICTION_SECONDS:
            del self._sessions[oldest.session_id]
            return True
        candidates = [
            session
            for session in self._sessions.values()
            if (privileged and not session.privileged) or now - session.created > EVICTION_SECONDS
        ]
        if not candidates:
            return False
        least = min(candidates, key=lambda session: (session.privileged, len(session.targets)))
        if (privileged, size) <= (least.privileged, len(least.targets)):
            return False
        del self._sessions[least.session_id]
        return True


def asked_targets(request: FetchRequest) -> Steps[dict[TargetKey, FetchTarget]]:
    """Return the partitions that a request names.

    Yields after each `STEPS_PER_LOOK` partitions, so that other tasks can run.
    """
    targets: dict[TargetKey, FetchTarget] = {}
    number = 0
    for topic in request.topics:
        for asked in topic.partitions:
            target = FetchTarget(
                topic.topic,
                topic.topic_id,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
            )
            targets[target.key] = target
            number += 1
            if not number % STEPS_PER_LOOK:
                yield
    return targets


def _update(
    session: FetchSession, asked: dict[TargetKey, FetchTarget], request: FetchRequest
) -> None:
    for key, target in asked.items():
        session.targets.setdefault(key, target).take(target)
    for topic in request.forgotten_topics_data:
        name = topic.topic if topic.topic_id == ZERO_UUID else topic.topic_id
        for partition in topic.partitions:
            session.targets.pop((name, partition), None)

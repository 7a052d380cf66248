"""Waiting for a topic to be known; each waits on its own, so that none holds up another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokq.cluster.metadata import TopicInfo
from aiokq.cluster.refresh import RETRIED_CODES
from aiokq.core.errors import BrokerError, RequestTimeout, UnknownTopicOrPartition, error_for

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["TopicLookup"]


class TopicLookup:
    """Looks topics up that the snapshot does not have, or not in a usable state."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine

    async def wait(self, name: str, *, timeout: float, create: bool) -> TopicInfo:
        """The topic once metadata has it without an error; see `ClusterEngine.topic`."""
        engine = self._engine
        limit = asyncio.timeout(timeout)
        answered = False
        engine.refresher.expect(name)
        try:
            async with limit:
                while True:
                    # The first request goes out now; later ones at the pace of a missing topic.
                    await engine.refresher.refresh([name], create=create, urgent=not answered)
                    answered = True
                    info = engine.metadata.topics.get(name)
                    if info is not None and not info.error_code:
                        engine.interest.used(name, engine.now())
                        return info
                    self._raise_if_final(name)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self.error(name, timeout) from (engine.last_error or error)
        finally:
            engine.refresher.unexpect(name)

    def missing(self, name: str) -> bool:
        """Whether the newest answer about the topic says that it does not exist."""
        return self._code(name) in RETRIED_CODES

    def error(self, name: str, waited: float) -> BrokerError:
        """What to say of a topic that did not become usable within ``waited`` seconds."""
        code = self._code(name)
        if code in RETRIED_CODES:
            return UnknownTopicOrPartition(
                f"there is no topic {name!r}, and it did not come to exist within {waited:.3g} s: "
                "create it, or check its name",
                topic_partition=name,
            )
        if code:
            return error_for(code, topic_partition=name, api="Metadata")
        last_error = self._engine.last_error
        return RequestTimeout(
            f"no metadata of topic {name!r} within {waited:.3g} s"
            + (f": {last_error}" if last_error is not None else ""),
            api="Metadata",
            topic_partition=name,
        )

    def _raise_if_final(self, name: str) -> None:
        code = self._code(name)
        if code and code not in RETRIED_CODES:
            error = error_for(code, topic_partition=name, api="Metadata")
            if not error.retriable:
                raise error

    def _code(self, name: str) -> int:
        metadata = self._engine.metadata
        info = metadata.topics.get(name)
        return metadata.topic_errors.get(name, 0) if info is None else info.error_code

"""ProducerRules: compares producer settings with each other, and computes values from settings.

The functions of this module check and convert single settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiokq.cluster.rules import ClusterRules
from aiokq.producer.partitioner import Partitioner
from aiokq.producer.timeouts import ProducerTimeouts, fitted
from aiokq.records.compression import CODEC_NAMES, GZIP, LZ4, ZSTD, check_level, codec_id

__all__ = [
    "ProducerRules",
    "acks_as_number",
    "codecs_from_text",
    "gzip_level",
    "known_codec",
    "lz4_level",
    "no_name_of_a_partitioner",
    "not_empty",
    "zstd_level",
]

MAX_IDEMPOTENT_IN_FLIGHT = 5
"""Largest number of requests in flight with idempotence.

Brokers recognize duplicates only among the last five batches of a producer in a partition.
"""


def acks_as_number(value: object) -> object:
    if isinstance(value, str):
        # "all" becomes -1, its value in Produce requests.
        known = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(value.strip().lower())
        if known is not None:
            return known
    elif isinstance(value, int) and not isinstance(value, bool) and value in (-1, 0, 1):
        return value
    raise ValueError(f"must be 0, 1, -1 or 'all', not {value!r}")


def no_name_of_a_partitioner(value: object) -> object:
    # A str has a method partition(), and a class may have one, but neither is a partitioner.
    plain = isinstance(value, type) or not (callable(value) or isinstance(value, Partitioner))
    if value is not None and (plain or isinstance(value, str | bytes | bytearray)):
        raise ValueError(
            "must be a callable (key, partitions, available) -> int, or an object with "
            f"partition(), not {value!r}"
        )
    return value


def known_codec(value: object) -> object:
    if isinstance(value, str):
        codec_id(value)  # raises a ConfigError that lists the names
    return value


def codecs_from_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    codecs: dict[str, str] = {}
    for part in filter(None, map(str.strip, value.split(","))):
        topic, colon, codec = part.rpartition(":")
        if not colon or codec not in CODEC_NAMES:
            raise ValueError(f"{part!r} is not 'topic:codec'")
        codecs[topic] = codec
    return codecs


def gzip_level(value: int) -> int:
    return check_level(GZIP, value)


def lz4_level(value: int) -> int:
    return check_level(LZ4, value)


def zstd_level(value: int) -> int:
    return check_level(ZSTD, value)


def not_empty(value: str | None) -> str | None:
    if value is not None and not value:
        raise ValueError("a transactional id needs at least one character")
    return value


class ProducerRules(ClusterRules):
    """Compares producer settings with each other, and computes values from settings."""

    if TYPE_CHECKING:
        acks: Literal[0, 1, -1, "all"]
        linger_ms: float
        linger_when_awaited: bool | None
        max_block_ms: int
        delivery_timeout_ms: int
        retries: int
        max_in_flight_requests_per_connection: int
        enable_idempotence: bool
        transactional_id: str | None
        transaction_timeout_ms: int
        compression_gzip_level: int
        compression_lz4_level: int
        compression_zstd_level: int

    def _check_together(self) -> None:
        super()._check_together()
        self._check_idempotence()
        self._fit_timeouts()

    def _check_idempotence(self) -> None:
        limit = MAX_IDEMPOTENT_IN_FLIGHT
        in_flight = self.max_in_flight_requests_per_connection
        conflicts = []
        if self.acks != -1:
            conflicts.append(f"acks={self.acks} (needs 'all')")
        if self.retries == 0:
            conflicts.append("retries=0 (needs at least 1)")
        if in_flight > limit:
            conflicts.append(
                f"max_in_flight_requests_per_connection={in_flight} (needs {limit} or fewer)"
            )
        if self.transactional_id is not None:
            if not self.enable_idempotence:
                conflicts.append("enable_idempotence=False (needs True)")
            if conflicts:
                raise ValueError("transactional_id conflicts with " + ", ".join(conflicts))
        if conflicts and self.enable_idempotence:
            if "enable_idempotence" in self.explicit:
                raise ValueError("enable_idempotence conflicts with " + ", ".join(conflicts))
            self._settle("enable_idempotence", False)

    def _fit_timeouts(self) -> None:
        held = self.timeouts
        self._settle("linger_ms", held.linger_ms)
        self._settle("delivery_timeout_ms", held.delivery_timeout_ms)
        self._settle("max_block_ms", held.max_block_ms)

    @property
    def required_acks(self) -> int:
        """The `acks` field of a Produce request: 0, 1 or -1."""
        return -1 if self.acks == "all" else self.acks

    @property
    def produce_request_timeout_ms(self) -> int:
        """The milliseconds that a Produce request of this producer may wait for its response.

        If `delivery_timeout_ms` was set and `request_timeout_ms` was not, `delivery_timeout_ms`
        limits this time. Other requests use `request_timeout_ms`.
        """
        return self.timeouts.request_timeout_ms

    @property
    def timeouts(self) -> ProducerTimeouts:
        """The effective timeouts; see `fitted`."""
        given = ProducerTimeouts(
            self.linger_ms, self.request_timeout_ms, self.delivery_timeout_ms, self.max_block_ms
        )
        # A request_timeout_ms that was set on the Cluster is meant for the Cluster's requests. For
        # this producer, it counts as not set.
        return fitted(given, self.explicit - self.of_cluster)

    @property
    def linger(self) -> float:
        """``linger_ms`` in seconds."""
        return self.linger_ms / 1000

    @property
    def lingers_when_awaited(self) -> bool:
        """``linger_when_awaited``; if that is unset, whether ``linger_ms`` was set."""
        if self.linger_when_awaited is None:
            return "linger_ms" in self.explicit
        return self.linger_when_awaited

    @property
    def delivery_timeout(self) -> float:
        """``delivery_timeout_ms`` in seconds."""
        return self.delivery_timeout_ms / 1000

    @property
    def max_block(self) -> float:
        """``max_block_ms`` in seconds."""
        return self.max_block_ms / 1000

    def compression_level(self, codec: int) -> int | None:
        """Return the configured level of a codec; None for codecs without levels."""
        levels = {
            GZIP: self.compression_gzip_level,
            LZ4: self.compression_lz4_level,
            ZSTD: self.compression_zstd_level,
        }
        return levels.get(codec)

"""Counters of the engine `bruce`. The counter report shows those of pauses."""

from __future__ import annotations

from collections import Counter

__all__ = ["BruceCounters"]


class BruceCounters:
    """Counts of events since the engine was created. The numbers never decrease.

    Attributes:
        pauses_started, pauses_finished: pauses after an error.
        restarts: restarts without a pause, because leaders have changed.
        requests: Produce requests sent.
        requests_failed: requests without an answer that can be used.
        acked: message sets that were acknowledged.
        refused: message sets that were refused, by error code.
        metadata_failures: failed requests for metadata.
        rerouted: messages that a pause or a restart has routed again.
    """

    __slots__ = (
        "acked",
        "metadata_failures",
        "pauses_finished",
        "pauses_started",
        "refused",
        "requests",
        "requests_failed",
        "rerouted",
        "restarts",
    )

    def __init__(self) -> None:
        self.pauses_started = 0
        self.pauses_finished = 0
        self.restarts = 0
        self.requests = 0
        self.requests_failed = 0
        self.acked = 0
        self.refused: Counter[int] = Counter()
        self.metadata_failures = 0
        self.rerouted = 0

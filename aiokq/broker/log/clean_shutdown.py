"""``.kafka_cleanshutdown``: the file that marks a log directory whose logs need no recovery.

Source: Kafka ``CleanShutdownFileHandler.java``, KAFKA-10471, KIP-966.
Tests: ``tests/unit/broker/log/test_directory.py``,
``tests/unit/broker/metadata/start/test_metadata_start.py``.
"""

from __future__ import annotations

import json
from typing import Final

from aiokq.broker.log import file_names
from aiokq.core.files import Files

__all__ = ["CleanShutdown", "clean_shutdown_marker"]

NO_BROKER_EPOCH: Final = -1


def clean_shutdown_marker(broker_epoch: int = NO_BROKER_EPOCH) -> bytes:
    """Return the content of the marker file, with the broker epoch at the shutdown."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()


class CleanShutdown:
    """The marker of one log directory; it is removed when the directory is opened.

    Attributes:
        found: whether the directory had the marker.
        broker_epoch: the broker epoch that ``leave`` writes. At first it is the epoch in the marker
            that was found, so that a refused start does not change the epoch. Once this broker is
            registered, it is the epoch of the registration.
    """

    __slots__ = ("_directory", "_files", "_path", "broker_epoch", "found")

    def __init__(self, files: Files, directory: str) -> None:
        """Remove the marker.

        The marker is removed before the logs are loaded, because a crash while they are loaded is
        an unclean shutdown. The removal is durable on return, because appends to logs need no sync:
        after a power cut, a start that found the marker would not check the records. Each log
        directory needs its own sync, since each may be a file system of its own.

        Raises:
            OSError: the disk failed.
        """
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{file_names.CLEAN_SHUTDOWN}"
        self.broker_epoch = NO_BROKER_EPOCH
        self.found = files.exists(self._path)
        if self.found:
            self.broker_epoch = self._read_broker_epoch()
            files.remove(self._path)
            files.sync_dir(directory)

    def _read_broker_epoch(self) -> int:
        """Return the broker epoch in the marker.

        If this epoch differs from the epoch of the node's last registration, Kafka's controller
        treats the last shutdown as unclean and removes the node from the in-sync replicas.
        """
        try:
            values = json.loads(self._files.read_bytes(self._path))
        except (ValueError, RecursionError):
            return NO_BROKER_EPOCH
        epoch = values.get("brokerEpoch") if isinstance(values, dict) else None
        return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH

    def leave(self) -> None:
        """Sync the directory, then write the marker durably. All records must be durable already.

        Raises:
            OSError: the disk failed.
        """
        self._files.sync_dir(self._directory)
        self._files.write_atomic(self._path, clean_shutdown_marker(self.broker_epoch))

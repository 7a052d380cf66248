"""``.kafka_cleanshutdown``: the file that marks a log directory whose logs need no recovery.

Source: Kafka ``CleanShutdownFileHandler.java``, KAFKA-10471, KIP-966.
Tests: ``tests/unit/broker/log/test_directory.py``,
``tests/unit/broker/metadata/start/test_metadata_start.py``.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from aiokq.broker.log import file_names
from aiokq.core.files import Files

__all__ = ["NO_BROKER_EPOCH", "CleanShutdown", "clean_shutdown_marker"]

logger = logging.getLogger("aiokq.broker.log")

NO_BROKER_EPOCH: Final = -1


def clean_shutdown_marker(broker_epoch: int = NO_BROKER_EPOCH) -> bytes:
    """Return the content of the marker file, with the broker epoch at the shutdown."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()


class CleanShutdown:
    """The marker of one log directory, read when the directory is opened.

    Attributes:
        found: whether the directory had a valid marker.
        broker_epoch: the broker epoch that ``leave`` writes. At first it is the epoch in the marker
            that was found, or -1. The registration of this broker replaces it.
    """

    __slots__ = ("_directory", "_files", "_path", "broker_epoch", "found")

    def __init__(self, files: Files, directory: str) -> None:
        """Read the marker, if the directory has a marker; nothing is changed.

        Raises:
            OSError: the disk failed.
        """
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{file_names.CLEAN_SHUTDOWN}"
        self.broker_epoch = NO_BROKER_EPOCH
        self.found = False
        if files.exists(self._path):
            self._read()

    def remove(self) -> None:
        """Remove the marker, if the directory has a marker.

        Called before the logs are loaded, because a crash during the load is an unclean shutdown.
        The removal is durable on return: otherwise a power cut could bring the marker back, and the
        next start would not recover the logs. The directory is synced even if the marker is
        missing, because the previous start may have failed between the removal and the sync.

        Raises:
            OSError: the disk failed.
        """
        if self._files.exists(self._path):
            self._files.remove(self._path)
        self._files.sync_dir(self._directory)

    def _read(self) -> None:
        """Read the marker. A damaged marker is treated as missing, so the logs are recovered.

        Markers of Kafka 3.6 and older are empty. Markers of earlier versions of aiokq have only the
        version.
        """
        data = self._files.read_bytes(self._path)
        try:
            values = json.loads(data or b'{"version":0}')
            version, epoch = values.pop("version"), values.pop("brokerEpoch", NO_BROKER_EPOCH)
            if version != 0 or type(epoch) is not int or values:
                raise ValueError(f"version {version!r}, broker epoch {epoch!r}, {values}")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            logger.warning(
                "clean shutdown marker damaged, logs are recovered path=%s error=%s",
                self._path,
                str(error)[:100],
            )
            return
        self.found, self.broker_epoch = True, epoch

    def leave(self) -> None:
        """Sync the directory, then write the marker durably. All records must be durable already.

        Raises:
            OSError: the disk failed.
        """
        self._files.sync_dir(self._directory)
        self._files.write_atomic(self._path, clean_shutdown_marker(self.broker_epoch))

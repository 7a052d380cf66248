"""DescribeLogDirs (35), versions 1-4: describe log directories, their partitions and their volumes.

An offline directory has the error KAFKA_STORAGE_ERROR and no partitions.

Errors of the request: CLUSTER_AUTHORIZATION_FAILED. Versions 1 and 2 have no field for this error,
and just return no directories. KIP-113, KIP-827.

v2  flexible    v3  an error code for the request    v4  sizes of the volume
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, KafkaStorage
from aiokq.core.utf8 import response_text
from aiokq.wire.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Host, Logs
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.core.files import Files

NOT_KNOWN: Final = (-1, -1)


async def handle(
    logs: Logs, host: Host, request: DescribeLogDirsRequest, call: Call
) -> DescribeLogDirsResponse:
    """Describe each log directory."""
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
    except BrokerError as error:
        return DescribeLogDirsResponse(error_code=error.code, results=[])
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            async for index in call.each(topic.partitions):
                wanted.add((topic.topic, index))
    directories = logs.directories
    results = []
    for directory in directories.online:
        total, usable = await host.offload.run(_volume, host.files, directory.path)
        results.append(
            DescribeLogDirsResult(
                error_code=0,
                log_dir=_absolute(directory.path),
                topics=_topics(directory, wanted),
                total_bytes=total,
                usable_bytes=usable,
            )
        )
    for path in directories.offline:
        results.append(
            DescribeLogDirsResult(
                error_code=KafkaStorage.code,
                log_dir=_absolute(path),
                topics=[],
            )
        )
    return DescribeLogDirsResponse(error_code=0, results=results)


def _topics(
    directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (name, index), log in sorted(directory.logs.items()):
        if wanted is None or (name, index) in wanted:
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=log.size_bytes,
                    offset_lag=log.log_end_offset - log.high_watermark,
                    is_future_key=False,  # partitions do not move between directories
                )
            )
    return [
        DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]


def _absolute(path: str) -> str:
    """Return the absolute path without accessing the disk, because an access may hang."""
    return response_text(os.path.abspath(path))


def _volume(files: Files, path: str) -> tuple[int, int]:
    """Return the size of a directory's volume, and the bytes that a process can still use.

    Both are -1 if the operating system returns an error.
    """
    try:
        return files.disk_usage(path)
    except OSError:
        return NOT_KNOWN

"""What is in the files of ``tests/golden/quorum``, which Apache Kafka's own classes wrote."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from aiokq.broker.metadata.image.record_codec import encode_metadata_record
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord, TopicRecord
from aiokq.wire.quorum_records import (
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordEndpoint,
    VotersRecordVoter,
)

GOLDEN: Final = Path(__file__).parents[3] / "golden" / "quorum"
NOW: Final = 1_700_000_000_123
"""The timestamp of all batches; the last record of the log is a second older."""

FIRST: Final = uuid.UUID("11111111-1111-4111-8111-111111111111")
SECOND: Final = uuid.UUID("22222222-2222-4222-8222-222222222222")


def voter(number: int, directory: uuid.UUID, host: str, port: int, least: int) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=number,
        voter_directory_id=directory,
        endpoints=[VotersRecordEndpoint(name="CONTROLLER", host=host, port=port)],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=least, max_supported_version=1
        ),
    )


def voters() -> VotersRecord:
    return VotersRecord(
        voters=[
            voter(1, FIRST, "localhost", 9093, 0),
            voter(2, SECOND, "größe.example", 65535, 1),
        ]
    )


def values(*names: str) -> list[bytes]:
    """Return the values of two features and of topics."""
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        FeatureLevelRecord(name="group.version", feature_level=1),
        *(
            TopicRecord(name=name, topic_id=one)
            for name, one in zip(names, (FIRST, SECOND), strict=False)
        ),
    ]
    return [encode_metadata_record(record) for record in records]

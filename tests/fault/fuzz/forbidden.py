"""Requests that the fuzzers leave out, because they would harm everybody if they were granted.

A super user has the right to send them, so the broker would be right to carry them out. The fuzzers
may try everything else, with any rights.
"""

from __future__ import annotations

from aiokq import wire
from aiokq.core.errors import ProtocolError
from tests.fault.fuzz.values import SECRET, SECRET_ID

MOST_PARTITIONS = 6
OWN = "fuzz-"
"""Beginning of the names of users that fuzzers may change."""

BROKER, BROKER_LOGGER = 4, 8

LEFT_ALONE = (SECRET.encode(), SECRET_ID.bytes, b"__consumer_offsets")

KEYS = {
    request.API_KEY
    for request in (
        *(wire.CreateTopicsRequest, wire.CreatePartitionsRequest),
        *(wire.AlterConfigsRequest, wire.IncrementalAlterConfigsRequest),
        *(wire.AlterClientQuotasRequest, wire.AlterUserScramCredentialsRequest),
        *(wire.CreateAclsRequest, wire.DeleteAclsRequest, wire.UpdateFeaturesRequest),
        wire.ConsumerGroupHeartbeatRequest,
    )
}
"""The APIs whose requests are examined."""


def is_forbidden(payload: bytes, *, is_super: bool) -> bool:
    """Return whether a frame, without its size, is a request that fuzzers must not send.

    A super user leaves the secret topic alone, so that any change of it is a missing check, and the
    topic with the offsets of all groups.
    """
    if is_super and any(name in payload for name in LEFT_ALONE):
        return True
    if int.from_bytes(payload[:2], "big") not in KEYS:
        return False
    try:
        _, request = wire.decode_request(memoryview(payload))
    except ProtocolError:
        return False
    match request:
        case wire.CreateTopicsRequest():
            # Thousands of partitions fill the disk with directories, and so do preallocated files.
            return any(
                topic.num_partitions > MOST_PARTITIONS
                or len(topic.assignments) > MOST_PARTITIONS
                or any(config.name == "preallocate" for config in topic.configs)
                for topic in request.topics
            )
        case wire.CreatePartitionsRequest():
            return any(topic.count > MOST_PARTITIONS for topic in request.topics)
        case wire.AlterConfigsRequest() | wire.IncrementalAlterConfigsRequest():
            # Limits of connections and of messages would lock out the clients that must be served;
            # the levels of loggers would hide what the round looks for in the log.
            return any(one.resource_type in (BROKER, BROKER_LOGGER) for one in request.resources)
        case wire.AlterClientQuotasRequest():
            return any(  # a quota for everybody would hold the working clients
                not (entity.entity_name or "").startswith(OWN)
                for entry in request.entries
                for entity in entry.entity
            )
        case wire.AlterUserScramCredentialsRequest():
            names = [one.name for one in (*request.deletions, *request.upsertions)]
            return not all(name.startswith(OWN) for name in names)
        case wire.CreateAclsRequest():
            # An ACL for everybody, or for the fuzzer without rights, would make its answers right.
            return not all(one.principal.startswith(f"User:{OWN}") for one in request.creations)
        case wire.DeleteAclsRequest():
            return not all(
                (one.principal_filter or "").startswith(f"User:{OWN}") for one in request.filters
            )
        case wire.ConsumerGroupHeartbeatRequest():
            # Regular expressions of a group are resolved with the rights of the member whose
            # heartbeat comes first after a change of topics, as in Apache Kafka: a super user makes
            # the ids of all topics visible to the group.
            return is_super and request.group_id.startswith(OWN)
        case wire.UpdateFeaturesRequest():
            return not request.validate_only  # an older version of metadata has no ACLs and users
    return False

"""The metadata quorum, features and broker registrations, against a scripted cluster."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.features import FeatureUpdate, FinalizedVersionRange, SupportedVersionRange
from aiokq.admin.quorum import QuorumNode, QuorumReplicaState, RaftVoterEndpoint
from aiokq.core.errors import (
    BrokerIdNotRegistered,
    ClusterAuthorization,
    ConfigError,
    FeatureUpdateFailed,
    InvalidUpdateVersion,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
)
from tests.unit.admin.test_admin import with_admin
from tests.unit.cluster.scripted import ScriptedBroker, ScriptedCluster

DIRECTORY = UUID(int=77)


def quorum_response(version: int, **partition: Any) -> wire.DescribeQuorumResponse:
    """Return a quorum of a leader and a follower, and a broker that observes it."""

    def replica(replica_id: int, end: int, fetched: int, caught_up: int) -> Any:
        members: dict[str, Any] = {"replica_id": replica_id, "log_end_offset": end}
        if version >= 1:
            members |= {
                "last_fetch_timestamp": fetched,
                "last_caught_up_timestamp": caught_up,
            }
        if version >= 2 and replica_id < 10:
            members["replica_directory_id"] = DIRECTORY
        return wire.DescribeQuorumReplicaState(**members)

    members: dict[str, Any] = {
        "leader_id": 1,
        "leader_epoch": 4,
        "high_watermark": 90,
        "current_voters": [replica(2, 90, 5000, 4000), replica(1, 100, -1, 6000)],
        "observers": [replica(10, 80, 4500, 3000)],
    }
    listener = wire.DescribeQuorumListener(name="CONTROLLER", host="c1", port=9093)
    return wire.DescribeQuorumResponse(
        topics=[
            wire.DescribeQuorumResponseTopicData(
                topic_name="__cluster_metadata",
                partitions=[wire.DescribeQuorumResponsePartitionData(**(members | partition))],
            )
        ],
        nodes=[wire.DescribeQuorumNode(node_id=1, listeners=[listener])] if version >= 2 else [],
    )


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_the_quorum_is_described_as_far_as_the_broker_knows_it(newest: int):
    """Version 0 has no times, version 1 no directories and endpoints: both are None or empty."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        asked: list[Any] = []

        def answer(broker: ScriptedBroker, request: Any, version: int) -> Any:
            asked.extend(
                (t.topic_name, p.partition_index) for t in request.topics for p in t.partitions
            )
            return quorum_response(version)

        cluster.handlers[wire.DescribeQuorumRequest] = answer
        cluster.limits[wire.DescribeQuorumRequest] = newest
        found = await admin.describe_metadata_quorum()
        assert asked == [("__cluster_metadata", 0)]
        assert (found.leader_id, found.leader_epoch, found.high_watermark) == (1, 4, 90)
        directory = DIRECTORY if newest >= 2 else None
        times = ((None, 6000), (5000, 4000), (4500, 3000)) if newest else ((None, None),) * 3
        assert found.voters == (
            QuorumReplicaState(1, directory, 100, *times[0]),
            QuorumReplicaState(2, directory, 90, *times[1]),
        )
        assert found.observers == (QuorumReplicaState(10, None, 80, *times[2]),)
        endpoint = RaftVoterEndpoint("CONTROLLER", "c1", 9093)
        assert found.nodes == ({1: QuorumNode(1, (endpoint,))} if newest >= 2 else {})

    with_admin(main)


def test_a_quorum_without_a_leader_is_asked_again():
    """The broker that forwards the request answers NOT_LEADER_OR_FOLLOWER during an election."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        codes = [6, 6, 0]
        cluster.handlers[wire.DescribeQuorumRequest] = lambda broker, request, version: (
            quorum_response(version, error_code=codes.pop(0))
        )
        assert (await admin.describe_metadata_quorum()).leader_id == 1
        assert codes == []
        codes += [6] * 1000
        with pytest.raises(RequestTimeout, match="leader"):
            await admin.describe_metadata_quorum(timeout=2)

    with_admin(main)


def test_a_response_without_the_metadata_log_and_a_refusal_are_errors():
    """An answer about another partition must not look like a quorum without members."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        responses = [
            wire.DescribeQuorumResponse(topics=[]),
            wire.DescribeQuorumResponse(error_code=31, error_message="no"),
        ]
        cluster.handlers[wire.DescribeQuorumRequest] = lambda *_: responses.pop(0)
        with pytest.raises(ProtocolError, match="metadata log"):
            await admin.describe_metadata_quorum()
        with pytest.raises(ClusterAuthorization, match="no"):
            await admin.describe_metadata_quorum()

    with_admin(main)


def test_a_broker_without_the_requests_is_named_as_the_reason():
    """A broker with ZooKeeper, and one that does not serve them yet, answer in words at once."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        requests = (
            wire.DescribeQuorumRequest,
            wire.UpdateFeaturesRequest,
            wire.UnregisterBrokerRequest,
        )
        cluster.missing.update(requests)
        for call, request in zip(
            (
                admin.describe_metadata_quorum(),
                admin.update_features({"group.version": 1}),
                admin.unregister_broker(3),
            ),
            requests,
            strict=True,
        ):
            with pytest.raises(UnsupportedVersion, match=f"does not have {request.NAME}"):
                await call

    with_admin(main)


# -- features


def with_features(cluster: ScriptedCluster, *, epoch: int = 42) -> None:
    def answer(broker: ScriptedBroker, request: Any, version: int) -> Any:
        response = cluster.api_versions()
        if version >= 3 and not request.client_software_name:
            return wire.ApiVersionsResponse(error_code=42)
        response.supported_features = [
            wire.SupportedFeatureKey(name="metadata.version", min_version=7, max_version=29),
            wire.SupportedFeatureKey(name="group.version", max_version=broker.node_id),
        ]
        response.finalized_features = [
            wire.FinalizedFeatureKey(
                name="metadata.version", min_version_level=25, max_version_level=25
            )
        ]
        response.finalized_features_epoch = epoch
        return response

    cluster.handlers[wire.ApiVersionsRequest] = answer


def test_features_are_those_of_the_broker_that_is_asked():
    """Finalized levels are the cluster's, supported ones the broker's."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        with_features(cluster)
        found = await admin.describe_features(node_id=3)
        assert found.finalized_features == {"metadata.version": FinalizedVersionRange(25, 25)}
        assert found.finalized_features_epoch == 42
        assert list(found.supported_features.items()) == [
            ("group.version", SupportedVersionRange(0, 3)),
            ("metadata.version", SupportedVersionRange(7, 29)),
        ]
        with_features(cluster, epoch=-1)
        assert (await admin.describe_features()).finalized_features_epoch is None

    with_admin(main)


def test_a_broker_too_old_for_features_says_so():
    """Features came with Kafka 2.7, in version 3 of ApiVersions."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.limits[wire.ApiVersionsRequest] = 2
        with pytest.raises(UnsupportedVersion, match=r"older than 2\.7: it has no features"):
            await admin.describe_features()

    with_admin(main)


class Features:
    """UpdateFeatures on the controller with scripted responses; other brokers: NOT_CONTROLLER."""

    def __init__(self, cluster: ScriptedCluster, *responses: Any) -> None:
        self.cluster = cluster
        self.responses = list(responses)
        self.asked: list[Any] = []
        cluster.handlers[wire.UpdateFeaturesRequest] = self.update

    def update(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        if broker.node_id != self.cluster.controller_id:
            return wire.UpdateFeaturesResponse(error_code=41)
        self.asked.append(
            (
                version,
                request.validate_only,
                [
                    (u.feature, u.max_version_level, u.upgrade_type, u.allow_downgrade)
                    for u in request.feature_updates
                ],
            )
        )
        return self.responses.pop(0) if self.responses else wire.UpdateFeaturesResponse()


UPDATES = {
    "metadata.version": 26,
    "group.version": FeatureUpdate(0, "safe_downgrade"),
    "share.version": FeatureUpdate(0, "unsafe_downgrade"),
}


def test_levels_and_upgrade_types_are_sent_to_the_controller():
    """Version 2 answers for all features together, after NOT_CONTROLLER of another broker."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        features = Features(cluster, wire.UpdateFeaturesResponse(error_code=41))
        done = await admin.update_features(UPDATES, validate_only=True)
        assert list(done) == list(UPDATES)
        assert done.ok
        sent = [
            ("metadata.version", 26, 1, False),
            ("group.version", 0, 2, False),
            ("share.version", 0, 3, False),
        ]
        assert features.asked == [(2, True, sent)] * 2

    with_admin(main)


@pytest.mark.parametrize(("code", "error"), [(95, InvalidUpdateVersion), (96, FeatureUpdateFailed)])
def test_a_refused_update_is_the_error_of_every_feature(code: int, error: type[Exception]):
    """Nothing was changed: no feature may look as if it was."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        refused = wire.UpdateFeaturesResponse(error_code=code, error_message="group.version: no")
        Features(cluster, refused, refused)
        done = await admin.update_features({"metadata.version": 26, "group.version": 7})
        assert [type(each.error) for each in done.values()] == [error, error]
        assert "group.version: no" in str(done["metadata.version"].error)
        with pytest.raises(error, match="no"):
            await admin.update_features({"group.version": 7}, raise_errors=True)

    with_admin(main)


def test_an_older_controller_answers_for_each_feature():
    """Versions 0 and 1 have a result per feature; other errors of a response are raised."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.limits[wire.UpdateFeaturesRequest] = 1
        results = [
            wire.UpdatableFeatureResult(feature="metadata.version", error_code=0),
            wire.UpdatableFeatureResult(
                feature="group.version", error_code=95, error_message="too high"
            ),
        ]
        Features(
            cluster,
            wire.UpdateFeaturesResponse(results=results),
            wire.UpdateFeaturesResponse(error_code=31),
        )
        done = await admin.update_features({"metadata.version": 26, "group.version": 7})
        assert done["metadata.version"].error is None
        assert isinstance(done["group.version"].error, InvalidUpdateVersion)
        with pytest.raises(ClusterAuthorization):
            await admin.update_features({"metadata.version": 26})

    with_admin(main)


def test_the_first_version_knows_only_that_a_downgrade_is_allowed():
    """What it cannot say is refused, not left out: validate_only would change the cluster."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        cluster.limits[wire.UpdateFeaturesRequest] = 0
        features = Features(cluster)
        done = await admin.update_features({"a": 2, "b": FeatureUpdate(1, "safe_downgrade")})
        assert done.ok
        assert features.asked == [(0, False, [("a", 2, 1, False), ("b", 1, 1, True)])]
        with pytest.raises(UnsupportedVersion, match="validate_only"):
            await admin.update_features({"a": 2}, validate_only=True)
        with pytest.raises(UnsupportedVersion, match="unsafely"):
            await admin.update_features({"a": FeatureUpdate(1, "unsafe_downgrade")})
        assert len(features.asked) == 1

    with_admin(main)


def test_updates_that_contradict_themselves_are_refused_before_they_are_sent():
    """Level 0 is a downgrade; the types are named."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        features = Features(cluster)
        with pytest.raises(ConfigError, match="safe_downgrade"):
            await admin.update_features({"a": 0})
        with pytest.raises(ConfigError, match="upgrade, safe_downgrade, unsafe_downgrade"):
            await admin.update_features({"a": FeatureUpdate(1, "down")})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="level of a"):
            await admin.update_features({"a": -1})
        assert await admin.update_features({}) == {}
        assert features.asked == []

    with_admin(main)


# -- registrations


def test_a_broker_is_unregistered_at_the_controller():
    """NOT_CONTROLLER is retried; an unknown id is an error."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        codes = [41, 0, 102]
        asked: list[int] = []

        def answer(broker: ScriptedBroker, request: Any, version: int) -> Any:
            assert broker.node_id == cluster.controller_id
            asked.append(request.broker_id)
            return wire.UnregisterBrokerResponse(
                error_code=codes.pop(0), error_message="said the controller"
            )

        cluster.handlers[wire.UnregisterBrokerRequest] = answer
        assert await admin.unregister_broker(3) is None
        with pytest.raises(BrokerIdNotRegistered, match="said the controller"):
            await admin.unregister_broker(9)
        assert asked == [3, 3, 9]

    with_admin(main)


def test_a_broker_that_a_lost_request_unregistered_is_a_success():
    """The repeated request finds no such broker, because the first one removed it."""

    async def main(cluster: ScriptedCluster, admin: Admin) -> None:
        registered = {3}

        def answer(broker: ScriptedBroker, request: Any, version: int) -> Any:
            if request.broker_id in registered:
                registered.remove(request.broker_id)
                for transport in list(broker.transports):
                    transport.lose(ConnectionResetError("Connection reset by peer"))
                return None
            return wire.UnregisterBrokerResponse(error_code=102)

        cluster.handlers[wire.UnregisterBrokerRequest] = answer
        await admin.unregister_broker(3)
        assert len(cluster.requests(wire.UnregisterBrokerRequest)) == 2

    with_admin(main)

"""Message classes: construction, equality, and repr."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import pprint

import pytest

from aiokq import wire
from aiokq.wire.fields import i32
from aiokq.wire.struct import Struct


def test_fields_not_given_take_kafkas_defaults() -> None:
    """A wrong default would change the meaning of every request that does not set the field."""
    request = wire.FetchRequest()
    assert request.replica_id == -1
    assert request.max_bytes == 0x7FFFFFFF
    assert request.topics == []
    assert request.cluster_id is None
    assert request.replica_state is None
    assert request.unknown_tags == {}


def test_mutable_defaults_are_not_shared() -> None:
    """Two requests of one process must not append to the same list of topics."""
    first, second = wire.FetchRequest(), wire.FetchRequest()
    first.topics.append(wire.FetchTopic(topic="orders"))
    assert second.topics == []
    one, other = wire.ConsumerGroupDescribeMember(), wire.ConsumerGroupDescribeMember()
    assert one.assignment is not other.assignment


def test_unknown_fields_and_positional_arguments_are_refused() -> None:
    """Otherwise a misspelt field would be sent with its default."""
    with pytest.raises(TypeError, match="max_byte"):
        wire.FetchRequest(max_byte=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        wire.FetchRequest(1)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        wire.FetchRequest().max_byte = 1  # type: ignore[attr-defined]


def test_messages_are_equal_by_type_fields_and_tags() -> None:
    """Tests and fetch sessions compare messages."""
    assert wire.HeartbeatRequest(group_id="g") == wire.HeartbeatRequest(group_id="g")
    assert wire.HeartbeatRequest(group_id="g") != wire.HeartbeatRequest(group_id="h")
    assert wire.HeartbeatRequest() != wire.HeartbeatRequest(unknown_tags={7: b""})
    assert wire.EndTxnMarker() != wire.HeartbeatRequest()
    with pytest.raises(TypeError):
        hash(wire.HeartbeatRequest())


def test_dataclass_functions_work() -> None:
    """Messages are typed as dataclasses, so users may treat them as such."""
    request = wire.HeartbeatRequest(group_id="g", unknown_tags={9: b"x"})
    assert dataclasses.is_dataclass(request)
    assert next(field.name for field in dataclasses.fields(request)) == "group_id"
    changed = dataclasses.replace(request, generation_id=3)
    assert (changed.group_id, changed.generation_id) == ("g", 3)
    assert changed.unknown_tags == {9: b"x"}
    assert dataclasses.asdict(wire.MetadataRequestTopic(name="t"))["name"] == "t"


def test_a_long_message_can_be_pretty_printed() -> None:
    """Regression: `pprint`, and so a failed assertion of pytest, raised AttributeError."""
    message = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t" * 90)])
    assert pprint.pformat([message, message]) == f"[{message!r},\n {message!r}]"


def test_messages_can_be_copied_and_pickled() -> None:
    """Fault scripts and the Spark driver copy and pickle messages."""
    request = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t")])
    assert copy.deepcopy(request) == request
    assert copy.copy(request).topics is request.topics
    assert pickle.loads(pickle.dumps(request)) == request
    assert copy.deepcopy(request).unknown_tags is request.unknown_tags


def test_the_shared_absence_of_tags_cannot_be_filled() -> None:
    """A tag added to it in place would be in every message of the process."""
    request = wire.HeartbeatRequest()
    with pytest.raises(TypeError, match="unknown_tags"):
        request.unknown_tags[1] = b"x"  # type: ignore[index]
    assert wire.HeartbeatRequest().unknown_tags == {}


def test_repr_shows_no_bytes() -> None:
    """A traceback with a SASL request must not show the password."""
    secret = wire.SaslAuthenticateRequest(auth_bytes=b"\0user\0secret")
    assert repr(secret) == "SaslAuthenticateRequest(auth_bytes=<12 bytes>)"
    data = wire.PartitionProduceData(index=3, records=[b"ab", memoryview(b"cde")])
    assert repr(data) == "PartitionProduceData(index=3, records=<5 bytes>)"


def test_structs_do_not_inherit_fields() -> None:
    """Inherited fields would come first in memory but not on the wire."""

    class Base(Struct):
        number: int = i32()

    with pytest.raises(TypeError, match="inherit"):

        class Derived(Base):
            other: int = i32()


def test_responses_share_key_and_versions_with_their_requests() -> None:
    """Request and response are encoded in the same negotiated version."""
    assert wire.FetchRequest.RESPONSE is wire.FetchResponse
    assert wire.FetchResponse.API_KEY == wire.FetchRequest.API_KEY == 1
    assert (wire.FetchResponse.MIN_VERSION, wire.FetchResponse.MAX_VERSION) == (0, 18)
    assert wire.FetchResponse.NAME == "Fetch"
    assert wire.InitProducerIdRequest.MAX_VERSION == 5
    assert wire.InitProducerIdRequest.supports(6)
    assert not wire.InitProducerIdRequest.supports(7)

"""What goes into one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokq.gateway.bruce.chunk import Chunk
from aiokq.gateway.bruce.packing import MessageSet, RequestLimits, pack
from tests.unit.gateway.bruce.messages import Messages, values

WIDE = RequestLimits(1_000_000, 1_000_000)


def turns(*partitions: int) -> Callable[[str], int | None]:
    """Return a choice that goes through the partitions, once per call."""
    left = list(partitions)
    return lambda topic: left.pop(0)


def content(sets: dict[tuple[str, int], MessageSet]) -> dict[tuple[str, int], list[bytes]]:
    return {place: values(*each.chunks) for place, each in sets.items()}


def test_point_20_a_request_has_one_partition_per_topic_for_any_partition_messages() -> None:
    """All batches of a topic go there, and PartitionKey messages of that partition join them."""
    messages = Messages()
    queue = deque(
        [
            messages.chunk("t", b"a", b"b"),
            messages.chunk("u", b"c"),
            messages.chunk("t", b"k1", partition=4),
            messages.chunk("t", b"k2", partition=3),
            messages.chunk("t", b"d"),
        ]
    )

    sets = pack(queue, turns(3, 5), WIDE)

    assert content(sets) == {
        ("t", 3): [b"a", b"b", b"k2", b"d"],
        ("u", 5): [b"c"],
        ("t", 4): [b"k1"],
    }
    assert not queue
    assert len(sets["t", 3]) == 4


def test_point_25_the_limit_of_data_divides_batches_between_requests() -> None:
    """A request ends with the last message that fits; the rest of the batch is in the next."""
    messages = Messages()
    queue = deque(
        [messages.chunk("t", *(b"%d" % n * 10 for n in range(5))), messages.chunk("u", b"z")]
    )
    limits = RequestLimits(25, 1_000_000)

    assert content(pack(queue, turns(1), limits)) == {("t", 1): [b"0" * 10, b"1" * 10]}
    assert content(pack(queue, turns(2), limits)) == {("t", 2): [b"2" * 10, b"3" * 10]}
    assert content(pack(queue, turns(1, 0), limits)) == {("t", 1): [b"4" * 10], ("u", 0): [b"z"]}


def test_point_25_a_single_larger_message_is_sent_alone() -> None:
    """Larger than the request's data, or than a message set."""
    messages = Messages()
    for limits in (RequestLimits(50, 1_000_000), RequestLimits(1_000_000, 150)):
        queue = deque([messages.chunk("t", b"a", b"L" * 500, b"b"), messages.chunk("t", b"c")])
        requests = []
        while queue:
            requests.append(content(pack(queue, turns(0), limits))["t", 0])
        assert requests == [[b"a"], [b"L" * 500], [b"b", b"c"]] or limits.set_bytes == 150
        assert [value for request in requests for value in request] == [
            b"a", b"L" * 500, b"b", b"c"
        ]  # fmt: skip
        assert all(len(request) == 1 for request in requests if b"L" * 500 in request)


def test_point_25_a_limit_of_0_sends_one_message_per_request() -> None:
    """produceRequestDataLimit 0."""
    messages = Messages()
    queue = deque([messages.chunk("t", b"a", b"", b"b"), messages.chunk("u", b"c")])
    requests = []
    while queue:
        requests.append(content(pack(queue, turns(0), RequestLimits(0, 1_000_000))))

    assert requests == [
        {("t", 0): [b"a"]},
        {("t", 0): [b""]},
        {("t", 0): [b"b"]},
        {("u", 0): [b"c"]},
    ]


def test_a_message_set_is_never_larger_than_the_largest_message() -> None:
    """Before compression; the later messages of the partition wait, so that order is kept."""
    messages = Messages()
    queue = deque([messages.chunk("t", *(b"%02d" % n * 50 for n in range(30)))])
    sizes = []
    found = []
    while queue:
        (messages_set,) = pack(queue, turns(0), RequestLimits(1_000_000, 1000)).values()
        assert messages_set.raw_bytes <= 1000
        sizes.append(len(messages_set))
        found += values(*messages_set.chunks)

    assert found == [b"%02d" % n * 50 for n in range(30)]
    assert sizes == [6] * 5


def test_groups_are_sent_in_requests_of_their_own() -> None:
    """The halves of a set that was too large."""
    messages = Messages()
    queue: deque[Chunk] = deque(messages.chunk("t", b"%d" % n, partition=0) for n in range(4))
    queue[0].group, queue[1].group = object(), object()

    requests = []
    while queue:
        requests.append(content(pack(queue, turns(), WIDE))["t", 0])
    assert requests == [[b"0"], [b"1"], [b"2", b"3"]]


def test_messages_that_the_broker_cannot_take_end_the_request() -> None:
    """The metadata has changed: the engine routes them again."""
    messages = Messages()
    queue = deque([messages.chunk("u", b"a", partition=1), messages.chunk("t", b"b")])

    assert content(pack(queue, lambda topic: None, WIDE)) == {("u", 1): [b"a"]}
    assert pack(queue, lambda topic: None, WIDE) == {}
    assert values(*queue) == [b"b"]

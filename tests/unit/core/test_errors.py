"""The error classes: one per Kafka error code, context in the message, independent copies."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiokq.core import errors
from aiokq.core.codes import ERROR_CODES
from aiokq.core.types import TopicPartition

ORDERS = TopicPartition("orders", 3)

EXAMPLES = [
    errors.error_for(3, topic_partition=ORDERS, node=1, api="Metadata", attempt=2),
    errors.error_for(7, "from the wire"),
    errors.error_for(9999, "new"),
    errors.RequestTimeout("no answer in 30 s", node=4),
    errors.ConnectionLost("reset by peer", may_have_been_written=False),
    errors.ProtocolError("length below zero", api="Fetch", version=12, offset=41),
    errors.ConfigError("linger_ms: too large"),
    errors.BufferFull(),
    errors.DeliveryFailed(2, [errors.error_for(10), None], [ORDERS]),
    errors.BootstrapFailed([("a:9092", "refused"), ("b:9092", "timed out")]),
    errors.Closed("closed"),
    errors.WrongLoop("two loops"),
    errors.NoOffsetForPartition(topic_partition=ORDERS),
    errors.LogTruncated(100, 80, topic_partition=ORDERS),
]


def test_every_error_code_has_a_class_with_the_attributes_of_its_row():
    """A code without a class would be raised as an unknown error."""
    assert len({row.code for row in ERROR_CODES}) == len(ERROR_CODES)
    assert [row.code for row in ERROR_CODES] == [-1, *range(1, 134)]
    for row in ERROR_CODES:
        cls = getattr(errors, row.class_name)
        error = errors.error_for(row.code)
        assert type(error) is cls
        assert (error.code, error.name) == (row.code, row.name)
        assert error.retriable is row.retriable
        assert error.refresh_metadata is row.refresh_metadata
        assert error.fatal is row.fatal
        assert error.may_have_been_written is row.may_have_been_written
        assert row.class_name in errors.__all__


@pytest.mark.parametrize(
    ("cls", "code"),
    [
        (errors.UnknownServer, -1),
        (errors.OffsetOutOfRange, 1),
        (errors.CorruptRecord, 2),
        (errors.UnknownTopicOrPartition, 3),
        (errors.NotLeaderOrFollower, 6),
        (errors.RequestTimeout, 7),
        (errors.RecordTooLarge, 10),
        (errors.UnsupportedVersion, 35),
        (errors.OutOfOrderSequence, 45),
        (errors.DuplicateSequence, 46),
        (errors.InvalidProducerEpoch, 47),
        (errors.AuthenticationFailed, 58),
    ],
)
def test_the_names_of_common_errors_are_stable(cls: type[errors.BrokerError], code: int):
    """A regenerated table must not rename classes that users catch."""
    assert cls.code == code
    assert errors.ERROR_CLASSES[code] is cls


def test_the_flags_follow_kafkas_exception_classes():
    """With a wrong flag an error is retried for ever, or not retried although that would help."""
    assert errors.NotLeaderOrFollower.retriable
    assert errors.NotLeaderOrFollower.refresh_metadata
    assert errors.NotCoordinator.retriable
    assert not errors.NotCoordinator.refresh_metadata
    assert not errors.RecordTooLarge.retriable
    for cls in (
        errors.TopicAuthorization,
        errors.ClusterAuthorization,
        errors.AuthenticationFailed,
        errors.ProducerFenced,
        errors.FencedInstanceId,
        errors.UnsupportedVersion,
    ):
        assert cls.fatal
        assert not cls.retriable
    assert not errors.InvalidProducerEpoch.fatal  # an epoch bump recovers from it (KIP-360)
    assert errors.NotEnoughReplicasAfterAppend.may_have_been_written


def test_no_error_is_both_retriable_and_fatal():
    """A caller would not know which flag to follow."""
    for cls in errors.ERROR_CLASSES.values():
        assert not (cls.retriable and cls.fatal)


def test_an_unknown_code_keeps_its_number_and_behaves_like_an_unknown_server_error():
    """Newer Kafka versions may send codes that this table does not have."""
    error = errors.error_for(4242, api="Produce")
    assert isinstance(error, errors.UnknownBrokerError)
    assert error.code == 4242
    assert "4242" in str(error)
    for flag in ("retriable", "refresh_metadata", "fatal", "may_have_been_written"):
        assert getattr(error, flag) is getattr(errors.UnknownServer, flag), flag


def test_the_text_of_a_broker_is_shown_on_one_line_and_shortened():
    """A line break could forge a line of the log, an escape sequence could deceive a terminal."""
    error = errors.error_for(58, "no\nCRITICAL root: forged \x1b[31mline \u202e\u00fc")
    assert error.message == "no CRITICAL root: forged  [31mline  \u00fc"
    assert errors.error_for(7, "a\r\nb").message == "a  b"
    assert errors.error_for(4242, "x" * 5000).message == "x" * 1000 + "..."
    assert errors.error_for(58, "").message == errors.AuthenticationFailed.default_message


def test_code_zero_raises_nothing_and_has_no_error():
    """Zero (NONE) is the most frequent code in responses."""
    errors.raise_for(0)
    with pytest.raises(ValueError, match="code 0"):
        errors.error_for(0)
    with pytest.raises(errors.NotController):
        errors.raise_for(41)


def test_request_timed_out_and_the_clients_timeout_are_one_class_with_an_origin():
    """`except TimeoutError` catches both; `origin` tells whether a broker sent the error."""
    remote, local = errors.error_for(7), errors.RequestTimeout("no answer in 5 s")
    for error in (remote, local):
        assert isinstance(error, TimeoutError)
        assert error.code == 7
        assert error.retriable
    assert (remote.origin, local.origin) == ("broker", "client")


def test_errors_derive_from_the_matching_builtin_exceptions():
    """Code independent of Kafka catches ValueError and RuntimeError."""
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.WrongLoop, RuntimeError)
    assert issubclass(errors.ConfigWarning, UserWarning)


def test_the_text_names_code_and_context():
    """A log line must say what failed and where."""
    error = errors.error_for(3, topic_partition=ORDERS, node=1, api="Produce", attempt=2)
    assert str(error) == (
        "UNKNOWN_TOPIC_OR_PARTITION (3): This server does not host this topic-partition. "
        "(api=Produce, node=1, topic_partition=orders-3, attempt=2)"
    )
    assert error.message == "This server does not host this topic-partition."
    error.add_context(attempt=3, node=None)
    assert (error.attempt, error.node) == (3, 1)


def test_a_misspelt_context_is_refused():
    """An unknown attribute would be ignored silently."""
    with pytest.raises(TypeError, match="broker"):
        errors.KafkaError("x", broker=1)  # type: ignore[call-arg]


def test_protocol_error_says_where_in_the_frame():
    """With a packet capture, the user can look at that byte."""
    error = errors.ProtocolError("length below zero", api="Fetch", version=12, offset=41)
    assert str(error) == "length below zero (at version 12, byte 41) (api=Fetch)"


def test_a_lost_connection_may_have_been_written_by_default():
    """This default is safe: with the other one a producer would write records twice."""
    assert errors.ConnectionLost("x").may_have_been_written
    assert not errors.ConnectionLost("x", may_have_been_written=False).may_have_been_written


def test_delivery_failed_combines_the_errors_of_its_records():
    """It is retriable only if all of its errors are."""
    both = errors.DeliveryFailed(2, [errors.error_for(6), errors.error_for(10)], [ORDERS])
    assert not both.retriable
    assert "2 records not delivered to orders-3" in str(both)
    assert errors.DeliveryFailed(1, [errors.error_for(6)], [ORDERS]).retriable
    assert errors.DeliveryFailed(1, [errors.ConnectionLost("x")], [ORDERS]).may_have_been_written


def test_bootstrap_failed_names_each_address_and_why():
    """It is the first error users see after a wrong setting."""
    error = errors.BootstrapFailed([("a:9092", "refused"), ("b:9092", "timed out")])
    assert "a:9092: refused; b:9092: timed out" in str(error)
    assert error.attempts == [("a:9092", "refused"), ("b:9092", "timed out")]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, errors.copy_error, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_every_error_survives_copies_and_pickling(error: errors.KafkaError, duplicate):
    """multiprocessing pickles errors, and each waiter of a batch gets a copy."""
    twin = duplicate(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert repr(twin) == repr(error)
    assert twin.args == error.args
    assert {k: repr(v) for k, v in vars(twin).items()} == {
        k: repr(v) for k, v in vars(error).items()
    }


def test_a_pickled_error_keeps_what_it_takes_from_its_cause():
    error = errors.TransactionAborted("denied")
    error.__cause__ = errors.TopicAuthorization(api="Produce", topic_partition="orders")
    assert (error.operation, error.resource) == ("WRITE", "TOPIC:orders")
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.operation, twin.resource) == ("WRITE", "TOPIC:orders")
    assert pickle.loads(pickle.dumps(twin)).resource == "TOPIC:orders"
    assert copy.copy(error).resource == "TOPIC:orders"


def test_a_cause_that_pickle_refuses_does_not_matter():
    """Errors come back from the processes of a pool."""
    error = errors.TransactionAborted("lost")
    error.__cause__ = errors.KafkaError("socket")
    error.__cause__.__dict__["socket"] = lambda: None
    error.__cause__.__cause__ = error
    assert pickle.loads(pickle.dumps(error)).args == ("lost",)


def test_a_copy_has_its_own_traceback_and_notes_and_the_same_cause():
    """If one stored error were raised in a thousand tasks, its traceback would grow each time."""
    cause = OSError("disk full")
    original = errors.ConnectionLost("gone")
    original.add_note("while draining")
    try:
        raise original from cause
    except errors.ConnectionLost:
        pass
    twin = errors.copy_error(original)
    assert twin.__traceback__ is None
    assert twin.__cause__ is cause
    assert twin.__suppress_context__
    twin.add_note("for one waiter")
    assert original.__notes__ == ["while draining"]


def test_foreign_errors_are_copied_where_they_can_be():
    """Errors raised by user code, such as serializers, may have any class."""

    class Stubborn(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__("one argument only")

    stubborn = Stubborn(1, 2)
    assert errors.copy_error(stubborn) is stubborn

    class Frozen(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    frozen = Frozen("no good")
    BaseException.__setattr__(frozen, "__notes__", ["of record 7"])
    assert errors.copy_error(frozen).__notes__ == ["of record 7"]
    full = OSError(28, "No space left on device", "/data")
    twin = errors.copy_error(full)
    assert twin is not full
    assert (twin.errno, twin.filename) == (28, "/data")

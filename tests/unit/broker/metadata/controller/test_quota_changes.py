"""AlterClientQuotas: which changes are refused, and which records the others write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiokq.broker.metadata.controller.quota_changes import QuotaChange, alter_client_quotas
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.connection.turn import at_once
from aiokq.wire.principal_records import ClientQuotaEntityData, ClientQuotaRecord
from tests.unit.broker.metadata.kafka_decisions import image_of

USER = [("user", "alice")]
BOTH = [("client-id", "app"), ("user", "alice")]


def alter(
    image: MetadataImage, *changes: QuotaChange, unknown: Sequence[str] = (), check: bool = False
) -> tuple[list[str | None], list[ClientQuotaRecord]]:
    """Return the messages of the errors, and the records."""
    decision = at_once(
        alter_client_quotas(image, changes, unknown_hosts=unknown, validate_only=check)
    )
    records = [record for record in decision.records if isinstance(record, ClientQuotaRecord)]
    assert len(records) == len(decision.records)
    assert all(error is None or error.code == 42 for error in decision.answer)
    return [None if error is None else error.message for error in decision.answer], records


def replayed(*changes: QuotaChange) -> MetadataImage:
    image = image_of()
    for record in alter(image, *changes)[1]:
        image.replay(record)
    return image


def test_a_change_writes_a_record_for_each_value_that_differs() -> None:
    """An unchanged value and the removal of an absent one write nothing, and succeed."""
    image = replayed(
        QuotaChange(BOTH, [("producer_byte_rate", 10.0), ("request_percentage", 12.5)])
    )
    entity = (("client-id", "app"), ("user", "alice"))
    values = {"producer_byte_rate": 10.0, "request_percentage": 12.5}
    assert image.principals.quotas == {entity: values}
    errors, records = alter(
        image,
        QuotaChange(
            list(reversed(BOTH)),
            [
                ("producer_byte_rate", 10.0),
                ("request_percentage", None),
                ("consumer_byte_rate", None),
                ("controller_mutation_rate", 0.5),
            ],
        ),
    )
    assert errors == [None]
    assert [(one.key, one.value, one.remove) for one in records] == [
        ("request_percentage", 0.0, True),
        ("controller_mutation_rate", 0.5, False),
    ]
    for record in records:
        image.replay(record)
    values = {"producer_byte_rate": 10.0, "controller_mutation_rate": 0.5}
    assert image.principals.quotas == {entity: values}


def test_defaults_are_entities_without_a_name() -> None:
    """The record has a null name, as Kafka's."""
    _, [record] = alter(image_of(), QuotaChange([("ip", None)], [("connection_creation_rate", 5)]))
    assert record.entity == [ClientQuotaEntityData(entity_type="ip", entity_name=None)]


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ([], [], "Invalid empty client quota entity"),
        ([("group", "g")], [], "Unhandled client quota entity type: group"),
        ([("user", "")], [], "Empty user not supported"),
        ([("user", "a"), ("user", "b")], [], "duplicate entity entry user"),
        ([("ip", "10.0.0.1"), ("user", "a")], [], "IP entity should not be combined"),
        ([("ip", "no.such.host")], [], "no.such.host is not a valid IP or resolvable host."),
        (USER, [("retention.ms", 1.0)], "Invalid configuration key retention.ms"),
        (USER, [("connection_creation_rate", 1.0)], "Invalid configuration key"),
        ([("ip", None)], [("producer_byte_rate", 1.0)], "Invalid configuration key"),
        (USER, [("producer_byte_rate", 0.0)], "producer_byte_rate must be greater than 0"),
        (USER, [("request_percentage", -1.0)], "must be greater than 0"),
        (USER, [("producer_byte_rate", 1.5)], "cannot be a fractional value"),
        (USER, [("producer_byte_rate", 2.0**64)], "is too large for a LONG"),
        ([("ip", None)], [("connection_creation_rate", 2.0**31)], "is too large for an INT"),
        (USER, [("request_percentage", float("nan"))], "must be a finite number"),
        (USER, [("controller_mutation_rate", float("inf"))], "must be a finite number"),
        (
            USER,
            [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)],
            "Duplicate quota key producer_byte_rate",
        ),
    ],
)
def test_what_is_no_quota_is_refused(
    entity: list[tuple[str, str | None]], values: list[tuple[str, float | None]], message: str
) -> None:
    """The entity keeps all of its quotas, and the other entities of the request are changed."""
    good = QuotaChange([("user", "bob")], [("producer_byte_rate", 1.0)])
    if entity == USER:
        values = [("consumer_byte_rate", None), *values]
    errors, records = alter(image_of(), QuotaChange(entity, values), good, unknown=["no.such.host"])
    assert errors[0] is not None
    assert message in errors[0]
    assert errors[1] is None
    assert [(one.entity[0].entity_name, one.key) for one in records] == [
        ("bob", "producer_byte_rate")
    ]


def test_an_entity_that_is_named_twice_keeps_its_quotas() -> None:
    """Kafka answers with an error, too, but has then applied the first of the changes."""
    changes = [QuotaChange(USER, [("producer_byte_rate", value)]) for value in (1.0, 2.0)]
    errors, records = alter(image_of(), *changes)
    assert errors == ["Ignoring duplicate entity user=alice"] * 2
    assert records == []


def test_a_check_writes_nothing() -> None:
    """With `validate_only`, errors are told and nothing changes."""
    good = QuotaChange(USER, [("producer_byte_rate", 1.0)])
    bad = QuotaChange(BOTH, [("producer_byte_rate", 0.0)])
    errors, records = alter(image_of(), good, bad, check=True)
    assert [error is None for error in errors] == [True, False]
    assert records == []

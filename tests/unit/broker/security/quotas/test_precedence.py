"""QuotaTable: Kafka's eight levels, and who shares a budget at each of them."""

from __future__ import annotations

import pytest

from aiokq.broker.security.quotas.precedence import Applied, quota_tables

KEY = "producer_byte_rate"

LEVELS = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
]
"""The levels from the first to the last, with the budget that each has."""


@pytest.mark.parametrize("first", range(8))
def test_the_first_level_that_exists_applies(first: int) -> None:
    """All later levels exist, too."""
    quotas = {entity: {KEY: float(n)} for n, (entity, _) in enumerate(LEVELS) if n >= first}
    assert quota_tables(quotas)[KEY].find("u", "c") == Applied(first, LEVELS[first][1])


def test_quotas_of_other_clients_and_keys_and_addresses_do_not_apply() -> None:
    """An address is no client, and each key has its own precedence."""
    quotas = {
        (("user", "other"),): {KEY: 1.0},
        (("client-id", "other"), ("user", "u")): {KEY: 2.0},
        (("client-id", "other"),): {KEY: 3.0},
        (("user", "u"),): {"consumer_byte_rate": 4.0},
        (("ip", "u"),): {KEY: 5.0},
    }
    table = quota_tables(quotas)[KEY]
    assert table
    assert table.find("u", "c") is None
    assert table.find("u", "other") == Applied(2.0, ("u", "other"))
    assert quota_tables(quotas)["consumer_byte_rate"].find("u", "c") == Applied(4.0, ("u", None))


def test_a_client_without_a_client_id_has_the_default() -> None:
    """Otherwise a client would escape the default by not naming itself."""
    table = quota_tables({(("client-id", None),): {KEY: 1.0}})[KEY]
    assert table.find("u", "") == Applied(1.0, (None, ""))


def test_no_quotas_are_no_table() -> None:
    """Requests of a broker without quotas must not look anything up."""
    assert not quota_tables({})[KEY]
    assert not any(quota_tables({(("ip", None),): {"connection_creation_rate": 1.0}}).values())

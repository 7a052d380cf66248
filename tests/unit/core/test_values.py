"""Internal values of settings; tests/property/core compares them with the models."""

from __future__ import annotations

import pytest

from aiokq.cluster.settings import ClusterSettings
from aiokq.cluster.values import ClusterValues
from aiokq.core.errors import ConfigError

SASL = {"security_protocol": "SASL_SSL", "sasl_plain_username": "me"}


def test_values_are_frozen():
    """A producer's configuration must not change while it runs."""
    values = ClusterValues.given({"client_id": "me"})
    with pytest.raises(AttributeError, match="frozen"):
        values.client_id = "you"
    with pytest.raises(AttributeError, match="frozen"):
        del values.client_id
    assert values.client_id == "me"


def test_a_secret_is_in_no_representation():
    """Settings appear in logs and tracebacks."""
    values = ClusterValues.given(SASL | {"sasl_plain_password": "s3cret"})
    assert values.sasl_plain_password == "s3cret"
    assert "s3cret" not in repr(values) + repr(values.settings) + str(values.settings.model_dump())
    model = ClusterSettings(**SASL, sasl_plain_password="s3cret")
    assert ClusterValues.of(model).sasl_plain_password == "s3cret"
    assert "client_id='me'" in repr(ClusterValues.given({"client_id": "me"}))


def test_a_config_error_does_not_show_internal_causes():
    """The cause is an error of an internal table."""
    with pytest.raises(ConfigError) as caught:
        ClusterValues.given({"request_timeout_ms": 0})
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert "request_timeout_ms: Input should be" in str(caught.value)


def test_the_owner_of_a_setting_is_named_whatever_is_imported():
    """The owner was named only if that client's settings were already imported."""
    with pytest.raises(ConfigError, match="'linger_ms' is a setting of ProducerSettings, not of"):
        ClusterValues.given({"linger_ms": 5})

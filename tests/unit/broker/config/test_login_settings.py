"""aiokq.broker.config.login_settings: listeners and mechanisms for given users."""

from __future__ import annotations

import pytest

from aiokq.broker.config.listeners import configured_listeners
from aiokq.broker.config.login_settings import with_logins
from aiokq.broker.config.settings import broker_settings
from aiokq.core.errors import ConfigError

USERS = {"alice": 'p"\\a; user_eve=x', "a b": "1"}


def listeners(settings, users=USERS, *, own_check=False):
    checked = broker_settings(with_logins(settings, users, own_check=own_check))
    return configured_listeners(checked, own_check=own_check)


def test_users_make_the_only_listener_one_with_sasl_on_loopback() -> None:
    """Whatever a password contains, it is the password of its user only."""
    found = listeners(None)
    [endpoint] = found.opened
    assert str(endpoint) == "SASL_PLAINTEXT://127.0.0.1:0"
    security = found.security["SASL_PLAINTEXT"]
    assert security.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
    assert security.modules["PLAIN"].options == {
        f"user_{name}": password for name, password in USERS.items()
    }


@pytest.mark.parametrize(
    ("users", "mechanisms"),
    [
        (None, ("PLAIN", "OAUTHBEARER")),
        ({}, ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")),
    ],
)
def test_an_own_check_has_the_mechanisms_whose_secrets_it_gets(users, mechanisms) -> None:
    """SCRAM does not show a password."""
    found = listeners(None, users, own_check=True)
    assert found.security["SASL_PLAINTEXT"].mechanisms == mechanisms


def test_settings_come_before_the_defaults() -> None:
    """Listeners and mechanisms of the caller stay."""
    found = listeners(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        }
    )
    assert found.security["CLIENTS"].mechanisms == ("SCRAM-SHA-512",)
    assert "PLAINTEXT" not in found.security


@pytest.mark.parametrize(
    "settings", [{"listeners": "PLAINTEXT://127.0.0.1:0"}, {"listener": "x"}, [("a", "b")]]
)
def test_without_a_listener_for_them_users_are_refused(settings) -> None:
    """Nobody could log in."""
    with pytest.raises(ConfigError) as refused:
        listeners(settings)
    assert "user_" not in str(refused.value)

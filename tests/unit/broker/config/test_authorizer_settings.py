"""The settings of access control."""

from __future__ import annotations

import pytest

from aiokq.broker.config.authorizer_settings import STANDARD_AUTHORIZER, super_users
from aiokq.broker.config.settings import broker_settings
from aiokq.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", ()),
        (" ; ", ()),
        ("User:a", ("User:a",)),
        ("User:a; User:CN=b,O=c ;Group:d", ("User:a", "User:CN=b,O=c", "Group:d")),
    ],
)
def test_super_users_are_separated_by_semicolons(text, users):
    assert super_users(text) == users


@pytest.mark.parametrize("text", ["root", "User:", ":a", "User:a;b"])
def test_a_super_user_has_a_type(text):
    with pytest.raises(ConfigError, match=r"super\.users"):
        broker_settings({"super.users": text})


@pytest.mark.parametrize("name", ["kafka.security.authorizer.AclAuthorizer", "x"])
def test_only_the_standard_authorizer_is_known(name):
    with pytest.raises(ConfigError, match=r"has only org\.apache\.kafka\.metadata"):
        broker_settings({"authorizer.class.name": name})


def test_settings_without_an_authorizer_have_no_effect():
    given = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}
    assert set(broker_settings(given).without_effect) == set(given)
    given["authorizer.class.name"] = STANDARD_AUTHORIZER
    assert broker_settings(given).without_effect == ()

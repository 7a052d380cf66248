"""`listener_logins`: makes the SASL mechanisms of listeners from their settings.

A broker imports this module only if a listener has SASL.

Tests: ``tests/unit/broker/security/authentication/test_listener_logins.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from aiokq.broker.security.authentication.own_check import OwnCheck
from aiokq.broker.security.authentication.plain import Passwords, PlainExchange
from aiokq.broker.security.authentication.sasl_login import ListenerLogin
from aiokq.connection.sasl.scram_formulas import SCRAM_MECHANISMS
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.config.listener_security import ListenerSettings
    from aiokq.broker.metadata.image.scram_shapes import ScramShape
    from aiokq.broker.security.authentication.exchange import Authenticated, Mechanism
    from aiokq.broker.security.authentication.oauthbearer import TokenValidator
    from aiokq.broker.security.authentication.own_check import Authenticate
    from aiokq.broker.security.authentication.plain import PasswordCheck
    from aiokq.broker.security.authentication.scram import Credentials
    from aiokq.broker.security.authentication.token_keys import TokenKeys
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = ["ListenerLogins", "LoginResources", "listener_logins"]

_PREFIX: Final = "sasl.oauthbearer."
_JWKS: Final = f"{_PREFIX}jwks.endpoint."
_USER: Final = "user_"
"""Prefix of the options of PlainLoginModule that define users and their passwords."""


class LoginResources(NamedTuple):
    """Objects and functions that the mechanisms of a node share.

    Attributes:
        credentials: returns the SCRAM credentials of the node.
        shapes: returns the number of stored credentials by shape.
        secret: makes the salts of unknown users.
        clock: the broker's clock.
        offload: runs blocking calls in threads.
        authenticate: the caller's function that checks passwords and tokens; None if there is none.
    """

    credentials: Callable[[], Credentials]
    shapes: Callable[[], Mapping[ScramShape, int]]
    secret: bytes
    clock: Clock
    offload: Offload
    authenticate: Authenticate | None = None


class ListenerLogins(NamedTuple):
    """The logins of all listeners.

    Attributes:
        listeners: the mechanisms by the name of the listener.
        keys: the sources of keys of tokens. The caller has to start them.
    """

    listeners: Mapping[str, ListenerLogin]
    keys: tuple[TokenKeys, ...]


def listener_logins(
    listeners: Mapping[str, ListenerSettings], resources: LoginResources
) -> ListenerLogins:
    """Return the mechanisms of all listeners with SASL.

    Raises:
        ConfigError: the URL of the keys of tokens is wrong, PyJWT is missing, or the clock skew of
            unsecured tokens is not a number.
    """
    keys: list[TokenKeys] = []
    own = None
    if resources.authenticate is not None:
        own = OwnCheck(resources.authenticate, resources.clock)
    found = {
        name: ListenerLogin(
            {one: _mechanism(one, settings, resources, own, keys) for one in settings.mechanisms},
            {one: settings.max_reauth_ms(one) for one in settings.mechanisms},
        )
        for name, settings in listeners.items()
        if settings.uses_sasl
    }
    return ListenerLogins(found, tuple(keys))


def _mechanism(
    name: str,
    settings: ListenerSettings,
    resources: LoginResources,
    own: OwnCheck | None,
    keys: list[TokenKeys],
) -> Mechanism:
    if name in SCRAM_MECHANISMS:
        from aiokq.broker.security.authentication.scram import ScramCredentials, ScramExchange

        credentials = ScramCredentials(
            name, resources.credentials, resources.shapes, resources.secret
        )
        return lambda connection: ScramExchange(credentials)
    if name == "PLAIN":
        return functools.partial(_plain, _passwords(settings, own))
    from aiokq.broker.security.authentication.oauthbearer import OAuthExchange

    validate = _validator(settings, resources, own, keys)
    return lambda connection: OAuthExchange(connection, validate)


def _plain(check: PasswordCheck, connection: RequestContext) -> PlainExchange:
    return PlainExchange(connection, check)


def _passwords(settings: ListenerSettings, own: OwnCheck | None) -> PasswordCheck:
    """Return a function that checks passwords with the settings or with the caller's function.

    The caller's function checks only users that the settings do not name. The settings name users
    by the login module's options `user_NAME` that have a password; other options are for clients.
    """
    options = settings.modules["PLAIN"].options
    users = {
        option.removeprefix(_USER): password
        for option, password in options.items()
        if option.startswith(_USER) and password
    }
    check = Passwords(users)
    if own is None:
        return check

    async def check_both(
        connection: RequestContext, name: str, password: str
    ) -> Authenticated | None:
        return await (check if name in users else own.password)(connection, name, password)

    return check_both


def _validator(
    settings: ListenerSettings,
    resources: LoginResources,
    own: OwnCheck | None,
    keys: list[TokenKeys],
) -> TokenValidator:
    mechanism = "OAUTHBEARER"
    if own is not None:
        return own.token
    if settings.accepts_unsecured_tokens:
        from aiokq.broker.security.authentication.unsecured_tokens import UnsecuredTokens

        module = settings.modules.get(mechanism)
        return UnsecuredTokens({} if module is None else module.options, resources.clock)
    from aiokq.broker.security.authentication.claims import ClaimRules
    from aiokq.broker.security.authentication.key_source import KeySource

    try:
        from aiokq.broker.security.authentication.signed_tokens import SignedTokens
        from aiokq.broker.security.authentication.token_keys import TokenKeys
    except ImportError as error:
        raise ConfigError(
            f"OAUTHBEARER of listener {settings.name} needs PyJWT: pip install "
            f"'aiokq[oauthbearer]' ({error})"
        ) from error

    def text(name: str) -> str:
        value = settings.value(_PREFIX + name, mechanism)
        return "" if value is None else str(value)

    def number(name: str) -> int:
        return int(text(name))

    url = f"{_JWKS}url"
    source = KeySource(
        settings.spelled(url, mechanism), text("jwks.endpoint.url"), _items(text("allowed.urls"))
    )
    found = TokenKeys(
        source,
        refresh=number("jwks.endpoint.refresh.ms") / 1000,
        backoff=number("jwks.endpoint.retry.backoff.ms") / 1000,
        longest_backoff=number("jwks.endpoint.retry.backoff.max.ms") / 1000,
        clock=resources.clock,
        offload=resources.offload,
    )
    keys.append(found)
    rules = ClaimRules(
        audiences=_items(text("expected.audience")),
        issuer=text("expected.issuer") or None,
        skew=number("clock.skew.seconds"),
        scope_claim=text("scope.claim.name"),
        name_claim=text("sub.claim.name"),
    )
    return SignedTokens(found, rules, resources.clock)


def _items(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())

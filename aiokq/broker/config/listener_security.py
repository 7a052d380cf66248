"""`ListenerSettings`: the TLS and SASL settings in effect on a listener.

A broker imports this module only if a listener uses TLS or SASL.

Source: Kafka ``AbstractConfig.valuesWithPrefixOverride``, ``ChannelBuilders``,
``JaasContext.loadServerContext``, ``ConfigurationUtils`` (OAUTHBEARER). Differences from Kafka:
SCRAM and OAUTHBEARER need no login module, because these modules have no options that this broker
needs; OAUTHBEARER without keys is refused, whereas Kafka accepts every token then; PLAIN and
OAUTHBEARER without TLS are refused on listeners that other machines can reach.
Tests: ``tests/unit/broker/config/test_listener_security.py``.
"""

from __future__ import annotations

import copy
import ssl
from collections.abc import Iterator, Mapping
from typing import Final

from aiokq.broker.config.security_settings import MECHANISMS, OAUTHBEARER, PLAIN, SecuritySettings
from aiokq.broker.config.setting import SettingValue, shortened
from aiokq.broker.config.settings import SETTINGS, BrokerSettings
from aiokq.core import jaas
from aiokq.core.errors import ConfigError
from aiokq.core.jaas import LoginModule

__all__ = ["ListenerSettings"]

_JAAS: Final = "sasl.jaas.config"
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_CALLBACKS: Final = "sasl.server.callback.handler.class"
_UNSECURED: Final = "allow.unsecured.tokens"
_WITHOUT_TLS: Final = "allow.credentials.without.tls"

_MODULES: Final[Mapping[str, tuple[str, str]]] = {
    PLAIN: (jaas.PLAIN, "org.apache.kafka.common.security.plain.PlainLoginModule"),
    "SCRAM-SHA-256": (jaas.SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "SCRAM-SHA-512": (jaas.SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: (
        jaas.OAUTHBEARER,
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    ),
}
"""The login module of each mechanism, and its class."""

_CLIENT_AUTH: Final = {
    ssl.CERT_NONE: "none",
    ssl.CERT_OPTIONAL: "requested",
    ssl.CERT_REQUIRED: "required",
}

_SECURITY: Final = "org.apache.kafka.common.security"
_CALLBACK_CLASSES: Final[Mapping[str, str]] = {
    f"{_SECURITY}.plain.internals.PlainServerCallbackHandler": PLAIN,
    f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler": OAUTHBEARER,
    f"{_SECURITY}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler": OAUTHBEARER,
    f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler": (
        OAUTHBEARER
    ),
}
"""The mechanism of each class of Kafka that checks credentials as this broker does.

The last class accepts tokens that are not signed. This broker accepts such tokens only if
`allow.unsecured.tokens` is also set.
"""


class ListenerSettings:
    """The settings of one listener. Immutable by convention.

    Args:
        name: the name of the listener, in capitals.
        protocol: the security protocol of the listener.
        settings: the settings of the broker.
        own_check: whether the program that runs the broker checks passwords and tokens itself.
            PLAIN then needs no users, and OAUTHBEARER no keys in the settings.
        ssl_context: replaces the key store and all other settings of TLS but the principal mapping
            rules; None to use the settings.

    Attributes:
        name: the name of the listener, in capitals.
        protocol: the security protocol, such as `SASL_SSL`.
        uses_tls: whether the protocol is SSL or SASL_SSL.
        uses_sasl: whether the protocol is SASL_PLAINTEXT or SASL_SSL.
        mechanisms: the enabled SASL mechanisms; empty without SASL.
        modules: login modules by mechanism. PLAIN always has one; the other mechanisms need none.
        ssl_context: the given context if the protocol has TLS, else None.

    Raises:
        ConfigError: no mechanism is enabled, or one is not supported; a login module is missing,
            malformed or of another mechanism; OAUTHBEARER has no keys, or has keys and accepts
            unsigned tokens; or a class is not supported.
    """

    __slots__ = (
        "_of_listener",
        "_own_check",
        "_settings",
        "mechanisms",
        "modules",
        "name",
        "protocol",
        "ssl_context",
        "uses_sasl",
        "uses_tls",
    )

    def __init__(
        self,
        name: str,
        protocol: str,
        settings: BrokerSettings,
        *,
        own_check: bool = False,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.uses_tls = protocol.endswith("SSL")
        self.uses_sasl = protocol.startswith("SASL_")
        self.ssl_context = ssl_context if self.uses_tls else None
        self._settings = settings
        self._own_check = own_check
        self._of_listener = settings.listener_settings.get(name, {})
        self.mechanisms = self._enabled() if self.uses_sasl else ()
        self.modules = dict(self._login_modules(own_check))
        for mechanism in self.mechanisms:
            self._check_callbacks(mechanism)
        if OAUTHBEARER in self.mechanisms and not own_check:
            self._check_keys()

    def __repr__(self) -> str:
        return f"<ListenerSettings {self.name} {self.protocol}>"

    def with_stores(self, settings: BrokerSettings) -> ListenerSettings:
        """Return a copy that takes its key store and trust store from changed settings.

        Args:
            settings: the settings of the broker after the change.
        """
        changed = copy.copy(self)
        changed._settings = settings
        changed._of_listener = settings.listener_settings.get(self.name, {})
        return changed

    def value(self, name: str, mechanism: str = "") -> SettingValue:
        """Return the value of a setting on this listener.

        Args:
            name: the name of the setting, without a prefix.
            mechanism: the SASL mechanism; "" if the setting cannot differ between mechanisms.

        Raises:
            KeyError: there is no setting of this name.
        """
        for prefixed in _prefixed(name, mechanism):
            if prefixed in self._of_listener:
                return self._of_listener[prefixed]
        return self._settings.value_of(name)

    def spelled(self, name: str, mechanism: str = "") -> str:
        """Return the name for error messages: the name under which the setting is given.

        If the setting is not given, return the name with the longest prefix.
        """
        prefix = f"listener.name.{self.name.lower()}."
        every = _prefixed(name, mechanism)
        for prefixed in every:
            if prefixed in self._of_listener:
                return prefix + prefixed
        return name if name in self._settings.explicit else prefix + every[0]

    def is_given(self, name: str, mechanism: str = "") -> bool:
        """Return whether a setting is given for this listener, or for all listeners."""
        given = any(one in self._of_listener for one in _prefixed(name, mechanism))
        return given or name in self._settings.explicit

    def tls_values(self) -> dict[str, SettingValue]:
        """Return the values of all settings whose names begin with `ssl.`."""
        values = {name: self.value(name) for name in SETTINGS if name.startswith("ssl.")}
        values["ssl.client.auth"] = self.client_auth
        return values

    @property
    def client_auth(self) -> str:
        """Whether clients must or may have a certificate: `none`, `requested` or `required`.

        As in Kafka, the setting without a prefix has no effect on a SASL_SSL listener.
        """
        if self.ssl_context is not None:
            return _CLIENT_AUTH[self.ssl_context.verify_mode]
        if self.uses_sasl:
            return str(self._of_listener.get("ssl.client.auth", SecuritySettings.ssl_client_auth))
        return str(self.value("ssl.client.auth"))

    def max_reauth_ms(self, mechanism: str) -> int:
        """Return `connections.max.reauth.ms` of a mechanism; 0 for no limit."""
        value = self.value("connections.max.reauth.ms", mechanism)
        assert isinstance(value, int)
        return max(value, 0)

    @property
    def accepts_unsecured_tokens(self) -> bool:
        """Whether OAUTHBEARER accepts tokens that are not signed."""
        return (
            OAUTHBEARER in self.mechanisms
            and not self._own_check
            and bool(self.value(_UNSECURED, OAUTHBEARER))
        )

    def check_reachable(self) -> None:
        """Check a listener that other machines can reach.

        Raises:
            ConfigError: passwords or tokens would be sent without TLS.
        """
        readable = [name for name in self.mechanisms if name in (PLAIN, OAUTHBEARER)]
        if readable and not self.uses_tls and not self.value(_WITHOUT_TLS):
            what = "passwords" if readable[0] == PLAIN else "tokens"
            raise ConfigError(
                f"listener {self.name} has {' and '.join(readable)} without TLS and listens beyond "
                f"this machine, so {what} could be read on the network: use SASL_SSL or SCRAM, or "
                f"listen on 127.0.0.1; {self.spelled(_WITHOUT_TLS)}=true allows it"
            )

    def _enabled(self) -> tuple[str, ...]:
        setting = "sasl.enabled.mechanisms"
        text = str(self.value(setting))
        found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        spelled = self.spelled(setting)
        known = ", ".join(MECHANISMS)
        if not found:
            raise ConfigError(
                f"{spelled} is empty, so no client can log in to listener {self.name}: "
                f"set it to some of {known}"
            )
        for name in found:
            if name == "GSSAPI":
                default = "" if self.is_given(setting) else ", which is Kafka's default"
                raise ConfigError(
                    f"{spelled}=GSSAPI{default}: this broker does not support Kerberos; set "
                    f"{spelled} to some of {known}"
                )
            if name not in MECHANISMS:
                raise ConfigError(
                    f"{spelled}: {shortened(repr(name))} is not a SASL mechanism of this broker, "
                    f"which has {known}"
                )
        return found

    def _login_modules(self, own_check: bool) -> Iterator[tuple[str, LoginModule]]:
        for mechanism in self.mechanisms:
            name, class_name = _MODULES[mechanism]
            key = f"{mechanism.lower()}.{_JAAS}"
            spelled = f"listener.name.{self.name.lower()}.{key}"
            text = self._of_listener.get(key)
            if text is None:
                if mechanism == PLAIN and own_check:
                    yield mechanism, LoginModule(name, "required", {})
                elif mechanism == PLAIN:
                    unused = ""
                    if self.is_given(_JAAS):
                        unused = f"; {self.spelled(_JAAS)} has no effect, because it has no prefix"
                    raise ConfigError(
                        f"PLAIN of listener {self.name} has no users: set {spelled}={class_name} "
                        f'required user_NAME="PASSWORD";{unused}'
                    )
                continue
            module = jaas.login_module(spelled, str(text), jaas.BROKER_MODULES)
            if module.name != name:
                raise ConfigError(
                    f"{spelled}: {module.name} is not the login module of {mechanism}: use "
                    f"{class_name}"
                )
            yield mechanism, module

    def _check_callbacks(self, mechanism: str) -> None:
        # Without the prefix of a mechanism, the setting has no effect, as in Kafka.
        text = self._of_listener.get(f"{mechanism.lower()}.{_CALLBACKS}")
        if text is not None and _CALLBACK_CLASSES.get(str(text)) != mechanism:
            raise ConfigError(
                f"{self.spelled(_CALLBACKS, mechanism)}={shortened(str(text))}: this broker cannot "
                f"load Java classes; remove it for {mechanism}"
            )

    def _check_keys(self) -> None:
        url, unsecured = (self.spelled(name, OAUTHBEARER) for name in (_JWKS, _UNSECURED))
        has_url = bool(self.value(_JWKS, OAUTHBEARER))
        if has_url and self.accepts_unsecured_tokens:
            raise ConfigError(f"set only one of {url} and {unsecured}")
        if not has_url and not self.accepts_unsecured_tokens:
            raise ConfigError(
                f"OAUTHBEARER of listener {self.name} has no keys to check tokens with: set {url}; "
                f"for development, {unsecured}=true accepts tokens that are not signed, from anyone"
            )


def _prefixed(name: str, mechanism: str) -> tuple[str, ...]:
    """Return a setting's names without `listener.name.NAME.`, highest priority first."""
    return (f"{mechanism.lower()}.{name}", name) if mechanism else (name,)

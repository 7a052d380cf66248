"""`SaslLogin`: a client's credentials, from its SASL settings and JAAS text.

The module is imported only if SASL is used.

Tests: ``tests/unit/cluster/test_sasl_login.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokq.connection.sasl.oauthbearer_messages import OAuthMessageError, check_extensions
from aiokq.core.errors import ConfigError
from aiokq.core.jaas import (
    CLIENT_MODULES,
    KERBEROS,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    LoginModule,
    login_module,
)
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.cluster.rules import ClusterRules

__all__ = ["KerberosLogin", "SaslLogin", "TokenRequest", "retriever", "sasl_login"]

_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": PLAIN,
    "SCRAM-SHA-256": SCRAM,
    "SCRAM-SHA-512": SCRAM,
    "OAUTHBEARER": OAUTHBEARER,
    "GSSAPI": KERBEROS,
}

_RETRIEVERS: Final = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
    "JwtBearerJwtRetriever",
)
_KAFKAS_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."


class TokenRequest(NamedTuple):
    """A request for tokens to an authorization server.

    Attributes:
        url: the token endpoint, or a URL of a file.
        client_id: for client credentials, else None.
        client_secret: for client credentials, else None.
        scope: the requested scope; None for the server's default.
    """

    url: str
    client_id: str | None
    client_secret: str | None
    scope: str | None

    def __repr__(self) -> str:
        return f"<TokenRequest to {self.url.partition('?')[0]}>"


class KerberosLogin(NamedTuple):
    """The Kerberos settings of a client.

    Attributes:
        service: name of the service in the principals of the brokers.
        principal: the client's principal; None for the principal of the tickets or keytab.
        keytab: file with the client's keys; None for the tickets of `kinit`.
    """

    service: str
    principal: str | None
    keytab: str | None


class SaslLogin(NamedTuple):
    """The credentials of a client.

    Attributes:
        username: for PLAIN and SCRAM; empty for the other mechanisms.
        password: for PLAIN and SCRAM; empty for the other mechanisms.
        provider: the user's token provider, or the name of a cloud; None without one.
        request: the token request for OAUTHBEARER without a provider; else None.
        extensions: SASL extensions for OAUTHBEARER.
        kerberos: for GSSAPI, else None.
    """

    username: str
    password: str
    provider: Any
    request: TokenRequest | None
    extensions: Mapping[str, str]
    kerberos: KerberosLogin | None = None

    def __repr__(self) -> str:
        return "<SaslLogin>"


def sasl_login(settings: ClusterRules) -> SaslLogin:
    """Return the credentials that the settings give for their mechanism.

    Raises:
        ConfigError: a setting is missing, invalid or without effect. The message has no secret.
    """
    module = _jaas_module(settings)
    if settings.sasl_mechanism == "OAUTHBEARER":
        return _oauth_login(settings, {} if module is None else module.options)
    if settings.sasl_mechanism == "GSSAPI":
        return _kerberos_login(settings, {} if module is None else module.options)
    return _password_login(settings, module)


def _jaas_module(settings: ClusterRules) -> LoginModule | None:
    text = _text(settings.sasl_jaas_config)
    if text is None:
        return None
    module = login_module("sasl_jaas_config", text, CLIENT_MODULES)
    wanted = _MODULES.get(settings.sasl_mechanism)
    if module.name != wanted:
        fitting = [name for name, each in _MODULES.items() if each == module.name]
        raise ConfigError(
            f"sasl_jaas_config has {module.name}, which is not for "
            f"sasl_mechanism={settings.sasl_mechanism}"
            + (f": set sasl_mechanism to {' or '.join(fitting)}" if fitting else "")
        )
    return module


def _password_login(settings: ClusterRules, module: LoginModule | None) -> SaslLogin:
    username, password = settings.sasl_plain_username, _text(settings.sasl_plain_password)
    if module is not None:
        if username is not None or password is not None:
            raise ConfigError(
                "sasl_jaas_config and sasl_plain_username or sasl_plain_password exclude each "
                "other: set one of them"
            )
        if module.options.get("tokenauth", "").lower() == "true":
            raise ConfigError("sasl_jaas_config: aiokq does not support delegation tokens")
        username, password = module.options.get("username"), module.options.get("password")
        for name, value in (("username", username), ("password", password)):
            if not value:
                raise ConfigError(f"sasl_jaas_config: {module.name} has no {name}")
    if username is None or password is None:
        raise ConfigError(
            f"security_protocol={settings.security_protocol} with {settings.sasl_mechanism} needs "
            "sasl_plain_username and sasl_plain_password"
        )
    for name in ("sasl_oauth_token_provider", "sasl_oauthbearer_token_endpoint_url"):
        if getattr(settings, name) is not None:
            raise ConfigError(
                f"{name} has no effect with sasl_mechanism={settings.sasl_mechanism}: set "
                "sasl_mechanism='OAUTHBEARER'"
            )
    return SaslLogin(username, password, None, None, {})


def _kerberos_login(settings: ClusterRules, options: Mapping[str, str]) -> SaslLogin:
    service = settings.sasl_kerberos_service_name or options.get("serviceName")
    if not service:
        raise ConfigError(
            "sasl_mechanism=GSSAPI needs sasl_kerberos_service_name, which is mostly 'kafka'"
        )
    keytab = settings.sasl_kerberos_keytab
    if keytab is None and options.get("useKeyTab", "").lower() == "true":
        keytab = options.get("keyTab")
        if keytab is None:
            raise ConfigError("sasl_jaas_config: Krb5LoginModule has useKeyTab and no keyTab")
    for name in ("ticketCache", "refreshKrb5Config"):
        if name in options:
            raise ConfigError(
                f"sasl_jaas_config: {name} is not supported: set the environment variables "
                "KRB5CCNAME and KRB5_CONFIG"
            )
    principal = settings.sasl_kerberos_principal or options.get("principal")
    return SaslLogin("", "", None, None, {}, KerberosLogin(service, principal, keytab))


def _oauth_login(settings: ClusterRules, options: Mapping[str, str]) -> SaslLogin:
    for name in ("sasl_plain_username", "sasl_plain_password"):
        if getattr(settings, name) is not None:
            raise ConfigError(f"{name} has no effect with sasl_mechanism=OAUTHBEARER")
    for name in options:
        if name.startswith("unsecuredLogin"):
            raise ConfigError(
                f"sasl_jaas_config: aiokq does not make unsecured tokens ({name}): return one from "
                "sasl_oauth_token_provider"
            )
    extensions = {
        name.removeprefix("extension_"): value
        for name, value in options.items()
        if name.startswith("extension_")
    }
    extensions |= _extensions(settings.sasl_oauthbearer_extensions)
    try:
        check_extensions(extensions)
    except OAuthMessageError as error:
        raise ConfigError(str(error)) from None
    provider, url = settings.sasl_oauth_token_provider, settings.sasl_oauthbearer_token_endpoint_url
    if (provider is None) == (url is None):
        raise ConfigError(
            "sasl_mechanism=OAUTHBEARER needs sasl_oauth_token_provider or "
            "sasl_oauthbearer_token_endpoint_url"
            if url is None
            else "sasl_oauth_token_provider and sasl_oauthbearer_token_endpoint_url exclude each "
            "other: set one of them"
        )
    if isinstance(provider, str):
        from aiokq.connection.sasl.clouds import check_cloud

        check_cloud(provider)
    if url is None:
        return SaslLogin("", "", provider, None, extensions)
    return SaslLogin("", "", None, _token_request(settings, url, options), extensions)


def _token_request(settings: ClusterRules, url: str, options: Mapping[str, str]) -> TokenRequest:
    from aiokq.connection.sasl.token_endpoint import check_url

    check_url("sasl_oauthbearer_token_endpoint_url", url, settings.sasl_oauthbearer_allowed_urls)
    kind = retriever(settings)
    scope = settings.sasl_oauthbearer_scope or options.get("scope") or None
    if url.startswith("file:") != (kind == "FileJwtRetriever"):
        raise ConfigError(
            f"sasl_oauthbearer_jwt_retriever_class={kind} does not fit the URL in "
            "sasl_oauthbearer_token_endpoint_url"
        )
    if kind == "FileJwtRetriever":
        return TokenRequest(url, None, None, None)
    if kind == "JwtBearerJwtRetriever":
        if (settings.sasl_oauthbearer_assertion_file is None) == (
            settings.sasl_oauthbearer_assertion_private_key_file is None
        ):
            raise ConfigError(
                "JwtBearerJwtRetriever needs either sasl_oauthbearer_assertion_private_key_file or "
                "sasl_oauthbearer_assertion_file"
            )
        return TokenRequest(url, None, None, scope)
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    secret = _text(settings.sasl_oauthbearer_client_credentials_client_secret) or options.get(
        "clientSecret"
    )
    if not client_id or not secret:
        raise ConfigError(
            "sasl_oauthbearer_token_endpoint_url needs "
            "sasl_oauthbearer_client_credentials_client_id and "
            "sasl_oauthbearer_client_credentials_client_secret"
        )
    return TokenRequest(url, client_id.strip(), secret.strip(), scope)


def retriever(settings: ClusterRules) -> str:
    """Return the name of Kafka's retriever class, which selects the kind of token request.

    Raises:
        ConfigError: the class is not one of Kafka's.
    """
    name = settings.sasl_oauthbearer_jwt_retriever_class.removeprefix(_KAFKAS_PACKAGE)
    if name not in _RETRIEVERS:
        raise ConfigError(
            "sasl_oauthbearer_jwt_retriever_class must be one of " + ", ".join(_RETRIEVERS)
        )
    if name != "DefaultJwtRetriever":
        return name
    url = settings.sasl_oauthbearer_token_endpoint_url or ""
    return "FileJwtRetriever" if url.startswith("file:") else "ClientCredentialsJwtRetriever"


def _extensions(text: str | None) -> dict[str, str]:
    found = {}
    for pair in (text or "").split(","):
        if not pair.strip():
            continue
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("sasl_oauthbearer_extensions must be NAME=VALUE,NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _text(secret: object) -> str | None:
    """Return the text of a secret, which may be a SecretStr."""
    if secret is None or isinstance(secret, str):
        return secret
    text: str = secret.get_secret_value()  # type: ignore[attr-defined]
    return text

"""Builds the SASL mechanism, and the source of its tokens, from the settings of a cluster.

The module is imported only if SASL is used.

Tests: ``tests/unit/cluster/test_sasl_login.py``, ``tests/interop/apache/test_sasl.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from aiokq.cluster.sasl_login import SaslLogin, TokenRequest, retriever, sasl_login
from aiokq.cluster.values import ClusterValues
from aiokq.core.environment import Environment
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.connection.sasl.mechanism import MechanismFactory
    from aiokq.connection.sasl.token_cache import TokenSource
    from aiokq.connection.sasl.token_endpoint import Form
    from aiokq.core.supervisor import Supervisor

__all__ = ["sasl_mechanism"]


def sasl_mechanism(
    settings: ClusterValues, environment: Environment, supervisor: Supervisor | None
) -> tuple[MechanismFactory, Callable[[], Awaitable[object]] | None]:
    """Return the mechanism of the settings, and a function that obtains its token in advance.

    The function is None if the mechanism needs no token.

    Args:
        environment: clock, random numbers and threads.
        supervisor: refreshes tokens in tasks; None to fetch a token only when none is valid.

    Raises:
        ConfigError: a credential cannot be sent.
    """
    login = sasl_login(settings)
    if settings.sasl_mechanism == "PLAIN":
        from aiokq.connection.sasl.plain import plain

        return plain(login.username, login.password), None
    if login.kerberos is not None:
        from aiokq.connection.sasl.gssapi import KerberosTickets, gssapi

        tickets = KerberosTickets(
            login.kerberos.service,
            principal=login.kerberos.principal,
            keytab=login.kerberos.keytab,
        )
        domain_name = settings.sasl_kerberos_domain_name
        return gssapi(tickets, environment.offload, domain_name=domain_name), None
    if settings.sasl_mechanism != "OAUTHBEARER":
        from aiokq.connection.sasl.scram import scram

        offload = environment.offload
        return scram(settings.sasl_mechanism, login.username, login.password, offload), None
    from aiokq.connection.sasl.oauthbearer import oauthbearer
    from aiokq.connection.sasl.token_cache import RefreshPolicy, TokenCache

    tokens = TokenCache(
        _source(settings, login, environment),
        clock=environment.clock,
        random=environment.random,
        supervisor=supervisor,
        policy=RefreshPolicy(
            settings.sasl_login_refresh_window_factor,
            settings.sasl_login_refresh_window_jitter,
            settings.sasl_login_refresh_buffer_seconds,
            settings.sasl_login_refresh_min_period_seconds,
        ),
    )
    return oauthbearer(tokens, login.extensions), tokens.get


def _source(settings: ClusterValues, login: SaslLogin, environment: Environment) -> TokenSource:
    from aiokq.connection.sasl.token_sources import FileTokens, ProvidedTokens

    if isinstance(login.provider, str):
        from aiokq.connection.sasl.clouds import cloud_tokens

        if not settings.bootstrap_addresses:
            raise ConfigError("sasl_oauth_token_provider needs bootstrap_servers")
        return cloud_tokens(
            login.provider,
            settings.bootstrap_addresses[0].host,
            offload=environment.offload,
            clock=environment.clock,
        )
    if login.request is None:
        return ProvidedTokens(login.provider, environment.offload)
    if login.request.url.startswith("file:"):
        return FileTokens(unquote(urlsplit(login.request.url).path), environment.offload)
    from aiokq.connection.sasl.token_endpoint import EndpointTokens, HttpLimits

    default = HttpLimits()
    connect, read = settings.sasl_login_connect_timeout_ms, settings.sasl_login_read_timeout_ms
    return EndpointTokens(
        login.request.url,
        _form(settings, login.request, environment),
        offload=environment.offload,
        clock=environment.clock,
        limits=HttpLimits(
            default.connect if connect is None else connect / 1000,
            default.read if read is None else read / 1000,
            settings.sasl_login_retry_backoff_ms / 1000,
            settings.sasl_login_retry_backoff_max_ms / 1000,
        ),
        secrets=() if login.request.client_secret is None else (login.request.client_secret,),
    )


def _form(
    settings: ClusterValues, request: TokenRequest, environment: Environment
) -> Callable[[], Form]:
    from aiokq.connection.sasl.token_endpoint import bearer_form, client_credentials_form

    if retriever(settings) != "JwtBearerJwtRetriever":
        assert request.client_id is not None  # checked by `sasl_login`
        assert request.client_secret is not None
        form = client_credentials_form(
            request.client_id,
            request.client_secret,
            request.scope,
            urlencode=settings.sasl_oauthbearer_header_urlencode,
        )
        return lambda: form
    path = settings.sasl_oauthbearer_assertion_file
    if path is not None:
        from aiokq.connection.sasl.token_sources import read_secret_file

        file = path
        return lambda: bearer_form(read_secret_file(file).strip(), request.scope)
    from aiokq.connection.sasl.jwt_assertion import JwtAssertion

    key_file = settings.sasl_oauthbearer_assertion_private_key_file
    assert key_file is not None  # checked by `sasl_login`
    claims = {
        "aud": settings.sasl_oauthbearer_assertion_claim_aud,
        "iss": settings.sasl_oauthbearer_assertion_claim_iss,
        "sub": settings.sasl_oauthbearer_assertion_claim_sub,
    }
    assertion = JwtAssertion(
        algorithm=settings.sasl_oauthbearer_assertion_algorithm,
        key_file=key_file,
        passphrase=settings.sasl_oauthbearer_assertion_private_key_passphrase,
        claims={name: value for name, value in claims.items() if value is not None},
        template_file=settings.sasl_oauthbearer_assertion_template_file,
        exp_seconds=settings.sasl_oauthbearer_assertion_claim_exp_seconds,
        nbf_seconds=settings.sasl_oauthbearer_assertion_claim_nbf_seconds,
        includes_jti=settings.sasl_oauthbearer_assertion_claim_jti_include,
        clock=environment.clock,
    )
    return lambda: bearer_form(assertion.make(), request.scope)

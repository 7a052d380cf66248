"""`ssl.principal.mapping.rules`: Kafka's SslPrincipalMapperTest, and hostile input."""

from __future__ import annotations

import time

import pytest

from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.tls.principal_rules import PrincipalRules
from aiokq.core.errors import AuthenticationFailed, ConfigError
from tests.peers.pki import Pki


@pytest.mark.parametrize(
    "text",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L ,DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/U,DEFAULT",
        r"RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        r"RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
        "",
        " DEFAULT , ",
    ],
)
def test_valid_rules_are_taken(text: str) -> None:
    """Expressions contain commas and the word DEFAULT."""
    PrincipalRules(text)


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT-L",
        "RULE:",
        "RULE:abc",
        "RULE:CN=a/b",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/",
        "RULE:^CN=(.*?)$/$1/U/L",
        "RULE:^CN=(.*?)/$1/, RULE",
        "RULE:^CN=(/$1/",
        "RULE:^CN=(?!x)/$1/",  # Java takes it; RE2 has no look-ahead
        r"RULE:(.)\1/$1/",
        "RULE:a/$/",
        "RULE:a/b\\/",
    ],
)
def test_rules_that_cannot_be_used_are_refused_at_the_start(text: str) -> None:
    """Not at the first client."""
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(text)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
            "duke@sme",
        ),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,ou=sme,dc=a,dc=b",
         "DUKE@SME"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "OU=JavaSoft,CN=Duke", "duke"),
        ("RULE:^CN=(.*?),O=.*$/$1/,DEFAULT", "OU=JavaSoft", "OU=JavaSoft"),
        ("RULE:^CN=([^,]*).*$/$1@$4/", "CN=a,O=b", "a@$4"),  # no such group: the text itself
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),  # one group, and a digit
        ("RULE:^CN=(.*)$/$0/", "CN=a", "CN=a"),
        (r"RULE:^CN=(.*)$/a\/b\$1/", "CN=a", "a/b$1"),
        ("RULE:.*/[$0]/", "CN=a", "[CN=a][]"),  # Java finds the empty end, too
        (r"RULE:^CN=(.*?)\\,Inc$/$1/", r"CN=Ex\,Inc", "Ex"),
        ("RULE:^CN=(.*)$/$1/", "CN=Łukasz 🦆", "Łukasz 🦆"),
    ],
)  # fmt: skip
def test_names_are_mapped_as_by_java(rules: str, name: str, principal: str) -> None:
    """Replacements are in Java's syntax."""
    assert PrincipalRules(rules).name_of(name) == principal


def test_a_name_without_a_rule_is_refused() -> None:
    """The connection fails; it must not become the whole name or ANONYMOUS."""
    with pytest.raises(AuthenticationFailed, match="CN=b"):
        PrincipalRules("RULE:^CN=a$/a/").name_of("CN=b")
    with pytest.raises(AuthenticationFailed):
        PrincipalRules("").name_of("CN=b")


def test_an_expression_that_explodes_in_java_takes_no_time() -> None:
    """The name is the client's choice."""
    rules = PrincipalRules("RULE:^CN=(([a-z])+.)+[A-Z]([a-z])+$/$1/,DEFAULT")
    started = time.perf_counter()
    rules.name_of("CN=" + "a" * 50_000)
    assert time.perf_counter() - started < 1.0


def test_a_certificate_becomes_a_principal_and_none_anonymous() -> None:
    """`requested` lets clients without certificates in."""
    rules = PrincipalRules("RULE:^CN=(.*)$/$1/U")
    assert rules.principal_of(Pki().issue("alice").der) == Principal("User", "ALICE")
    assert rules.principal_of(None) is ANONYMOUS

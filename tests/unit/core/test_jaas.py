"""`sasl.jaas.config`: what Kafka's reader accepts, what is refused, and that no secret is shown."""

from __future__ import annotations

import pytest

from aiokq.core.errors import ConfigError
from aiokq.core.jaas import (
    BROKER_MODULES,
    CLIENT_MODULES,
    LoginModule,
    jaas_text,
    login_module,
    parse_jaas,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"

SECRET = "s3cr3t"


def only(text: str) -> LoginModule:
    return login_module("sasl.jaas.config", text, CLIENT_MODULES)


def options(text: str) -> dict[str, str]:
    return dict(only(f"{PLAIN} required {text};").options)


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        only(text)
    message = str(caught.value)
    assert message.startswith("sasl.jaas.config: ")
    assert SECRET not in message
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    return message


def test_a_module_has_a_name_a_flag_and_options():
    module = only(f'{PLAIN} required username="alice" password="pw";')
    assert module.name == "PlainLoginModule"
    assert module.control_flag == "required"
    assert module.options == {"username": "alice", "password": "pw"}


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        (PLAIN, "PlainLoginModule"),
        (SCRAM, "ScramLoginModule"),
        (OAUTHBEARER, "OAuthBearerLoginModule"),
        (KERBEROS, "Krb5LoginModule"),
        (f"kafkashaded.{PLAIN}", "PlainLoginModule"),
    ],
)
def test_the_known_modules(class_name, name):
    assert only(f"{class_name} REQUIRED;") == (name, "required", {})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('user_bob="x" user_alice="y"', {"user_bob": "x", "user_alice": "y"}),
        ("a=b", {"a": "b"}),
        ("a = 'b c'", {"a": "b c"}),
        ("a=\"'\" b='\"'", {"a": "'", "b": '"'}),
        (r'a="q\"q" b="s\\s"', {"a": 'q"q', "b": r"s\s"}),
        (r'a="\t\n\r\f\b\a\v\x"', {"a": "\t\n\r\f\b\a\vx"}),
        (r'a="\101\60\7\3777\477"', {"a": "A0\7\xff7'7"}),
        ('a=""', {"a": ""}),
        ('"a"="b"', {"a": "b"}),
        ("user_é=ünï", {"user_é": "ünï"}),
        ("a.b-c_d$e=f", {"a.b-c_d$e": "f"}),
        ("a=b// a comment\n c=d /* another\n */ e=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\t\n\0c=d", {"a": "b", "c": "d"}),
        ('a="x;y=z"', {"a": "x;y=z"}),
        ("a=b a=c", {"a": "c"}),
        ('a="//x" b="/*"', {"a": "//x", "b": "/*"}),
    ],
)
def test_options_are_read_as_java_reads_them(text, found):
    assert options(text) == found


def test_several_modules_are_parsed_but_a_setting_has_one():
    text = f"{PLAIN} required a=b; {SCRAM} optional;"
    assert [module.name for module in parse_jaas(text)] == ["PlainLoginModule", "ScramLoginModule"]
    assert "2 login modules" in refused(text)


@pytest.mark.parametrize("text", ["", "  ", "// nothing", "/* nothing */"])
def test_a_text_without_a_module_is_refused(text):
    assert "no login module" in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"{SECRET};",
        f"{PLAIN}",
        f"{PLAIN};",
        f"{PLAIN} {SECRET};",
        f'password="{SECRET}" {PLAIN} required;',
        f"; {PLAIN} required password={SECRET};",
    ],
)
def test_a_module_begins_with_its_class_and_a_flag(text):
    assert "required" in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        f"password {SECRET}",
        f"password= ; {SECRET}=",
        f"password={SECRET} x",
        f'password="a"{SECRET}"',
        f"={SECRET}",
        f"password=={SECRET}",
        f'"{SECRET}"',
    ],
)
def test_an_option_has_a_name_and_a_value(text):
    refused(f"{PLAIN} required {text};")


@pytest.mark.parametrize("value", ["1", "-a", ".a", f"9{SECRET}"])
def test_a_value_that_java_reads_as_a_number_must_be_quoted(value):
    assert "option 2" in refused(f"{PLAIN} required username=alice password={value};")
    assert options(f'a="{value}"') == {"a": value}


@pytest.mark.parametrize(
    "text",
    [
        f'password="{SECRET}',
        f"password='{SECRET}\n' a=b;",
        f"password={SECRET}@x;",
        f"password=/{SECRET};",
        f"/* {SECRET};",
        f"password={SECRET}\\;",
    ],
)
def test_a_character_without_meaning_is_refused_by_its_place(text):
    assert "character " in refused(f"{PLAIN} required {text}")


def test_the_semicolon_is_required():
    assert "semicolon" in refused(f"{PLAIN} required password={SECRET}")


@pytest.mark.parametrize(
    "class_name",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "software.amazon.msk.auth.iam.IAMLoginModule",
        "com.example.PlainLoginModule",
        "org.apache.kafka.common.security.plain.PlainLoginModule2",
    ],
)
def test_other_modules_are_refused_by_name(class_name):
    message = refused(f"{class_name} required password={SECRET};")
    assert class_name in message
    assert PLAIN in message


def test_a_name_that_is_no_class_is_not_shown():
    assert "of this name" in refused(f"{SECRET} required;")


def test_a_broker_does_not_accept_the_module_of_kerberos():
    with pytest.raises(ConfigError, match="Krb5LoginModule"):
        login_module("sasl.jaas.config", f"{KERBEROS} required;", BROKER_MODULES)


def test_no_repr_has_an_option():
    module = only(f"{PLAIN} required password={SECRET};")
    assert SECRET not in repr(module)
    assert SECRET not in f"{module} {[module]}"


def test_a_long_hostile_text_takes_no_time():
    for text in (
        '"' + "a" * 900_000,
        '"' + "\\a" * 450_000,
        " " * 900_000 + "@",
        "/*" * 450_000,
        "a=" * 450_000,
    ):
        refused(f"{PLAIN} required {text}")
    assert "characters" in refused("a" * 1_000_001)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"username": "alice", "password": 'a b;c="d"\\\'e\n\r\t/*//\\1é'},
        {"user_bob smith": "x", "é": "", "1": "2"},
    ],
)
def test_what_is_written_is_read_again(options):
    text = jaas_text("PlainLoginModule", options)
    assert "\n" not in text
    assert only(text) == ("PlainLoginModule", "required", options)

"""Who logs in how: kinds of login by client and broker, with the tests that show it.

`docs/guides/sasl.md` has `table()` as text, and `tests/unit/test_login_table.py` compares the two.
The tests of interop take their cases from here, so a cell without a test cannot say that it works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
CLIENTS: Final = ("aiokq", "Java", "librdkafka", "aiokafka", "kafka-python", "franz-go")
"""The clients that log in to the broker of aiokq."""

ON_KAFKA: Final = "aiokq on Apache Kafka"
COLUMNS: Final = (ON_KAFKA, *CLIENTS)

CREDENTIALS: Final = "OAUTHBEARER by client credentials"
ASSERTION: Final = "OAUTHBEARER by JWT bearer"
KERBEROS: Final = "GSSAPI"
CERTIFICATE: Final = "client certificate"
ROWS: Final = (*MECHANISMS, CREDENTIALS, ASSERTION, KERBEROS, CERTIFICATE)

BOTH: Final = "both"
TLS: Final = "TLS"


class Shown(NamedTuple):
    """A combination that works.

    Attributes:
        how: the protocols with which it is tested.
        test: the test, as "file::function" below tests/interop.
        reason: why it is not tested with both protocols.
    """

    how: str
    test: str
    reason: str = ""


ONLY_TLS: Final = "a certificate is shown in the TLS handshake"
NO_TOKENS: Final = (
    "the client requests no tokens: the program gives them to it, which the row OAUTHBEARER shows"
)
NO_KERBEROS: Final = "aiokq's broker has no GSSAPI, and refuses the setting by name"

_SASL = "test_sasl_on_broker.py::test_a_client_logs_in_by_a_mechanism"
_JAVA = "test_sasl_on_broker.py::test_java_logs_in_by_a_mechanism"
_OIDC = "test_oidc_on_broker.py::test_a_client_gets_its_tokens_from_the_server"
_JAVA_OIDC = "test_oidc_on_broker.py::test_java_gets_its_tokens_from_the_server"
_TLS = "test_tls_on_broker.py::test_a_client_with_a_certificate_writes_and_reads"
_JAVA_TLS = "test_tls_on_broker.py::test_java_comes_in_with_a_certificate"
_KAFKA = "apache/test_sasl.py::test_producer_consumer_and_admin_log_in"

CELLS: Final[Mapping[tuple[str, str], Shown | str]] = {
    ("PLAIN", ON_KAFKA): Shown(
        BOTH, "apache/test_security.py::test_producer_consumer_and_admin_are_let_in"
    ),
    **{(row, ON_KAFKA): Shown(BOTH, _KAFKA) for row in (*MECHANISMS[1:], CREDENTIALS, ASSERTION)},
    (KERBEROS, ON_KAFKA): Shown(
        BOTH,
        "apache/test_kerberos.py::test_a_client_logs_in_by_a_ticket_and_renews_its_session",
    ),
    (CERTIFICATE, ON_KAFKA): Shown(
        TLS, "apache/test_security.py::test_producer_consumer_and_admin_are_let_in", ONLY_TLS
    ),
    **{
        (row, client): Shown(BOTH, _JAVA if client == "Java" else _SASL)
        for row in MECHANISMS
        for client in CLIENTS
    },
    **{
        (row, client): Shown(BOTH, _JAVA_OIDC if client == "Java" else _OIDC)
        for row in (CREDENTIALS, ASSERTION)
        for client in ("aiokq", "Java", "librdkafka")
    },
    **{
        (row, client): NO_TOKENS
        for row in (CREDENTIALS, ASSERTION)
        for client in ("aiokafka", "kafka-python", "franz-go")
    },
    **{(KERBEROS, client): NO_KERBEROS for client in CLIENTS},
    **{
        (CERTIFICATE, client): Shown(TLS, _JAVA_TLS if client == "Java" else _TLS, ONLY_TLS)
        for client in CLIENTS
    },
}


def table() -> str:
    """Return the table as Markdown, with the reasons of the empty and partial cells below it."""
    reasons: list[str] = []
    lines = [f"| | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for row in ROWS:
        cells = []
        for column in COLUMNS:
            cell = CELLS[row, column]
            how, reason = (cell.how, cell.reason) if isinstance(cell, Shown) else ("none", cell)
            if reason and reason not in reasons:
                reasons.append(reason)
            cells.append(f"{how} ({reasons.index(reason) + 1})" if reason else how)
        lines.append(f"| {row} | {' | '.join(cells)} |")
    notes = "; ".join(f"({number}) {reason}" for number, reason in enumerate(reasons, 1))
    return "\n".join(lines) + f"\n\n{notes}.\n"

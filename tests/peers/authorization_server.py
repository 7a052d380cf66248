"""An OAuth authorization server: it signs tokens, and serves its keys (JWKS), or writes them.

Its tokens are JWTs signed by RS256, with the claims `sub`, `aud`, `iss`, `iat` and `exp`. A client
gets one for its secret (RFC 6749, client credentials), or for an assertion that it has signed
(RFC 7523, JWT bearer).
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

CLIENT_ID = "shop"
CLIENT_SECRET = "only the shop knows"
AUDIENCE = "kafka"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def why_absent() -> str | None:
    """Return the reason why tokens cannot be signed here, None if they can."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        return "the package cryptography is not installed"
    return None


def unsecured(sub: str, life: float) -> str:
    """Return an unsecured JWT, which only brokers in development accept."""
    now = time.time()
    claims = {"sub": sub, "iat": now - 1, "exp": now + life}
    return f"{_packed({'alg': 'none'})}.{_packed(claims)}."


class AuthorizationServer:
    """Serves tokens at `url`, and keys at `keys_url`, while the block runs.

    Attributes:
        url: the token endpoint.
        keys_url: the address of the keys.
        life: seconds for which its tokens are valid.
        audience: the claim `aud` of its tokens.
        status: the status of its answers; only 200 has a token.
        keys_status: the same for the answers with keys.
        count: number of requests for tokens.
        keys_count: number of requests for keys.
        client_key: the public key that verifies the assertions of the client; None to take none.
    """

    def __init__(self, *, life: float = 3600.0) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self.life = life
        self.audience = AUDIENCE
        self.status = self.keys_status = 200
        self.count = self.keys_count = 0
        self.client_key: Any = None
        self._new_key = lambda: rsa.generate_private_key(65537, 2048)
        self._numbers = itertools.count(1)
        self._keys = {str(next(self._numbers)): self._new_key()}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner.count += 1
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._send(*owner._answer(self.headers.get("Authorization", ""), body))

            def do_GET(self) -> None:
                owner.keys_count += 1
                self._send(owner.keys_status, owner._published())

            def _send(self, status: int, answer: dict[str, Any]) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._http.server_port}/token"
        self.keys_url = f"http://127.0.0.1:{self._http.server_port}/keys"

    def __enter__(self) -> AuthorizationServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def rotate(self) -> None:
        """Sign with a new key from now on; the former keys stay published."""
        self._keys = {**self._keys, str(next(self._numbers)): self._new_key()}

    def withdraw(self) -> None:
        """Publish only the key that signs."""
        self._keys = dict([list(self._keys.items())[-1]])

    def token(self, sub: str = CLIENT_ID, **claims: Any) -> str:
        """Return a signed token."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        key_id, key = list(self._keys.items())[-1]
        now = time.time()
        payload = {
            "sub": sub,
            "aud": self.audience,
            "iss": self.url,
            "iat": now,
            "exp": now + self.life,
        } | claims
        signed = f"{_packed({'alg': 'RS256', 'kid': key_id, 'typ': 'JWT'})}.{_packed(payload)}"
        return f"{signed}.{_base64(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def save_keys(self, path: Path) -> None:
        """Write the public keys as a JWKS file."""
        path.write_text(json.dumps(self._published()))

    def _published(self) -> dict[str, Any]:
        found = []
        for key_id, key in self._keys.items():
            numbers = key.public_key().public_numbers()
            found.append(
                {
                    "kty": "RSA",
                    "kid": key_id,
                    "use": "sig",
                    "alg": "RS256",
                    "n": _base64(numbers.n.to_bytes(256, "big")),
                    "e": _base64(numbers.e.to_bytes(3, "big")),
                }
            )
        return {"keys": found}

    def _answer(self, authorization: str, body: str) -> tuple[int, dict[str, Any]]:
        login = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        if self.status != 200:
            return self.status, {"error": "server_error"}
        if form.get("grant_type") == JWT_BEARER:
            if not self._is_signed(form.get("assertion", "")):
                return 400, {"error": "invalid_grant"}
        elif authorization != f"Basic {login}":
            return 401, {"error": "invalid_client"}
        elif form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.life}

    def _is_signed(self, assertion: str) -> bool:
        """Return whether the client has signed an assertion for this server."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        signed, _, signature = assertion.rpartition(".")
        try:
            self.client_key.verify(_bytes(signature), signed.encode(), PKCS1v15(), SHA256())
            claims = json.loads(_bytes(signed.partition(".")[2]))
        except (InvalidSignature, AttributeError, ValueError):
            return False
        expected = {"sub": CLIENT_ID, "iss": CLIENT_ID, "aud": self.url}
        return expected.items() <= claims.items() and claims["exp"] > time.time()


def _packed(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

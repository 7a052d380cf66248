"""An OAuth authorization server: it signs tokens, and gives its keys as a JWKS file.

Its tokens are JWTs signed by RS256, with the claims `sub`, `aud`, `iss`, `iat` and `exp`.
"""

from __future__ import annotations

import base64
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
    """Serves client credentials at `url` while the block runs.

    Attributes:
        url: the token endpoint.
        life: seconds for which its tokens are valid.
        audience: the claim `aud` of its tokens.
        status: the status of its answers; only 200 has a token.
        count: number of requests.
    """

    def __init__(self, *, life: float = 3600.0) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self.life = life
        self.audience = AUDIENCE
        self.status = 200
        self.count = 0
        self._key = rsa.generate_private_key(65537, 2048)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner.count += 1
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, answer = owner._answer(self.headers.get("Authorization", ""), body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._http.server_port}/token"

    def __enter__(self) -> AuthorizationServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def token(self, sub: str = CLIENT_ID, **claims: Any) -> str:
        """Return a signed token."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        now = int(time.time())
        payload = {
            "sub": sub,
            "aud": self.audience,
            "iss": self.url,
            "iat": now,
            "exp": now + self.life,
        } | claims
        signed = f"{_packed({'alg': 'RS256', 'kid': 'one', 'typ': 'JWT'})}.{_packed(payload)}"
        return f"{signed}.{_base64(self._key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def save_keys(self, path: Path) -> None:
        """Write the public key as a JWKS file."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "one",
            "use": "sig",
            "alg": "RS256",
            "n": _base64(numbers.n.to_bytes(256, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }
        path.write_text(json.dumps({"keys": [key]}))

    def _answer(self, authorization: str, body: str) -> tuple[int, dict[str, Any]]:
        login = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if self.status != 200:
            return self.status, {"error": "server_error"}
        if authorization != f"Basic {login}":
            return 401, {"error": "invalid_client"}
        if parse_qs(body).get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.life}


def _packed(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")

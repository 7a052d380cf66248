"""Connections one after the other in several threads: TLS handshakes, or logins by SCRAM.

    python -m benchmarks.contenders.connects --bootstrap HOST:PORT --tls CA.pem
    python -m benchmarks.contenders.connects --bootstrap HOST:PORT --user NAME --password PASSWORD

A handshake is complete (no session is resumed), and counts when a request has been answered on the
connection. A login counts when the server's signature has been checked. The password is salted
once, as clients do, so that the client is not the limit.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import itertools
import json
import os
import socket
import ssl
import threading
import time

from benchmarks.contenders.measure import cpu_seconds

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
MECHANISM = "SCRAM-SHA-256"


def frame(api: int, version: int, body: bytes) -> bytes:
    """Return a request with header version 1."""
    client = b"bench"
    header = b"".join(
        (
            api.to_bytes(2, "big"),
            version.to_bytes(2, "big"),
            bytes(4),
            len(client).to_bytes(2, "big"),
            client,
        )
    )
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def ask(sock: socket.socket, request: bytes) -> bytes:
    """Send a request; return the body of its answer."""
    sock.sendall(request)
    answer = bytearray()
    size = 4
    while len(answer) < size:
        received = sock.recv(65536)
        if not received:
            raise ConnectionError("closed by the broker")
        answer += received
        if len(answer) >= 4:
            size = 4 + int.from_bytes(answer[:4], "big")
    return bytes(answer[8:])


class Handshake:
    """A TLS handshake, and a request that proves that the broker has completed it, too."""

    def __init__(self, authority: str) -> None:
        self._context = ssl.create_default_context(cafile=authority)
        self._request = frame(API_VERSIONS, 0, b"")

    def run(self, sock: socket.socket) -> None:
        with self._context.wrap_socket(sock, server_hostname="localhost") as tls:
            ask(tls, self._request)


class Login:
    """A login by SCRAM-SHA-256 without TLS."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password.encode()
        self._salted: dict[tuple[bytes, int], bytes] = {}
        name = MECHANISM.encode()
        self._handshake = frame(SASL_HANDSHAKE, 1, len(name).to_bytes(2, "big") + name)

    def run(self, sock: socket.socket) -> None:
        if ask(sock, self._handshake)[:2] != b"\0\0":
            raise ConnectionError("the mechanism is not enabled")
        bare = f"n={self._user},r={base64.b64encode(os.urandom(18)).decode()}"
        challenge = self._token(sock, f"n,,{bare}".encode()).decode()
        nonce, salt, iterations = (part[2:] for part in challenge.split(","))
        final = f"c=biws,r={nonce}"
        signed = f"{bare},{challenge},{final}".encode()
        salted = self._salt(base64.b64decode(salt), int(iterations))
        key = hmac.digest(salted, b"Client Key", "sha256")
        mask = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, mask, strict=True))
        answer = self._token(sock, f"{final},p={base64.b64encode(proof).decode()}".encode())
        own = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        if answer != b"v=" + base64.b64encode(own):
            raise ConnectionError(f"the login failed: {answer!r}")

    def _token(self, sock: socket.socket, token: bytes) -> bytes:
        body = ask(sock, frame(SASL_AUTHENTICATE, 0, len(token).to_bytes(4, "big") + token))
        # Error code, nullable text, and the token.
        size = int.from_bytes(body[2:4], "big", signed=True)
        if body[:2] != b"\0\0":
            raise ConnectionError(body[4 : 4 + size].decode())
        return body[4 + max(size, 0) + 4 :]

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted.get((salt, iterations))
        if known is None:
            known = hashlib.pbkdf2_hmac("sha256", self._password, salt, iterations)
            self._salted[salt, iterations] = known
        return known


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--tls", help="file with the authority")
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    host, _, port = options.bootstrap.rpartition(":")
    work = Handshake(options.tls) if options.tls else Login(options.user, options.password)
    numbers = itertools.count()
    failures: list[Exception] = []

    def run(until: float) -> None:
        while time.perf_counter() < until and not failures:
            try:
                with socket.create_connection((host, int(port)), timeout=10) as sock:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    work.run(sock)
            except Exception as error:  # noqa: BLE001 - raised by the main thread
                failures.append(error)
                return
            next(numbers)

    def phase(seconds: float) -> tuple[int, float, float]:
        """Return the number of connections, seconds, and seconds of CPU."""
        before, cpu, began = next(numbers), cpu_seconds(), time.perf_counter()
        threads = [
            threading.Thread(target=run, args=(began + seconds,)) for _ in range(options.threads)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        took = time.perf_counter() - began
        return next(numbers) - before - 1, took, cpu_seconds() - cpu

    first, _, _ = phase(options.seconds / 4)  # warms up both ends
    count, seconds, cpu = phase(options.seconds)
    if failures:
        raise failures[0]
    print(
        json.dumps({"records": count, "seconds": seconds, "cpu_seconds": cpu, "all": first + count})
    )


if __name__ == "__main__":
    main()

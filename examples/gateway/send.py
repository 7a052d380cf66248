"""Python writes to a UNIX datagram socket of the gateway: `python send.py PATH COUNT`."""

from __future__ import annotations

import sys

from aiokq.gateway.client import GatewayClient


def main() -> None:
    path, count = sys.argv[1], int(sys.argv[2])
    with GatewayClient(unix_datagram=path, when_unavailable="wait", timeout=10) as client:
        for n in range(count):
            client.send("visits", b'{"n": %d, "from": "Python"}' % n, key=b"python")


if __name__ == "__main__":
    main()

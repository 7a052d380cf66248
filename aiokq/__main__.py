"""Entry point of `aiokq` and `python -m aiokq`; starts `aiokq broker` without loading Typer."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["broker"]:
        # `aiokq broker` starts without Typer and Rich, because importing them takes longer than a
        # start of the broker may take. Garbage collection during imports would find no garbage; the
        # broker enables garbage collection when it begins to accept connections.
        gc.disable()
        from aiokq.broker.process import main as broker

        sys.exit(broker(arguments[1:]))
    from aiokq.cli.app import main as cli

    cli()


if __name__ == "__main__":
    main()

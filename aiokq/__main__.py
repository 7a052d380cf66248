"""The dispatcher of `aiokq` and `python -m aiokq`: `broker` is parsed without Typer."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["broker"]:
        # Typer and Rich cost more than the broker's whole start may take. So do collections,
        # which find nothing while modules are imported; the broker turns them on when it accepts.
        gc.disable()
        from aiokq.broker.process import main as broker

        sys.exit(broker(arguments[1:]))
    from aiokq.cli.app import main as cli

    cli()


if __name__ == "__main__":
    main()

"""The command line but for `broker`, which is parsed without Typer: see `aiokq.__main__`."""

"""The version of aiokq; in a file of its own, which the build reads without an import of aiokq."""

__version__ = "0.1.0"

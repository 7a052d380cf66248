"""The suites of `make bench`; each returns sections of the report."""

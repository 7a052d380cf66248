"""aiokq and its peers measured side by side: `make bench`, or `python -m benchmarks --help`."""

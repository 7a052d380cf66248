"""One program per client and direction; each prints what it measured as one JSON object."""

"""One program per client and direction; each prints its measurements as one JSON object."""

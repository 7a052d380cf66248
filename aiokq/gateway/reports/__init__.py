"""The reports of a gateway: discards, counters, queues, debug files and the status page."""

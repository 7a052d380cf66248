"""The cluster engine: metadata, events, routing and recovery; nothing of records to be produced.

Private to aiokq. The public face is :class:`aiokq.Cluster` (package ``client``).
"""

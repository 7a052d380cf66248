"""The cluster engine: metadata, events, request routing and recovery of failed partitions.

Private to aiokq. The public class is :class:`aiokq.Cluster` (package ``client``).
"""

"""The cluster's metadata: its controller, its log, and its application to this node (ADR 11)."""

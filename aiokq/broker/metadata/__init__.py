"""The cluster's metadata: how it is decided, recorded and applied to this node (ADR 11)."""

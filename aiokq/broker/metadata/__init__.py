"""The metadata of the cluster: deciding about it, recording it, and acting on it (ADR 11)."""

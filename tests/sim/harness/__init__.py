"""A deterministic simulation: virtual time, an in-memory network and in-memory disks.

Client and broker run in it unchanged, because everything they use from outside is passed to
them. The same seed gives the same run: `simulation.run(seed, main)`.
"""

"""A deterministic world: virtual time, an in-memory network and in-memory disks.

Client and broker run in it unchanged, as everything they touch is handed in. One seed, one
run: `simulation.run(seed, main)`.
"""

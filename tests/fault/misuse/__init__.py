"""Rounds of random faults, limits and misuse against a broker and clients under load, from seeds.

`python -m tests.fault.misuse --hours 2` runs rounds (`make torture FAULTS=misuse HOURS=2`), each in
a process of its own and each from one seed: `plan.py` draws the plan, `round.py` runs it,
`history.py` records what the clients observed; `checker.py`, and by `checked.py` the checker of
`aiokq.testing`, compare that with the data that the broker has in the end.
"""

"""Random faults, limits and misuse applied to a broker and to clients under load, from seeds.

`python -m tests.fault.misuse --hours 2` runs rounds (`make torture FAULTS=misuse HOURS=2`), each in
a process of its own and each drawn from one seed: `plan.py` draws it, `round.py` runs it,
`history.py` records what the clients were told, and `checker.py` compares that with what the broker
has in the end.
"""

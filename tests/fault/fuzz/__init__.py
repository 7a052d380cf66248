"""Fuzzing of all listeners of a broker, before and after authentication, and of the client.

`python -m tests.fault.fuzz --seconds 120 --seed 1` runs one round, and
`make torture FAULTS=fuzz HOURS=2` as many as fit. `values.py` draws messages of all APIs in all
versions, `batches.py` batches of records, `mutations.py` damages bytes, `plans.py` draws what one
connection does, `talks.py` conversations that depend on answers, and `attack.py` carries them out.
`serving.py` is the broker under test with a probe of its inner state, `fixture.py` its files and
rights, `working.py` the clients that must be served meanwhile, and `round.py` judges. `clients.py`
turns it round: a hostile broker answers clients of aiokq.
"""

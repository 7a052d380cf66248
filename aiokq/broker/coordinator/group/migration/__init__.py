"""Groups that change their protocol while they have members (KIP-848, online migration).

A change consists of records only: the tombstones of the old group and the records of the new one,
in one batch, so that no coordinator ever loads half of it.
"""

"""Groups that change their protocol while they have members (KIP-848, online migration).

A change consists of records only: the tombstones of the old group and the records of the new group.
All these records are in one batch, so that a coordinator never loads only a part of the change.
"""

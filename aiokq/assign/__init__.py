"""Who of a group reads which partitions: pure functions, used by clients and by the broker.

Owns the assignors of both group protocols and the bytes members exchange about them. Knows no
group, network or clock.
"""

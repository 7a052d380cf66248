"""The client side of group membership, with both group protocols, and the offsets of a group.

A member (`classic_member`, `consumer_member`) is a sans-IO state machine. `member_driver` passes it
the time and the responses, and carries out its actions. The consumer decides which records are
read.
"""

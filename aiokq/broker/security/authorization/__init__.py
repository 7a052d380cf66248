"""Authorization of operations by ACLs or by a function of the caller."""

"""Authorization: what a client may do, by ACLs or by a function of the caller."""

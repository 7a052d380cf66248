"""Group membership of a consumer, client side: both protocols, commits, and who does what when.

Owns what a member says to its coordinator. The machines (`classic`, `modern`) are sans-IO; the
driver gives them time and answers, and does what they ask for. Which records are read is the
consumer's.
"""

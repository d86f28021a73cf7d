"""SQL's MATCH_RECOGNIZE as a front end to plans.

The way of a statement: `dialect` reads it, `pattern_text` reads the pattern in it, `lowering` turns its expressions
into a plan's, `recognition` puts the plan together. For a query on tables `statement` hands everything around
MATCH_RECOGNIZE to an SQL engine, and `arrow` brings rows in and out. Who finds the matches is another package's:
`matching`, which knows plans and no SQL.
"""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

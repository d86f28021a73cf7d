"""The evaluations of the three papers again, as pure experiments: parameters and a seed in, a row of measurements out.

`experiment("correlation")` is a grid of points and what plays one; every run passes the checkers of `audit`, so that
no figure stands for a system that was wrong. `unerring.evaluation.sweeps` runs grids times seeds on Spark; `figures`,
`summary` and `claims` say what came out.
"""

from unerring.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

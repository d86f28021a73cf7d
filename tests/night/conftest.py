"""A night tries the scenarios of the simulator's own tests, also in processes of its own."""

from tests.simulation.conftest import environment

__all__ = ["environment"]

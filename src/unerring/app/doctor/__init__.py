"""What stands in the way of a run, before it begins or while it goes on: `unerring doctor`."""

from unerring.app.doctor.examining import Asked, examine
from unerring.app.doctor.finding import ERROR, LEVELS, WARNING, WELL, Finding

__all__ = ["ERROR", "LEVELS", "WARNING", "WELL", "Asked", "Finding", "examine"]

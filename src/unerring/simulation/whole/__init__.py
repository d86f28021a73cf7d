"""The parts of the scenario `whole`: who publishes, who writes the log, who follows it, who acts on situations."""

from unerring.simulation.whole.acting import Acting, Reacting
from unerring.simulation.whole.judging import Judge
from unerring.simulation.whole.publishing import Publishing
from unerring.simulation.whole.sealed import Sealed
from unerring.simulation.whole.writing import Writing

__all__ = ["Acting", "Judge", "Publishing", "Reacting", "Sealed", "Writing"]

"""Scenarios of packages that the simulator does not know: sinks, the filter of services, and what security rests on.

They need no network and no virtual clock. A seed draws who does what, in which order, and what fails.
"""

from unerring.night.scenarios.filter import Filters
from unerring.night.scenarios.security import Security
from unerring.night.scenarios.sinks import Sinks

__all__ = ["Filters", "Security", "Sinks"]

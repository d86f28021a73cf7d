"""What other packages import of evaluation. This is the list; `__init__.py` loads it when it is used."""

from .claims import Claim as Claim, claims_of as claims_of
from .correlation import Factory as Factory, FactoryRun as FactoryRun
from .dead_link import Severed as Severed
from .figures import draw as draw
from .grids import (
    EXPERIMENTS as EXPERIMENTS,
    Experiment as Experiment,
    Measured as Measured,
    experiment as experiment,
    run_one as run_one,
)
from .summary import Summary as Summary
from .sweeps import Sweep as Sweep

__all__: list[str]

"""What other packages import of evaluation. This is the list; `__init__.py` loads it when it is used."""

from .claims import CLAIMS as CLAIMS, Claim as Claim, Row as Row, claims_of as claims_of
from .correlation import Factory as Factory, FactoryRun as FactoryRun
from .dead_link import Severed as Severed
from .figures import draw as draw
from .grids import (
    EXPERIMENTS as EXPERIMENTS,
    Experiment as Experiment,
    Measured as Measured,
    experiment as experiment,
    run_one as run_one,
    seconds_of as seconds_of,
)
from .page import COLUMNS as COLUMNS, renew as renew
from .process_bed import (
    NETWORKS as NETWORKS,
    Network as Network,
    Timing as Timing,
    random_actions as random_actions,
    sequence as sequence,
)
from .processes import (
    MASTER_DOWN_US as MASTER_DOWN_US,
    Execution as Execution,
    ProcessRun as ProcessRun,
    grouping_of as grouping_of,
)
from .summary import Summary as Summary
from .sweeps import Sweep as Sweep

__all__: list[str]

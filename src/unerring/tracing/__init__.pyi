from .exporting import MetricsSender as MetricsSender
from .identity import (
    Ref as Ref,
    effect_time_us as effect_time_us,
    instance_ref as instance_ref,
    process_ref as process_ref,
)
from .telling import (
    Tracer as Tracer,
    call_me as call_me,
    send_waiting as send_waiting,
    tracer as tracer,
)
from .variables import Settings as Settings, ask_for as ask_for, named as named, settings as settings, untold as untold

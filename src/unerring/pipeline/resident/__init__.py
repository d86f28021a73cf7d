"""The Spark engine's streaming form: one job as long as the run, whose tasks hold partitions and are told to advance.

| module | idea |
|---|---|
| wire | what the driver and the tasks say to each other |
| task | a task: partitions that are advanced when they are told to |
| line | one level: which intervals there are, who holds which partition, what was answered |
| hub | the driver's side: connections, who gets what, a thread for each level |
| job | the Spark job that the tasks belong to |

Exactly once rests on the same three facts as for micro-batches: an interval's outputs follow from the log and the state
before it, states are created once, and sealing an interval a second time finds it sealed. So a partition may be held by
two tasks at once, and the answer of one that was thought dead is as good as any.
"""

"""What the process imports that ranks are forked from, so that no rank has to.

It must start no thread and ask no CUDA device, or the ranks could use neither after the fork.
"""

from __future__ import annotations

import gc
import importlib

from harness.layout import STRATEGIES

gc.disable()  # collections while imports make 300,000 objects take a third of the time, and find nothing
for _module in (
    "harness.train.worker",
    "torch._dynamo",  # the first optimizer of a process imports it
    *(strategy.module for strategy in STRATEGIES.values()),
):
    importlib.import_module(_module)
gc.enable()

# What is here now stays until a rank ends: its collections, one at the end of each session, need not look at it.
gc.collect()
gc.freeze()

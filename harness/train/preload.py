"""What the process imports that ranks are forked from, so that no rank has to.

It must start no thread and ask no CUDA device, or the ranks could use neither after the fork.
"""

from __future__ import annotations

import gc
import importlib

from harness.layout import STRATEGIES

for _module in (
    "harness.train.worker",
    "torch._dynamo",  # the first optimizer of a process imports it
    *(strategy.module for strategy in STRATEGIES.values()),
):
    importlib.import_module(_module)

# What is here now stays until a rank ends: its collections, one at the end of each session, need not look at it.
gc.collect()
gc.freeze()

"""Texts by which nodes, GPUs and their links say that they failed."""

from __future__ import annotations

from harness.execute.failure_rules.rule import Rule, Tier
from harness.failure import FailureClass as F

NODE = (
    Rule(F.NODE_FAILURE, Tier.NODE, "srun lost a node", ("node failure on", "io error with slurmstepd on node")),
    Rule(
        F.NODE_FAILURE, Tier.NODE, "Slurm ended the job because a node failed", ("due to node fail", r"\bnode_fail\b")
    ),
    Rule(
        F.NODE_FAILURE,
        Tier.NODE,
        "the node could not start the job",
        (
            r"\bprolog (?:launch )?(?:failed|failure|error)",
            "failed prolog",
            "launch failed requeued held",
            "are still not ready",
            "something is wrong with the boot of",
            r"nodes? \S+ (?:is |are )?not responding",
        ),
    ),
)

HARDWARE = (
    Rule(
        F.HARDWARE,
        Tier.MACHINE,
        "an uncorrectable memory or link error",
        (
            r"uncorrectable (?:\w+ )?(?:ecc|nvlink|memory|[ds]ram|hardware)\b.{0,20}\berrors?\b(?! *[:=] *(?:0|n/a)\b)",
            r"cudaerror\w*uncorrectable",
            r"cuda_error_\w*uncorrectable",
            "double.bit ecc error",
            r"uncorrectable errors? (?:was|were)? ?detected",
        ),
    ),
    Rule(
        F.HARDWARE,
        Tier.MACHINE,
        "a GPU fell off the bus",
        ("fallen off the bus", "fell off the bus", "gpu is lost", "gpu has been lost"),
    ),
    Rule(
        F.HARDWARE,
        Tier.MACHINE,
        "an Xid that means a broken device",
        (
            r"\bxid\b(?:.{0,80}?\))?[: ]+(?:48|61|62|74|79|92|94|95|109|110|119|120|12[2-5]|13[67]|14\d|15[0-4])\b",
            "gpu requires reset",
            "row remapp(?:er|ing) failure",
        ),
    ),
    Rule(
        F.HARDWARE,
        Tier.MACHINE,
        "the hardware or its driver reported a fault",
        (
            r"\[hardware error\]",
            "hw exception by gpu",
            "unable to determine the device handle for gpu",
            "system not yet initialized",
            "cudaerrorsystemnotready",
            "communicate with the nvidia driver",
            "gpu hang",
            "gpu reset begin",
            r"\bamdgpu\b.{0,60}\bring \S+ timeout",
            "rminitadapter failed",
            r"\bsxid\b.{0,80}(?<!non-)\bfatal\b",
            "machine check exception",
        ),
    ),
    Rule(
        F.HARDWARE,
        Tier.NOTE,
        "an Xid that ends no run: service the GPU at the next break",
        (r"\bxid\b(?:.{0,80}?\))?[: ]+(?:63|64|93|121)\b", "row remapper: new row", "remapping pending *: *yes"),
    ),
    Rule(
        F.CRASH,
        Tier.NOTE,
        "an Xid that the program causes, not the GPU",
        (r"\bxid\b(?:.{0,80}?\))?[: ]+(?:6|8|11|13|31|32|37|43|44|45|59|66|68|69)\b",),
    ),
)

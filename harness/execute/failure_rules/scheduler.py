"""Texts by which Slurm refuses a request, or ends a job."""

from __future__ import annotations

from harness.execute.failure_rules.rule import Rule, Tier
from harness.failure import FailureClass as F

_CONTROLLER = r"(?:socket timed out|zero bytes were|unable to contact slurm|connection refused|communication connection|temporarily unable|unexpected message|protocol authentication|connection timed out)"  # noqa: E501

REQUEST = (
    Rule(
        F.NETWORK,
        Tier.OWN,
        "the Slurm controller did not answer",
        (
            r"slurm_load_\w+.{0,20}error: ",
            "unable to contact slurm controller",
            "could not establish a configuration source",
            r"\bs(?:batch|run|alloc): .{0,40}unable to resolve",
            rf"unable to create step for job .{{0,20}}: {_CONTROLLER}",
            rf"submission failed: .{{0,20}}{_CONTROLLER}",
            rf"allocate resources: .{{0,20}}{_CONTROLLER}",
            rf"allocate failed: .{{0,20}}{_CONTROLLER}",
            rf"confirm allocation .{{0,30}}{_CONTROLLER}",
            "zero bytes were transmitted",
            "socket timed out on send/recv",
            "unable to get (?:job|node|partition) info",
        ),
    ),
    Rule(
        F.NETWORK,
        Tier.OWN,
        "the launch network failed",
        ("error configuring interconnect", "launch for .{0,60} failed .{0,60}communication connection"),
    ),
    Rule(
        F.CANCELLED,
        Tier.TERM,
        "the job was already ending",
        ("already completing or completed", "invalid job id specified", "has been revoked"),
    ),
    Rule(
        F.BAD_REQUEST,
        Tier.OWN,
        "the step asks for what the job does not have",
        (
            r"unable to create step for job (?!.{0,20}(?:job/step already|invalid job id))",
            "unable to create job step(?!.{0,40}already)",
            "cpu binding outside of",
            "unable to satisfy cpu bind",
            "unable to layout tasks",
            "invalid cpu.bind",
            "more processors requested than",
            "memory required by task",
        ),
    ),
    Rule(
        F.BAD_REQUEST,
        Tier.OWN,
        "Slurm can never grant the request",
        (
            "configuration is not available",
            "invalid (?:generic|trackable) resource",
            "invalid (?:qos|partition|partition name) specif",
            "invalid account or account",
            "invalid feature specification",
            "invalid (?:constraint|licenses|license|wckey|reservation)",
            "invalid node name",
            "invalid job array",
            "invalid directive found in batch",
            "look like a batch script",
            "memory specification can ?not",
            "node count specification",
            r"nodes? count specification invalid",
            "count per node can not",
            "requested time limit is invalid",
            "violates accounting",
            "not permitted to use this partition",
            "not in this partition",
            r"\b(?:max|grp)\w+per(?:user|account|job|node)\w*",
            r"\bqos(?:max|grp|min|time|usage|resource)\w+",
            r"\bassoc(?:max|grp)\w+",
            r"\bpartition(?:time|node)limit\b",
            r"\bpartitionconfig\b",
            "badconstraints",
            "dependencyneversatisfied",
            r"\bassociation\w*limit",
            r"\binvalid(?:account|qos)\b",
        ),
    ),
    Rule(
        F.BAD_REQUEST,
        Tier.OWN,
        "Slurm refused the request",
        (
            r"job submission failed(?!.{0,40}already completing)",
            "submit/allocate failed",
            r"unable to allocate resources(?!.{0,40}already completing)",
            r"unable to confirm allocation(?!.{0,80}(?:already completing|invalid job id))",
        ),
    ),
    Rule(
        F.BAD_REQUEST,
        Tier.OWN,
        "the request is not well formed",
        (
            r"\bs(?:batch|run|alloc): unrecognized option",
            r"\bs(?:batch|run|alloc): invalid option",
            r"\bs(?:batch|run|alloc): option .{0,40}(?:requires|ambiguous)",
            r"\bs(?:batch|run|alloc): (?:error|fatal): .{0,40}\binvalid\b.{0,60}(?:specification|count|value|option|argument|number|size|entity)",  # noqa: E501
            r"\bs(?:batch|run|alloc): .{0,120}mutually exclusive",
        ),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the program could not be started",
        (r"\bexecve(?:\(\))?: ", "launch failed: slurmd could not", "slurmd could not execve"),
    ),
    Rule(
        F.NODE_FAILURE,
        Tier.OWN,
        "a node could not launch the task",
        (r"launch failed: (?:invalid job cred|job cred|unspecified)", r"task launch for .{0,60} failed on node"),
    ),
    Rule(
        F.BAD_REQUEST,
        Tier.EXIT,
        "Slurm refused the command",
        (r"\bsbatch: (?:error|fatal): ", r"\bsalloc: (?:error|fatal): ", r"\bsrun: fatal: "),
    ),
)

STOP = (
    Rule(
        F.PREEMPTED,
        Tier.STOP,
        "the scheduler gave the nodes to another job",
        (
            "due to preempt",
            "due to (?:job )?requeue",
            r"state[=: ]+preempted",
            r"\bpreempted +\d+:\d",
            "this job is preempted",
            r"\bjob \S+ (?:was |has been |is being )?preempted",
        ),
    ),
    Rule(
        F.TIME_LIMIT,
        Tier.STOP,
        "the job ran into its time limit",
        (
            "due to time ?limit",
            r"(?:exceeded|reached|hit|over) (?:\w+ ){0,3}time ?limit",
            "time ?limit (?:was )?(?:exhausted|exceeded|reached)",
            r"state[=: ]+timeout\b",
            r"\btimeout +(?:[\d:-]+ +)?\d+:\d+ *$",
            "this job is timed.out",
            "because: timed.out",
            "walltime .{0,40}exceeded",
            "term_runlimit",
        ),
    ),
    Rule(
        F.CANCELLED,
        Tier.CANCEL,
        "cancelled, and no reason given",
        (
            r"\bcancelled at \S+(?!\S|\s+due\b(?! to signal))",
            r"\bcancelled by \S",
            r"\bcancelled due to (?:user|cancel)",
            r"state[=: ]+cancelled",
            r"\bjob \S+ (?:was|has been) cancelled",
            "forcing job termination",
            "force terminated",
            "sending ctrl-c to",
            "stepd terminated .{0,80} due to",
        ),
    ),
)

"""Texts by which hosts and devices say that their memory ran out."""

from __future__ import annotations

from harness.execute.failure_rules.rule import Rule, Tier
from harness.failure import FailureClass as F

HOST_MEMORY = (
    Rule(
        F.HOST_OOM,
        Tier.MACHINE,
        "killed by the out-of-memory handler",
        (
            r"detected [1-9]\d* oom.kill",
            r"\boom.killed",
            "invoked oom.killer",
            "oom.kill:constraint",
            "out of memory: kill",
            "cgroup out.of.memory",
            r"killed .{0,40}out.of.memory",
        ),
    ),
    Rule(F.HOST_OOM, Tier.MACHINE, "a task ran out of the job's memory", (r"\btasks? [\d,\[\]-]+: out of memory",)),
    Rule(
        F.HOST_OOM,
        Tier.MACHINE,
        "the job's memory limit was exceeded",
        (
            r"exceeded (?:\w+ ){0,2}memory limit",
            "memory limit exceeded",
            "due to memory limit",
            "node running low on memory",
            "state[=: ]+out_of_memory",
            r"\bout_of_me\+",
            r"\bout_of_memory +0:125",
        ),
    ),
    Rule(
        F.CONFIG,  # memory that is locked for RDMA is limited by the shell, not by the host
        Tier.OWN,
        "locked memory is limited (ulimit -l)",
        (r"\bibv_\w+.{0,80}cannot allocate memory", r"fi_mr_reg.{0,80}cannot allocate memory", "rlimit_memlock"),
    ),
    Rule(
        F.HOST_OOM,
        Tier.OWN,
        "the host could not allocate memory",
        (
            r"std::bad_alloc",
            r"defaultcpuallocator.{0,60}memory",
            "can.t allocate memory",
            "cannot allocate memory",
            "not enough memory: you tried",
            "killed due to memory",
            r"(?:^|[ .:])_?(?:array)?memoryerror(?::|$)",
            r"unable to allocate [\d.]+ [kmgtp]i?b\b",
        ),
    ),
)

DEVICE_MEMORY = (
    Rule(
        F.DEVICE_OOM,
        Tier.OWN,
        "the device's memory ran out",
        (
            r"\b(?:cuda|hip|xpu|npu|gpu|hpu|mps)(?: backend| driver)? out of memory",
            r"\b(?:cuda|hip|xpu|npu|gpu|rocm)(?: \w+)? (?:error|failure)\b.{0,60}out of memory",
            r"torch\.(?:cuda\.)?outofmemoryerror\b: \S",
            "resource_exhausted: .{0,40}out of memory",
            "cudaerrormemoryallocation",
            "hiperrorout ?ofmemory",
            "hiperrormemoryallocation",
            "(?:cuda|hip)_error_out_of_memory",
            "(?:cublas|cudnn|hipblas|cusolver|cusparse)_status_alloc_failed",
            "rocblas_status_memory_error",
            "hsa_status_error_out_of_resources",
        ),
    ),
)

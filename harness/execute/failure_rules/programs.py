"""Texts by which programs say that they are not set up right, or die."""

from __future__ import annotations

from harness.execute.failure_rules.rule import Rule, Tier
from harness.failure import FailureClass as F


def _died(name: str, words: str, number: int) -> tuple[str, ...]:
    """How srun, shells and launchers word that a process died of the signal ``name`` (``sigkill``, 9)."""
    code = rf"(?:-{number}|{128 + number})\b"
    return (
        rf"\btasks? [\d,\[\]-]+: {words}",
        rf"\bsignal:? \(?(?:{number}|{name}|{words})\b",
        rf"exit ?code[ :=(]*{code}",
        rf"return code[ :=(]*{code}",
        rf"exit(?:ed)? (?:with )?(?:status|code)[ :=(]*{code}",
        rf"<signals\.{name}",
        rf"[( ]{name}\b(?! \w*handler)[):]",
        rf"^{words}(?: \(core dumped\))?$",
        rf"line \d+: *\d+ {words}\b",
        rf"fatal python error: {words}",
        rf"caught signal {number}\b",
    )


SET_UP = (
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the devices do not fit the program",
        (
            "invalid device ordinal",
            "no kernel image is available",
            "driver version is insufficient",
            "no (?:cuda|hip) gpus are available",
            "not compiled with cuda",
            "no nvidia driver",
            "no (?:cuda|rocm).capable device",
            "^no devices were found",
            "failed to initialize nvml",
            "hiperrornobinaryforgpu",
            "gpu_support_enabled is requested",
            "driver/library version mismatch",
            "busy or unavailable",
        ),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "a module is missing",
        (r"modulenotfounderror: \S", r"\bimporterror: \S", r"no module named \S", "cannot import name"),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the command line is wrong",
        (
            "error: unrecognized arguments",
            "the following arguments are required",
            "error: argument .{0,80}(?:invalid|expected)",
            "error: no such option",
            "error: (?:missing (?:option|argument)|invalid value for)",
        ),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "a library is missing or of another version",
        (
            "cannot open shared object",
            "error while loading shared libraries",
            "undefined symbol",
            r"version ['`\"]?(?:glibc|glibcxx|cxxabi)_[\d.]+['`\"]? not found",
        ),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "a file or command is missing",
        (
            r": command not found",
            "can.t open file",
            r"\bfilenotfounderror\b",
            r"\bpermissionerror\b",
            r"(?:line \d+|bash|\bsh|slurm_script|env|exec|python3?): .{0,200}no such file or directory",
            r"(?:line \d+|bash|\bsh|slurm_script|env|exec|python3?): .{0,200}permission denied",
            "syntax error near unexpected",
            "unbound variable",
        ),
    ),
    Rule(
        F.CONFIG,  # the same run on the same file system fails again, so no retry: config rather than crash
        Tier.OWN,
        "nothing can be written: the file system is full or closed",
        ("no space left on device", "disk quota exceeded", "read-only file system"),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "a limit of the shell is too low",
        ("too many open files", "can.t start new thread", "pthread_create failed", "retry: resource temporarily"),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the environment module or container is not there",
        (
            "lmod has detected the following error",
            "unable to locate a modulefile",
            r"module\(s\) (?:or extension\(s\) )?are unknown",
            "pyxis: .{0,60}(?:failed|couldn.t|could not)",
            r"fatal: +(?:could not open image|container creation|while \w+ing|image file)",
        ),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the port or address cannot be bound",
        ("address already in use", "eaddrinuse", "cannot assign requested address"),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the communication library is not set up for this machine",
        (
            r"nccl warn .{0,80}\bnetwork \S.{0,60} not found",
            r"nccl warn .{0,60}(?:could not find|failed to (?:initialize|load|find|open)) .{0,40}(?:net|plugin)",
            r"nccl warn .{0,80}plugin.{0,60}(?:not found|failed|could not|mismatch)",
            r"nccl warn .{0,40}invalid config",
            "duplicate gpu detected",
            "no socket interface found",
            "unable to find (?:interface|address) for",
            "unsupported gloo device",
            "mismatched nccl version",
            "ncclinvalidusage",
            r"nccl error.{0,120}invalid usage",
            "invalid usage, nccl",
            "distributed package doesn.t have",
            r"unknown (?:c10d )?backend",
        ),
    ),
    Rule(
        F.CONFIG,
        Tier.OWN,
        "the configuration is not valid",
        (
            "expected, but not set",
            r"\bvalidationerror\b",
            r"\d validation errors? for",
            "missingmandatoryvalue",
            r"\bconfig\w*error: ",
            r"\b(?:toml|yaml|json)decodeerror",
            r"\b(?:scanner|parser|composer)error: ",
            "configcompositionexception",
            "overrideparseexception",
        ),
    ),
)

CRASH = (
    Rule(
        F.CRASH,
        Tier.OWN,
        "the program faulted on the device",
        (
            "illegal memory access",
            "device-side assert",
            "(?:unspecified|unknown) launch failure",
            r"cudaerror(?:launchfailure|illegaladdress|assert|misalignedaddress)",
            r"hiperror(?:launchfailure|illegaladdress|assert)",
            "misaligned address",
            "illegal instruction was",
            "memory access fault by gpu",
            r"hsa_status_error_(?:exception|memory)\w*",
            "invalid program counter",
            "hardware stack error",
        ),
    ),
    Rule(F.CRASH, Tier.OWN, "killed by signal 11 (SIGSEGV)", _died("sigsegv", "segmentation fault", 11)),
    Rule(F.CRASH, Tier.OWN, "killed by signal 7 (SIGBUS)", _died("sigbus", "bus error", 7)),
    Rule(F.CRASH, Tier.OWN, "killed by signal 8 (SIGFPE)", _died("sigfpe", "floating point exception", 8)),
    Rule(F.CRASH, Tier.OWN, "killed by signal 4 (SIGILL)", _died("sigill", "illegal instruction", 4)),
    Rule(
        F.CRASH,
        Tier.OWN,
        "the process died of a memory fault",
        (
            "segmentation fault",
            r"\bsegfault at ",
            "stack smashing detected",
            "double free or corruption",
            r"\bfree\(\): invalid",
            "corrupted size vs",
            r"munmap_chunk\(\): invalid",
            "general protection fault",
        ),
    ),
    Rule(
        F.CRASH,
        Tier.TRACE,
        "a device error",
        (
            r"\b(?:cuda|hip) error: \S",
            r"\b(?:cuda|hip) failure\b",
            r"\bcudnn_status_(?!success)\w+",
            r"\bcublas_status_(?!success)\w+",
            r"\bmiopenstatus(?!success)\w+",
        ),
    ),
    Rule(F.CRASH, Tier.TRACE, "an assertion of a library failed", (r"assertion ['`\"(].{0,200} failed",)),
    Rule(F.CRASH, Tier.ABORT, "an uncaught C++ exception", ("terminate called",)),
    Rule(F.CRASH, Tier.ABORT, "killed by signal 6 (SIGABRT)", _died("sigabrt", "aborted", 6)),
    Rule(
        F.CRASH,
        Tier.ABORT,
        "NCCL failed and names no cause",
        (
            "ncclinternalerror",
            "internal error - please report",
            "internal check failed",
            "unhandled cuda error",
            "ncclunhandledcudaerror",
            "ncclinvalidargument",
        ),
    ),
    Rule(F.CRASH, Tier.KILL, "killed by signal 9 (SIGKILL)", _died("sigkill", "killed", 9)),
    Rule(F.CRASH, Tier.KILL, "a worker process died", ("exited unexpectedly",)),
    Rule(
        F.CANCELLED,
        Tier.TERM,
        "asked to stop by SIGTERM",
        (
            *_died("sigterm", "terminated", 15),
            r"(?:received|got|caught) (?:signals?\.)?sigterm",
            r"received (?:signal )?15\b",
            r"got signal: 15\b",
        ),
    ),
    Rule(
        F.CANCELLED,
        Tier.TERM,
        "interrupted",
        (
            r"^keyboardinterrupt\b",
            r"signals\.sigint\b",
            r"got signal: 2\b",
            r"interrupt \(one more within",
            "job step aborted",
        ),
    ),
    Rule(
        F.CRASH,
        Tier.EXIT,
        "a process ended with an error code",
        (
            r"exit ?code[ :=(]*(?!-?15\b|143\b)-?[1-9]",
            r"exited with code [1-9]",
            "childfailederror",
            "non-?zero exit",
            r"state[=: ]+failed\b",
            r"return code[ :=]*-?[1-9]",
        ),
    ),
    Rule(
        F.CRASH,
        Tier.TERM,
        "srun reports an error",
        (r"\bsrun: error: (?!.{0,80}(?:: terminated|step aborted|timed out waiting|eio_))",),
    ),
    Rule(
        F.CRASH, Tier.ABORT, "MPI gave up", ("mpi_abort was invoked", r"\bfatal error in \w*mpi\w*_init", "mpich error")
    ),
)

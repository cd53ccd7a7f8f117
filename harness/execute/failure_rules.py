"""The table of texts that decide a failure class; ``classify`` holds the engine that applies it.

Each text is a regular expression for lower-case ASCII. A blank in it matches a line break too, since terminals wrap
long messages; ``.`` does not; ``^`` skips a label such as ``[rank3]:`` or ``7:``. A text must hold a literal run of
three characters outside any group, by which the engine finds its place, and no alternation outside groups.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from harness.failure import FailureClass as F


class Tier(IntEnum):
    """How close to the root cause a text is: the lowest tier found decides, then the earliest line."""

    NODE = 0  # the node went; what its processes said before is a consequence
    MACHINE = 1  # the kernel, the driver or the scheduler saw the cause
    OWN = 2  # the process, or the launcher, named its own cause
    TRACE = 3  # the process died of an exception or a device error that no other rule knows
    NET = 4  # the network itself failed
    HANG = 5  # ranks waited in vain
    STOP = 6  # the scheduler ended the job and gave a reason
    KILL = 7  # a process was killed, nobody says why
    ABORT = 8  # a process aborted itself, which a watchdog does too
    PEER = 9  # another process went away
    EXIT = 10  # something failed, that is all
    CANCEL = 11  # a step was cancelled and no reason given; srun says so after a task failed, too
    TERM = 12  # asked to stop, nobody says by whom
    NOTE = 13  # a warning from a device; the run goes on
    LOST = 14  # nothing is known


# Whatever comes after a line of the tier on the left is its consequence if it is of a tier on the right.
CONSEQUENCES: dict[Tier, frozenset[Tier]] = {
    Tier.STOP: frozenset({Tier.OWN, Tier.TRACE, Tier.NET, Tier.HANG}),
    Tier.CANCEL: frozenset(Tier) - {Tier.NODE, Tier.MACHINE, Tier.STOP, Tier.CANCEL, Tier.NOTE},
    Tier.KILL: frozenset({Tier.NET, Tier.HANG}),
    Tier.TERM: frozenset({Tier.EXIT}),
}

# Between ranks of one run there is no order of lines. A rank that was killed leaves the others to wait, so it comes
# before them; one that only ended with an error comes before those that saw a peer go.
TIERS_BETWEEN_RANKS: tuple[Tier, ...] = (
    *(Tier.NODE, Tier.MACHINE, Tier.OWN, Tier.TRACE, Tier.KILL, Tier.NET, Tier.HANG, Tier.STOP, Tier.ABORT),
    *(Tier.CANCEL, Tier.EXIT, Tier.LOST, Tier.PEER, Tier.TERM, Tier.NOTE),
)


class Rule(NamedTuple):
    """Texts of one meaning: the class, how close to the root they are, the reason to show, the texts."""

    failure: F
    tier: Tier
    why: str
    texts: tuple[str, ...]


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


_NODE = (
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

_HOST_MEMORY = (
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

_DEVICE_MEMORY = (
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

_HARDWARE = (
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

_CONTROLLER = r"(?:socket timed out|zero bytes were|unable to contact slurm|connection refused|communication connection|temporarily unable|unexpected message|protocol authentication|connection timed out)"  # noqa: E501

_REQUEST = (
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

_STOP = (
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

_SET_UP = (
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

_CRASH = (
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

_NETWORK = (
    Rule(
        F.NETWORK,
        Tier.NET,
        "a host cannot be reached",
        (
            "no route to host",
            "network is unreachable",
            "host is unreachable",
            "name or service not known",
            "failure in name resolution",
            "could not resolve host",
            "failed to resolve",
            "no address associated with",
            "connection timed out",
            "network is down",
            r"link (?:is|went) down",
        ),
    ),
    Rule(
        F.NETWORK,
        Tier.NET,
        "the fabric reported an error",
        (
            r"got completion .{0,120}\b(?:error|status)",
            "retry count(?:er)? exceeded",
            r"\bibv_wc_(?!success)\w+_err",
            "got async (?:fatal )?event",
            r"\bport error",
            "ibv_poll_cq.{0,60}(?:fail|error)",
            "fi_cq_readerr",
            r"\bucx +error",
            r"net/ofi .{0,120}(?:\berror\b|(?<!initialization) failed|timed out)",
            "lost communication with a remote daemon",
            r"\blibfabric:.{0,120}(?:error|failed)",
        ),
    ),
    Rule(
        F.NETWORK,
        Tier.NET,
        "a connection could not be made",
        (
            "client socket has (?:timed out|failed)",
            "connectfullmesh failed",
            r"failed to connect to .{0,80}(?:timed out|after \d)",
            "failed to listen on any local",
        ),
    ),
    Rule(F.NETWORK, Tier.PEER, "a system call of NCCL's failed", ("ncclsystemerror", "unhandled system error")),
    Rule(
        F.NETWORK,
        Tier.PEER,
        "another process closed the connection",
        (
            "ncclremoteerror",
            r"remote process (?:exited|has (?:exited|terminated))",
            r"(?:closed|reset) by (?:remote )?peer",
            r"(?:closed|reset) by localrank",
            "socket closed",
            "broken ?pipe",
            "connection refused",
            "connection reset",
            r"connection (?:was )?(?:aborted|closed)",
            "communicator (?:was )?aborted",
            "rendezvousconnectionerror",
            "connection to the c10d store",
            "(?:recvvalue|sendbytes) failed",
            "remote end closed",
            "errors while waiting for send/recv",
            r"\beoferror\b",
        ),
    ),
)

_HANG = (
    Rule(
        F.COLLECTIVE_TIMEOUT,
        Tier.HANG,
        "a collective's watchdog timed out",
        (
            "before timing out",
            "watchdog caught collective",
            "watchdog got stuck",
            "heartbeat monitor timed out",
            "nccl operations have failed or timed out",
            "timeout at (?:nccl work|collective)",
            "detected by watchdog at work",
            "due to a collective timeout",
        ),
    ),
    Rule(
        F.COLLECTIVE_TIMEOUT,
        Tier.HANG,
        "ranks called different collectives",
        (
            "didn.t join collective",
            "mismatch between collectives",
            r"collectives? (?:\w+ )?(?:mismatch|desync)",
            "ranks that caused the desync",
            "failed to pass monitoredbarrier",
        ),
    ),
    Rule(
        F.COLLECTIVE_TIMEOUT,
        Tier.HANG,
        "ranks waited for each other until a timeout",
        (
            "timed out waiting(?! for job step)",
            "timed out after .{0,40}waiting for clients",
            "wait timeout after",
            r"\bsocket timeout\b(?! *[=:] *\d)",
            "timed out initializing",
            "timeout caused pair closure",
            r"\b(?:rendezvous)?timeouterror\b",
            "received a timeout signal",
            r"\b(?:collective|barrier|all_?reduce|broadcast|rendezvous|recv|send)\b.{0,60}timed out",
            "operation timed out",
            r"timeout waiting for (?:key|rank|store|all)",
        ),
    ),
)

RULES: tuple[Rule, ...] = (
    *_NODE,
    *_DEVICE_MEMORY,
    *_HOST_MEMORY,
    *_HARDWARE,
    *_REQUEST,
    *_STOP,
    *_SET_UP,
    *_CRASH,
    *_NETWORK,
    *_HANG,
)

# Lines that name trouble and mean none: warnings, information, what is tried again, what Python ignores.
NOISE: tuple[str, ...] = (
    "nccl info",
    r"warning\b(?!.{0,300}(?:death signal|this job is|because: ))",
    r"\[w\d* (?:\d\d:|\w+\.cpp)",
    r"^w[01]\d{3} \d\d:(?!.{0,300}death signal)",
    r"\bretrying\b",
    r"\bwill retry\b",
    "retry loop",
    r"^wandb:",
    "cannot be preloaded",
    r"^\(errno: ",  # the wrapped end of a warning; a wrapped error decides by its first line
    r"^except [\w.(]",
)

# Exceptions that say the user's settings are wrong rather than that the program is.
CONFIG_EXCEPTIONS = re.compile(r"(?:^|\.)(?:ValueError|UsageError|UnknownNameError|IllegalLayoutError|\w*Config\w*)$")
# Exceptions that pass on what happened in another process.
WRAPPER_EXCEPTIONS = re.compile(
    r"(?:ChildFailedError|Process(?:Raised|Exited)Exception|CalledProcessError|SystemExit|SignalException"
    r"|KeyboardInterrupt|UncompletedJobError|FailedJobError|RayTaskError\S*)$"
)

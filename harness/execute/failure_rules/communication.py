"""Texts by which ranks say that the network failed, or that they waited in vain."""

from __future__ import annotations

from harness.execute.failure_rules.rule import Rule, Tier
from harness.failure import FailureClass as F

NETWORK = (
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

HANG = (
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

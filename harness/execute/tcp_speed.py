"""How fast bytes go from one process to another over TCP: the least that gloo, and NCCL without RDMA, can count on."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from harness.base import Frozen

STREAMS = 4
PINGS = 21
SEND_S = 0.5
LIMIT_S = 20.0
CHUNK_BYTES = 1 << 20
METHOD = f"TCP, {STREAMS} connections"
_TOKEN_BYTES = 16
_GO = b"g"


class TcpSpeed(Frozen):
    """One direction; ``latency_s`` is half of the median round trip of one byte."""

    bandwidth_bytes_per_s: float
    latency_s: float


def token_of(*words: object) -> bytes:
    """What a sender says first, so that nobody else's connection is measured."""
    return hashlib.sha256("|".join(map(str, words)).encode()).digest()[:_TOKEN_BYTES]


def receive(server: socket.socket, token: bytes) -> TcpSpeed:
    """Measure what one sender sends to a listening socket.

    Raises:
        OSError: it does not come, or breaks off.
    """
    server.settimeout(LIMIT_S)
    streams: list[socket.socket] = []
    try:
        while len(streams) < STREAMS:
            stream, _ = server.accept()
            stream.settimeout(LIMIT_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _read(stream, _TOKEN_BYTES) == token:
                streams.append(stream)
            else:
                stream.close()
        latency_s = median(_round_trip(streams[0]) for _ in range(PINGS)) / 2
        return TcpSpeed(bandwidth_bytes_per_s=_drain(streams), latency_s=latency_s)
    finally:
        for stream in streams:
            stream.close()


def send(addresses: Sequence[str], port: int, token: bytes, send_s: float = SEND_S) -> None:
    """Send for ``send_s`` seconds to the first of ``addresses`` that takes a connection.

    Raises:
        OSError: none does, or the receiver breaks off.
    """
    first = _connect(addresses, port)
    streams = [first]
    try:
        streams += [socket.create_connection(first.getpeername()[:2], LIMIT_S) for _ in range(STREAMS - 1)]
        for stream in streams:
            stream.settimeout(LIMIT_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.sendall(token)
        for _ in range(PINGS):
            first.sendall(_read(first, 1))
        _all_at_once(streams, lambda stream: _pour(stream, send_s))
    finally:
        for stream in streams:
            stream.close()


def loopback_speed() -> TcpSpeed:
    """Between two threads of this process over the loopback interface, as ranks of one host meet with gloo."""
    token = token_of("loopback", time.monotonic_ns())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with ThreadPoolExecutor(1) as pool:
            pool.submit(send, ("127.0.0.1",), port, token)
            return receive(server, token)


def _connect(addresses: Sequence[str], port: int) -> socket.socket:
    error: OSError = OSError("no address to connect to")
    for address in addresses:
        try:
            return socket.create_connection((address, port), timeout=3.0)
        except OSError as found:
            error = found
    raise error


def _read(stream: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        got = stream.recv(count - len(data))
        if not got:
            raise ConnectionError("the other side closed the connection")
        data += got
    return data


def _round_trip(stream: socket.socket) -> float:
    begin = time.perf_counter()
    stream.sendall(b"p")
    _read(stream, 1)
    return time.perf_counter() - begin


def _pour(stream: socket.socket, send_s: float) -> None:
    _read(stream, len(_GO))
    chunk = memoryview(bytes(CHUNK_BYTES))
    deadline = time.perf_counter() + send_s
    while time.perf_counter() < deadline:
        stream.sendall(chunk)
    stream.shutdown(socket.SHUT_WR)


@dataclass
class _Tally:
    """What one stream brought after its first piece, whose arrival starts the clock."""

    begin: float = 0.0
    end: float = 0.0
    count: int = 0


def _drain(streams: Sequence[socket.socket]) -> float:
    """Bytes a second of all streams together."""
    tallies = {stream: _Tally() for stream in streams}
    _all_at_once(streams, lambda stream: _count(stream, tallies[stream]))
    used = [tally for tally in tallies.values() if tally.count]
    if not used:
        raise ConnectionError("nothing was sent")
    took_s = max(tally.end for tally in used) - min(tally.begin for tally in used)
    return sum(tally.count for tally in used) / took_s


def _count(stream: socket.socket, tally: _Tally) -> None:
    buffer = bytearray(CHUNK_BYTES)
    stream.sendall(_GO)
    stream.recv_into(buffer)
    tally.begin = time.perf_counter()
    while got := stream.recv_into(buffer):
        tally.count += got
        tally.end = time.perf_counter()


def _all_at_once(streams: Sequence[socket.socket], do: Callable[[socket.socket], None]) -> None:
    with ThreadPoolExecutor(len(streams)) as pool:
        for one in [pool.submit(do, stream) for stream in streams]:
            one.result()

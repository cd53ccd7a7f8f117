"""``transfer.py send|receive ADDRESS BYTES``: over TCP; the receiver prints how fast they came, in Mbit/s."""

from __future__ import annotations

import socket
import sys
import time

PORT = 5001
CHUNK = 1 << 16


def send(address: str, total: int) -> None:
    with socket.create_connection((address, PORT), timeout=20) as connection:
        for _ in range(total // CHUNK):
            connection.sendall(bytes(CHUNK))


def receive(address: str, total: int) -> None:
    with socket.create_server((address, PORT)) as server:
        server.settimeout(20)
        print("listening", flush=True)
        connection, _ = server.accept()
        with connection:
            left = total - len(connection.recv(CHUNK))
            begin = time.perf_counter()
            timed = left
            while left > 0 and (got := len(connection.recv(CHUNK))):
                left -= got
            print(timed * 8 / 1e6 / (time.perf_counter() - begin))


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))

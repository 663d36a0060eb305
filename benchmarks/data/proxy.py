"""A proxy with the behaviour of S3: 30 ms to the first byte, then 40 MB/s per connection.

    python -m benchmarks.data.proxy PORT

It forwards TCP connections to a port of the loopback interface, prints its own port, and ends with
its standard input.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

LATENCY = 0.03
BYTES_PER_SECOND = 40e6


def forward(client: socket.socket, port: int) -> None:
    """Forward one connection until either side closes it."""
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        asked = threading.Event()
        threading.Thread(target=send_requests, args=(client, server, asked), daemon=True).start()
        due = 0.0
        while content := server.recv(1 << 18):
            if asked.is_set():
                asked.clear()
                due = time.perf_counter() + LATENCY
            due += len(content) / BYTES_PER_SECOND
            time.sleep(max(due - time.perf_counter(), 0.0))
            client.sendall(content)


def send_requests(client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
    """Forward what the client sends, and note that it did."""
    try:
        while content := client.recv(1 << 16):
            asked.set()
            server.sendall(content)
        server.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The other side has closed the connection.
        return


def main() -> None:
    """Accept connections until standard input ends."""
    port = int(sys.argv[1])
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        print(listener.getsockname()[1], flush=True)

        def accept() -> None:
            while True:
                client, _ = listener.accept()
                threading.Thread(target=forward, args=(client, port), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()

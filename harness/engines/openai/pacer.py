"""A stream whose events contain their send times; run as a program, standard library only.

It prints its port, serves one client, and ends with it: when the client is gone, however it ended, a write fails.
"""

import random
import socket
import time

LONGEST_WAIT_S = 0.01  # until the next event; random each time, so that it does not synchronise with anything
PATIENCE_S = 20.0  # for the client


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        print(server.getsockname()[1], flush=True)
        client, _ = server.accept()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            time.sleep(random.uniform(0, LONGEST_WAIT_S))
            event = b"data: %d\n\n" % time.monotonic_ns()
            client.sendall(b"%x\r\n%s\r\n" % (len(event), event))


if __name__ == "__main__":
    try:
        main()
    except OSError:
        pass  # the client is gone

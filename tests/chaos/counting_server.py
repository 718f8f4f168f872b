"""A server that does nothing but write down when each call came in, and whose it was: ``counting_server.py LOG``.

It prints its port. The log is one line for each call: the instant at which it came in, at which its caller was let
through (both by the machine's monotonic clock), and the name of the caller.
"""

import asyncio
import sys
import time


async def main(path):
    with open(path, "w", buffering=1) as log:

        class Counting(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport, self.seen = transport, b""

            def data_received(self, data):
                now = time.monotonic()
                self.seen += data
                while (end := self.seen.find(b"\r\n\r\n")) >= 0:
                    name, left_at = self.seen.split(b" ", 2)[1].decode().strip("/").split("/")
                    self.seen = self.seen[end + 4 :]
                    log.write(f"{now:.6f} {left_at} {name}\n")
                    self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        server = await asyncio.get_running_loop().create_server(Counting, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main(sys.argv[1]))

"""A line to a server that can be slow, cut, or led to another server: a TCP proxy of its own process.

slow_line.py PORT     writes the port it listens at, then obeys lines on stdin:

    delay SECONDS     every answer comes so much later
    hold              nothing gets through, either way, and connections stay open, as when a network is cut
    go                ... and now all of it arrives, also what its sender no longer waits for
    to PORT           existing connections are cut; new ones are led there
"""

import asyncio
import contextlib
import sys


class Line:
    def __init__(self, port):
        self.port, self.delay, self.open = port, 0.0, set()
        self.through = asyncio.Event()
        self.through.set()

    async def serve(self, reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, inner_writer}
        self.open |= ends
        pumps = [
            asyncio.create_task(self.pump(reader, inner_writer, slow=False)),
            asyncio.create_task(self.pump(inner_reader, writer, slow=True)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.open -= ends
        for end in ends:
            end.transport.abort()
        for pump in pumps:
            pump.cancel()

    async def pump(self, reader, writer, *, slow):
        with contextlib.suppress(OSError):
            while piece := await reader.read(1 << 16):
                if slow and self.delay:
                    await asyncio.sleep(self.delay)
                await self.through.wait()
                writer.write(piece)
                await writer.drain()

    def lead_to(self, port):
        self.port = port
        for end in self.open:
            end.transport.abort()


async def main(port):
    line = Line(port)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    said = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    while words := (await said.readline()).decode().split():
        match words:
            case "delay", seconds:
                line.delay = float(seconds)
            case ("hold",):
                line.through.clear()
            case ("go",):
                line.through.set()
            case "to", port:
                line.lead_to(int(port))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

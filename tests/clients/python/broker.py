"""Starts the real broker on a free port, ends it with the test, and puts a proxy before it that cuts connections."""

import asyncio
import collections
import json
import os
import pathlib
import random
import socket
import struct
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = ROOT / os.environ.get("RINGMAIN_BINARY", "target/debug/ringmain")
# Far above what any of it takes, so that a loaded machine fails nothing; only a fault makes a test wait this long.
LIMIT_SECONDS = 30
LOG_LINES_MAX = 200


async def start_broker(case, *flags, port=0):
    """Starts a broker that ends with the test case."""
    folder = tempfile.TemporaryDirectory(prefix="ringmain-python-")
    case.addCleanup(folder.cleanup)
    broker = Broker(folder.name, ("--port", str(port), *flags))
    await broker.start()
    case.addAsyncCleanup(broker.kill)
    await asyncio.wait_for(broker.listening, LIMIT_SECONDS)
    return broker


def lasting_port():
    """A free port that stays free while a broker is down: below those that systems give out by themselves."""
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Broker:
    """A broker in its folder."""

    def __init__(self, folder, flags):
        self.folder = folder
        self.flags = flags
        self.log = collections.deque(maxlen=LOG_LINES_MAX)
        self.process = None
        self.port = None

    async def start(self):
        """Starts the program, which may have run in the folder before."""
        self.process = await asyncio.create_subprocess_exec(
            BINARY,
            "serve",
            "--log-format",
            "json",
            *self.flags,
            cwd=self.folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self.listening = asyncio.get_running_loop().create_future()
        self.reading = asyncio.create_task(self.read_log())

    async def kill_and_restart(self):
        """What a lost process and its supervisor do: SIGKILL, and the same command again."""
        await self.kill()
        await self.start()
        await asyncio.wait_for(self.listening, LIMIT_SECONDS)

    async def read_log(self):
        """Reads for ever, so that the broker never waits on a full pipe."""
        async for line in self.process.stderr:
            self.log.append(line.decode())
            fields = json.loads(line).get("fields", {})
            if fields.get("message") == "listening":
                self.port = int(fields["address"].rpartition(":")[2])
                self.listening.set_result(None)
        if not self.listening.done():
            self.listening.set_exception(AssertionError("the broker ended:\n" + "".join(self.log)))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.reading

    async def request(self, session, path):
        """The data of a GET that must succeed, by a session of aiohttp."""
        async with session.get(self.url + path) as response:
            answer = await response.json()
            assert response.status == 200, (path, response.status, answer)
            return answer["data"]


async def start_proxy(case, broker):
    """Starts a proxy to the broker that ends with the test case."""
    proxy = Proxy(broker.port)
    server = await asyncio.start_server(proxy.forward, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]

    async def end():
        server.close()
        proxy.cut()

    case.addAsyncCleanup(end)
    return proxy


class Proxy:
    """Forwards connections to a port of this machine until they are cut."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.port = None
        self.is_refusing = False
        self.writers = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def forward(self, client_reader, client_writer):
        if self.is_refusing:
            client_writer.transport.abort()
            return
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            client_writer.transport.abort()
            return
        pair = {client_writer, target_writer}
        self.writers |= pair
        pumps = [pump(client_reader, target_writer), pump(target_reader, client_writer)]
        await asyncio.gather(*pumps)
        self.writers -= pair

    def cut(self):
        """Resets every connection, as a lost network would; says how many there were."""
        writers, self.writers = self.writers, set()
        for writer in writers:
            # Lingering for zero seconds makes the close a reset.
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return len(writers) // 2


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()


async def wait_until(what, condition):
    """Polls a condition, plain or to be awaited, until it holds; gives its value."""
    until = time.monotonic() + LIMIT_SECONDS
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < until, f"waited {LIMIT_SECONDS} s in vain until {what}"
        await asyncio.sleep(0.01)

"""A test case with a broker, streamq's asynchronous client, and consumers whose messages are collected."""

import asyncio
import unittest

import streamq

from broker import LIMIT_SECONDS, start_broker, wait_until

# Every byte there is, so that nothing on the way may take payloads for text.
BINARY = bytes(range(256))


class Reader:
    """Iterates over a consumer in a task of its own. The client gives no other way to stop waiting for a message."""

    def __init__(self, consumer, acknowledges=lambda message: False):
        self.consumer = consumer
        self.messages = []
        self.acknowledges = acknowledges
        self.task = asyncio.create_task(self.read())

    async def read(self):
        async for message in self.consumer:
            self.messages.append(message)
            if self.acknowledges(message):
                await self.consumer.ack(message.offset)

    @property
    def offsets(self):
        return [message.offset for message in self.messages]

    async def wait_for(self, count):
        """Waits until that many messages came; gives their offsets."""
        await wait_until(f"{count} messages came", lambda: self.task.done() or len(self.messages) >= count)
        if self.task.done():
            self.task.result()
        return self.offsets

    async def stop(self):
        """Ends reading; the client's connection goes with it."""
        await self.consumer.close()
        self.task.cancel()
        await asyncio.wait([self.task], timeout=LIMIT_SECONDS)


class StreamqCase(unittest.IsolatedAsyncioTestCase):
    """Each test has its own broker and a client of it."""

    async def asyncSetUp(self):
        # A client that is silent for four of them is cut: longer than the machine may hold one up.
        self.broker = await start_broker(self, "--heartbeat-ms", "1000")
        self.client = await self.client_of(self.broker.url)

    async def client_of(self, url):
        """A client that comes back fast after a cut."""
        client = streamq.AsyncClient(url, reconnect_delay=0.05)
        await client.open()
        self.addAsyncCleanup(client.close)
        return client

    def read(self, client, topic, acknowledges=lambda message: False, **options):
        """Subscribes and collects what comes."""
        reader = Reader(client.subscribe(topic, **options), acknowledges)
        self.addAsyncCleanup(reader.stop)
        return reader

    async def publish(self, topic, numbers):
        for number in numbers:
            result = await self.client.publish(topic, str(number).encode())
            self.assertEqual(result.offset, number)

    async def wait_for_subscribers(self, topic, count):
        async def stands():
            return (await self.client.get_topic(topic)).subscriber_count == count

        await wait_until(f"{count} subscribers count", stands)

    async def group(self, topic, group):
        """How a group stands, which streamq's clients do not ask."""
        return await self.broker.request(self.client._session, f"/topics/{topic}/groups/{group}")

    async def wait_for_committed(self, topic, group, committed):
        async def stands():
            return (await self.group(topic, group))["committed_offset"] == committed

        await wait_until(f"{committed} is committed", stands)

    async def cut_alone(self, proxy, topic):
        """Cuts the only subscriber or member of a topic and lets it come back once the broker knows that it is gone."""
        proxy.is_refusing = True
        self.assertEqual(proxy.cut(), 1)
        await self.wait_for_subscribers(topic, 0)
        proxy.is_refusing = False
        await self.wait_for_subscribers(topic, 1)

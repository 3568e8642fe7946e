"""Promise: streamq's Python client creates, lists, describes and deletes topics, and publishes any bytes, unchanged."""

import asyncio
import datetime
import unittest

import streamq

from broker import start_broker
from streamq_case import BINARY, StreamqCase


class Topics(StreamqCase):
    async def test_a_topic_lives_and_dies(self):
        self.assertEqual(await self.client.list_topics(), [])
        await self.client.create_topic("payments")
        empty = streamq.TopicInfo(name="payments", message_count=0, subscriber_count=0, latest_offset=-1)
        self.assertEqual(await self.client.get_topic("payments"), empty)
        await self.client.create_topic("orders")
        await self.publish("payments", range(3))
        names = [topic.name for topic in await self.client.list_topics()]
        self.assertEqual(names, ["orders", "payments"])
        stats = await self.client.get_topic("payments")
        self.assertEqual((stats.message_count, stats.latest_offset), (3, 2))
        await self.client.delete_topic("payments")
        self.assertEqual([topic.name for topic in await self.client.list_topics()], ["orders"])

    async def test_faults_become_the_clients_own_exceptions(self):
        await self.client.create_topic("t")
        with self.assertRaises(streamq.StreamqConflict):
            await self.client.create_topic("t")
        with self.assertRaises(streamq.StreamqNotFound):
            await self.client.get_topic("none")
        with self.assertRaises(streamq.StreamqNotFound):
            await self.client.delete_topic("none")
        with self.assertRaises(streamq.StreamqNotFound):
            await self.client.publish("none", b"x")
        with self.assertRaises(streamq.StreamqAPIError) as raised:
            await self.client.create_topic("")
        self.assertIn("400", str(raised.exception))

    async def test_a_publish_says_where_and_when(self):
        await self.client.create_topic("t")
        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
        result = await self.client.publish("t", BINARY)
        self.assertEqual((result.offset, result.topic), (0, "t"))
        after = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
        self.assertTrue(before <= result.timestamp <= after, result)


class Synchronous(StreamqCase):
    """The client without `await` runs the other one on a loop in a thread of its own."""

    def session(self, url):
        payloads = [BINARY, b"", "ü".encode()]
        with streamq.SyncClient(url) as client:
            client.create_topic("t")
            with self.assertRaises(streamq.StreamqConflict):
                client.create_topic("t")
            with self.assertRaises(streamq.StreamqNotFound):
                client.get_topic("none")
            for payload in payloads:
                client.publish("t", payload)
            self.assertEqual(client.get_topic("t").message_count, 3)
            self.assertEqual([topic.name for topic in client.list_topics()], ["t"])
            for protocol in ("ws", "sse"):
                with client.subscribe("t", from_offset=0, protocol=protocol) as consumer:
                    got = [next(consumer) for _ in payloads]
                self.assertEqual([message.payload for message in got], payloads)
            with client.subscribe("t", group="g", from_offset=0) as consumer:
                for _ in payloads:
                    consumer.ack(next(consumer).offset)
            client.delete_topic("t")

    async def test_the_client_for_plain_code(self):
        await asyncio.to_thread(self.session, self.broker.url)


class Limits(unittest.IsolatedAsyncioTestCase):
    async def test_too_large_a_message_is_an_error_of_the_broker(self):
        broker = await start_broker(self, "--max-message-bytes", "1000")
        async with streamq.AsyncClient(broker.url) as client:
            await client.create_topic("t")
            with self.assertRaises(streamq.StreamqAPIError) as raised:
                await client.publish("t", bytes(2000))
            self.assertIn("413", str(raised.exception))


if __name__ == "__main__":
    unittest.main()

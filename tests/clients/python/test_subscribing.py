"""Promise: streamq's Python client reads topics over WebSocket and SSE, live and replayed, and comes back after a cut."""

import time
import unittest

from broker import start_proxy, wait_until
from streamq_case import BINARY, StreamqCase

PROTOCOLS = ("ws", "sse")


class Broadcast(StreamqCase):
    async def test_live_messages_arrive_whole(self):
        for protocol in PROTOCOLS:
            with self.subTest(protocol):
                topic = f"live-{protocol}"
                await self.client.create_topic(topic)
                await self.publish(topic, range(3))
                reader = self.read(self.client, topic, protocol=protocol)
                await self.wait_for_subscribers(topic, 1)
                result = await self.client.publish(topic, BINARY)
                await self.publish(topic, range(4, 30))
                self.assertEqual(await reader.wait_for(27), list(range(3, 30)))
                first = reader.messages[0]
                self.assertEqual((first.payload, first.topic, first.timestamp), (BINARY, topic, result.timestamp))
                self.assertEqual(len({message.id for message in reader.messages}), 27, "ids are unique")
                await reader.stop()
                await self.wait_for_subscribers(topic, 0)

    async def test_a_replay_goes_over_into_live(self):
        for protocol in PROTOCOLS:
            with self.subTest(protocol):
                topic = f"replay-{protocol}"
                await self.client.create_topic(topic)
                await self.publish(topic, range(50))
                whole = self.read(self.client, topic, protocol=protocol, from_offset=0)
                part = self.read(self.client, topic, protocol=protocol, from_offset=40)
                await self.publish(topic, range(50, 100))
                self.assertEqual(await whole.wait_for(100), list(range(100)))
                self.assertEqual(await part.wait_for(60), list(range(40, 100)))
                self.assertEqual([message.payload for message in whole.messages], [b"%d" % n for n in range(100)])

    async def test_two_subscribers_see_everything(self):
        await self.client.create_topic("t")
        readers = [self.read(self.client, "t", protocol=protocol) for protocol in PROTOCOLS]
        await self.wait_for_subscribers("t", 2)
        await self.publish("t", range(20))
        for reader in readers:
            self.assertEqual(await reader.wait_for(20), list(range(20)))

    async def test_after_a_cut_it_comes_back_to_where_it_asks(self):
        # The client brings no cursor back: it repeats its query, and so sees all of it again.
        for protocol in PROTOCOLS:
            with self.subTest(protocol):
                topic = f"cut-{protocol}"
                await self.client.create_topic(topic)
                await self.publish(topic, range(10))
                proxy = await start_proxy(self, self.broker)
                client = await self.client_of(proxy.url)
                reader = self.read(client, topic, protocol=protocol, from_offset=5)
                self.assertEqual(await reader.wait_for(5), list(range(5, 10)))
                self.assertGreaterEqual(proxy.cut(), 1)
                self.assertEqual(await reader.wait_for(10), [*range(5, 10), *range(5, 10)])
                await self.publish(topic, range(10, 12))
                self.assertEqual((await reader.wait_for(12))[10:], [10, 11])

    async def test_a_deleted_topic_lets_go_of_the_client(self):
        for protocol in PROTOCOLS:
            with self.subTest(protocol):
                topic = f"gone-{protocol}"
                await self.client.create_topic(topic)
                await self.publish(topic, range(2))
                reader = self.read(self.client, topic, protocol=protocol, from_offset=0)
                await reader.wait_for(2)
                await self.client.delete_topic(topic)
                # It tries again until the topic is there again, and takes nothing for a message meanwhile.
                await self.client.create_topic(topic)
                await self.wait_for_subscribers(topic, 1)
                await self.publish(topic, range(1))
                self.assertEqual(await reader.wait_for(3), [0, 1, 0])
                self.assertEqual([message.payload for message in reader.messages], [b"0", b"1", b"0"])

    async def test_a_gap_is_not_taken_for_a_message(self):
        await self.client.create_topic("t")
        await self.publish("t", range(1010))
        for protocol in PROTOCOLS:
            with self.subTest(protocol):
                reader = self.read(self.client, "t", protocol=protocol, from_offset=3)
                self.assertEqual(await reader.wait_for(1000), list(range(10, 1010)))
                await reader.stop()

    async def test_signs_of_life_are_not_taken_for_messages(self):
        # The broker of these tests gives one every second.
        await self.client.create_topic("t")
        readers = [self.read(self.client, "t", protocol=protocol) for protocol in PROTOCOLS]
        await self.wait_for_subscribers("t", 2)
        started = time.monotonic()
        await wait_until("three heartbeats have passed", lambda: time.monotonic() > started + 3.5)
        await self.publish("t", range(1))
        for reader in readers:
            self.assertEqual(await reader.wait_for(1), [0])
            self.assertEqual(reader.messages[0].payload, b"0")


if __name__ == "__main__":
    unittest.main()

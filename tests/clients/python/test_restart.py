"""Promise: streamq's Python client lives through a broker that is killed and started again on the same port and folder."""

import unittest

from broker import lasting_port, start_broker
from streamq_case import BINARY, StreamqCase

# The client's own reader of lines takes no longer ones over SSE.
LARGE = bytes(60_000)


class Restart(StreamqCase):
    async def asyncSetUp(self):
        flags = ("--heartbeat-ms", "1000", "--retry-ms", "100", "--storage", "wal")
        self.broker = await start_broker(self, *flags, port=lasting_port())
        self.client = await self.client_of(self.broker.url)

    async def test_topics_and_messages_are_there(self):
        await self.client.create_topic("t")
        results = [await self.client.publish("t", payload) for payload in (b"", BINARY, LARGE)]
        for _ in range(2):
            await self.broker.kill_and_restart()
            topic = await self.client.get_topic("t")
            self.assertEqual((topic.message_count, topic.latest_offset), (3, 2))
            for protocol in ("ws", "sse"):
                reader = self.read(self.client, "t", protocol=protocol, from_offset=0)
                await reader.wait_for(3)
                self.assertEqual([message.payload for message in reader.messages], [b"", BINARY, LARGE])
                times = [message.timestamp for message in reader.messages]
                self.assertEqual(times, [result.timestamp for result in results])
                await reader.stop()
        self.assertEqual((await self.client.publish("t", b"next")).offset, 3)

    async def test_a_subscriber_comes_back_to_where_it_asks(self):
        # The client brings no cursor back: it repeats its query, and so sees all of it again.
        await self.client.create_topic("t")
        await self.publish("t", range(10))
        for protocol in ("ws", "sse"):
            reader = self.read(self.client, "t", protocol=protocol, from_offset=5)
            await reader.wait_for(5)
            await self.broker.kill_and_restart()
            self.assertEqual(await reader.wait_for(10), [*range(5, 10), *range(5, 10)])
            await reader.stop()

    async def test_a_group_goes_on_where_it_was(self):
        await self.client.create_topic("t")
        await self.publish("t", range(10))
        # It acknowledges the even ones only: the first odd one holds the committed offset.
        reader = self.read(self.client, "t", lambda message: message.offset % 2 == 0, group="g", from_offset=0)
        self.assertEqual(await reader.wait_for(10), list(range(10)))
        await self.wait_for_stored("t", "g", 1)
        await self.broker.kill_and_restart()
        self.assertEqual((await reader.wait_for(15))[10:], [1, 3, 5, 7, 9])
        for offset in (1, 3, 5, 7, 9):
            await reader.consumer.ack(offset)
        await self.wait_for_stored("t", "g", 10)
        reader.acknowledges = lambda message: True
        await self.broker.kill_and_restart()
        await self.wait_for_subscribers("t", 1)
        await self.publish("t", range(10, 13))
        self.assertEqual((await reader.wait_for(18))[15:], [10, 11, 12])

    async def test_members_share_on_after_many_kills(self):
        await self.client.create_topic("t")
        members = [self.read(self.client, "t", lambda message: True, group="g", from_offset=0) for _ in range(2)]
        await self.wait_for_subscribers("t", 2)
        total = 0
        # Fewer in all than the client's queue of acknowledgements holds: it drops what is beyond, if all come again at once.
        for _ in range(4):
            await self.publish("t", range(total, total + 12))
            total += 12
            await self.broker.kill_and_restart()
            await self.wait_for_subscribers("t", 2)
        await self.publish("t", range(total, total + 1))
        await self.wait_for_committed("t", "g", total + 1)
        self.assertEqual({*members[0].offsets, *members[1].offsets}, set(range(total + 1)), "each came at least once")

    async def test_a_publish_during_the_gap_fails_and_later_ones_go_on(self):
        await self.client.create_topic("t")
        await self.publish("t", range(3))
        await self.broker.kill()
        with self.assertRaises(Exception):
            await self.client.publish("t", b"nobody is there")
        await self.broker.kill_and_restart()
        await self.publish("t", range(3, 6))

    async def wait_for_stored(self, topic, group, committed):
        """Waits until that progress, which nobody asked an answer for, would survive a kill: a worker's answered fetch and
        acknowledgement come after it in the log."""
        await self.wait_for_committed(topic, group, committed)
        path = f"{self.broker.url}/topics/{topic}/groups/{group}/ack"
        async with self.client._session.post(path, json={"offsets": [0]}) as response:
            self.assertEqual(response.status, 200)


if __name__ == "__main__":
    unittest.main()

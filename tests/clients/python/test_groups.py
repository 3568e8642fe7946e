"""Promise: streamq's Python client shares a topic in groups, acknowledges, and gets again what it did not acknowledge."""

import unittest

from broker import start_proxy, wait_until
from streamq_case import StreamqCase


class Groups(StreamqCase):
    async def test_members_share_and_groups_do_not(self):
        await self.client.create_topic("t")
        members = [self.read(self.client, "t", lambda message: True, group="g", from_offset=0) for _ in range(2)]
        other = self.read(self.client, "t", lambda message: True, group="h", from_offset=0)
        await self.wait_for_subscribers("t", 3)
        await self.publish("t", range(100))
        await self.wait_for_committed("t", "g", 100)
        await self.wait_for_committed("t", "h", 100)
        self.assertEqual(sorted(members[0].offsets + members[1].offsets), list(range(100)))
        self.assertTrue(all(member.messages for member in members), "both had a share")
        self.assertEqual(other.offsets, list(range(100)))

    async def test_what_was_not_acknowledged_comes_again_and_what_was_does_not(self):
        await self.client.create_topic("t")
        await self.publish("t", range(10))
        proxy = await start_proxy(self, self.broker)
        client = await self.client_of(proxy.url)
        # It acknowledges the even ones only: the first odd one holds the committed offset.
        reader = self.read(client, "t", lambda message: message.offset % 2 == 0, group="g", from_offset=0)
        self.assertEqual(await reader.wait_for(10), list(range(10)))
        await self.wait_for_pending("t", "g", 5)
        self.assertEqual((await self.group("t", "g"))["committed_offset"], 1)
        await self.cut_alone(proxy, "t")
        self.assertEqual((await reader.wait_for(15))[10:], [1, 3, 5, 7, 9])
        # Now all of them, and after one more cut nothing comes again, though the query still says 0.
        for offset in (1, 3, 5, 7, 9):
            await reader.consumer.ack(offset)
        await self.wait_for_committed("t", "g", 10)
        reader.acknowledges = lambda message: True
        await self.cut_alone(proxy, "t")
        await self.publish("t", range(10, 13))
        self.assertEqual((await reader.wait_for(18))[15:], [10, 11, 12])
        await self.wait_for_committed("t", "g", 13)

    async def test_another_member_gets_what_the_first_left(self):
        await self.client.create_topic("t")
        await self.publish("t", range(6))
        first = self.read(self.client, "t", group="g", from_offset=0)
        await first.wait_for(6)
        await first.stop()
        await self.wait_for_subscribers("t", 0)
        second = self.read(self.client, "t", lambda message: True, group="g", from_offset=0)
        self.assertEqual(await second.wait_for(6), list(range(6)))
        await self.wait_for_committed("t", "g", 6)
        await second.stop()
        third = self.read(self.client, "t", lambda message: True, group="g", from_offset=0)
        await self.wait_for_subscribers("t", 1)
        await self.publish("t", range(6, 8))
        self.assertEqual(await third.wait_for(2), [6, 7])

    async def test_over_sse_a_sent_message_counts_as_acknowledged(self):
        await self.client.create_topic("t")
        await self.publish("t", range(6))
        first = self.read(self.client, "t", group="g", from_offset=0, protocol="sse")
        self.assertEqual(await first.wait_for(6), list(range(6)))
        await self.wait_for_committed("t", "g", 6)
        await first.stop()
        await self.publish("t", range(6, 9))
        second = self.read(self.client, "t", group="g", from_offset=0, protocol="sse")
        self.assertEqual(await second.wait_for(3), [6, 7, 8])
        await self.wait_for_committed("t", "g", 9)

    async def test_a_new_group_starts_at_the_tail(self):
        await self.client.create_topic("t")
        await self.publish("t", range(5))
        for protocol in ("ws", "sse"):
            reader = self.read(self.client, "t", lambda message: True, group=f"tail-{protocol}", protocol=protocol)
            await self.wait_for_subscribers("t", 1)
            start = (await self.client.get_topic("t")).latest_offset + 1
            await self.publish("t", range(start, start + 2))
            self.assertEqual(await reader.wait_for(2), [start, start + 1])
            await reader.stop()
            await self.wait_for_subscribers("t", 0)

    async def wait_for_pending(self, topic, group, pending):
        async def stands():
            return (await self.group(topic, group))["pending"] == pending

        await wait_until(f"{pending} are pending", stands)


if __name__ == "__main__":
    unittest.main()

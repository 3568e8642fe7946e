// Promise: Node's `eventsource` package reads a topic live, replayed, and resumed after its connection was cut: nothing
// lost, nothing doubled.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventSource } from 'eventsource';
import { assertWholePartitions, payloadOf, range, startBroker, startLoggedBroker } from './broker.mjs';
import { waitUntil } from './deadline.mjs';
import { startProxy } from './proxy.mjs';

/** Opens a source that collects its messages; `t` closes it. */
function collect(t, url) {
  const source = new EventSource(url);
  const collected = { source, partitions: [], offsets: [], payloads: [], gaps: [], opened: 0 };
  source.onopen = () => (collected.opened += 1);
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    collected.partitions.push(message.partition);
    collected.offsets.push(message.offset);
    collected.payloads.push(Number(payloadOf(message)));
  };
  source.addEventListener('gap', (event) => collected.gaps.push(JSON.parse(event.data)));
  t.after(() => source.close());
  return collected;
}

test('a live stream delivers what is published', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('live');
  await broker.publishNumbers('live', 0, 3);
  const seen = collect(t, broker.streamUrl('live'));
  await waitUntil('the stream is open', () => seen.opened === 1);
  await waitUntil('the subscriber counts', async () => (await broker.stats('live')).subscriber_count === 1);
  await broker.publishNumbers('live', 3, 50);
  await waitUntil('all arrived', () => seen.offsets.length >= 47);
  assert.deepEqual(seen.offsets, range(3, 50));
  assert.deepEqual(seen.payloads, range(3, 50));
});

test('a replay goes over into the live stream', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('past & future/ü');
  await broker.publishNumbers('past & future/ü', 0, 100);
  const seen = collect(t, broker.streamUrl('past & future/ü', '?from_offset=10'));
  const publishing = broker.publishNumbers('past & future/ü', 100, 200);
  await waitUntil('all arrived', () => seen.offsets.length >= 190);
  await publishing;
  assert.deepEqual(seen.offsets, range(10, 200));
  assert.deepEqual(seen.gaps, []);
});

test('a stream that is cut again and again loses and doubles nothing', async (t) => {
  const broker = await startBroker(t, '--retry-ms', '100');
  const proxy = await startProxy(t, broker.port);
  await broker.createTopic('cut');
  await broker.publishNumbers('cut', 0, 20);
  // The query stays the same on every reconnect: the header must win over it.
  const seen = collect(t, broker.streamUrl('cut', '?from_offset=0', proxy.port));
  const publishing = broker.publishNumbers('cut', 20, 400);
  for (const count of [1, 20, 60, 120, 250, 390]) {
    await waitUntil(`${count} arrived`, () => seen.offsets.length >= count);
    const connections = proxy.heads.length;
    proxy.cut();
    await waitUntil('the client came back', () => proxy.heads.length > connections);
  }
  await publishing;
  await waitUntil('all arrived', () => seen.offsets.length >= 400);
  assert.deepEqual(seen.offsets, range(0, 400));
  assert.deepEqual(seen.payloads, range(0, 400));
  assert.deepEqual(seen.gaps, []);
  const resumes = proxy.heads.filter((head) => /^last-event-id: *\S/im.test(head));
  assert.ok(resumes.length >= 6, `resumed by Last-Event-ID only ${resumes.length} times`);
});

test('a stream goes on by its token after the broker was killed and started again', async (t) => {
  const broker = await startLoggedBroker(t, '--retry-ms', '100');
  await broker.createTopic('killed');
  await broker.publishNumbers('killed', 0, 20);
  const seen = collect(t, broker.streamUrl('killed', '?from_offset=0'));
  let end = 20;
  for (let kill = 0; kill < 4; kill += 1) {
    // One that was cut in the middle of what is there resumes as one that had seen it all.
    await waitUntil('some arrived', () => seen.offsets.length >= end - 10);
    await broker.killAndRestart();
    await broker.publishNumbers('killed', end, end + 20);
    end += 20;
  }
  await waitUntil('all arrived', () => seen.offsets.length >= end);
  assert.deepEqual(seen.offsets, range(0, end));
  assert.deepEqual(seen.payloads, range(0, end));
  assert.deepEqual(seen.gaps, []);
});

test('a stream of three partitions goes on by its token after the broker was killed', async (t) => {
  const broker = await startLoggedBroker(t, '--retry-ms', '100');
  await broker.createTopic('parts', { partitions: 3 });
  await broker.publishNumbers('parts', 0, 30);
  const seen = collect(t, broker.streamUrl('parts', '?from_offset=0'));
  let end = 30;
  for (let kill = 0; kill < 3; kill += 1) {
    // One that was cut in the middle of what is there has had more of some partitions than of others.
    await waitUntil('some arrived', () => seen.offsets.length >= end - 25);
    await broker.killAndRestart();
    await broker.publishNumbers('parts', end, end + 30);
    end += 30;
  }
  await waitUntil('all arrived', () => seen.offsets.length >= end);
  assertWholePartitions(seen, 3, end);
  assert.deepEqual(seen.gaps, []);
});

test('a gap is heard as an event of its own', async (t) => {
  const broker = await startBroker(t, '--retention', '5');
  await broker.createTopic('gap');
  await broker.publishNumbers('gap', 0, 12);
  const seen = collect(t, broker.streamUrl('gap', '?from_offset=2'));
  await waitUntil('all arrived', () => seen.offsets.length >= 5);
  assert.deepEqual(seen.offsets, range(7, 12));
  assert.deepEqual(seen.gaps, [{ requested: 2, resumed: 7 }]);
});

test('a deleted topic ends the stream for good', async (t) => {
  const broker = await startBroker(t, '--retry-ms', '100');
  await broker.createTopic('gone');
  const seen = collect(t, broker.streamUrl('gone'));
  await waitUntil('the stream is open', () => seen.opened === 1);
  await broker.deleteTopic('gone');
  // The client comes back once, learns 404, and gives up.
  await waitUntil('the client gave up', () => seen.source.readyState === EventSource.CLOSED);
});

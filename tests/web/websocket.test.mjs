// Promise: Node's `ws` package reads topics, shares them in groups, acknowledges, publishes, and is told of what is no
// message, with the close codes of the contract.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import WebSocket from 'ws';
import { payloadOf, range, startBroker } from './broker.mjs';
import { waitUntil } from './deadline.mjs';

const EXTENDED = 'ringmain.v1';

/** Opens a socket that sorts what it hears; `t` ends it. */
async function subscribe(t, broker, topic, query = '', protocols = []) {
  const url = `ws://127.0.0.1:${broker.port}/topics/${encodeURIComponent(topic)}/subscribe/ws${query}`;
  const socket = new WebSocket(url, protocols);
  const heard = { socket, messages: [], others: [], pings: 0, closed: undefined };
  socket.on('message', (data, isBinary) => {
    assert.equal(isBinary, false, 'each message is a text frame');
    const frame = JSON.parse(data.toString());
    (frame.id === undefined ? heard.others : heard.messages).push(frame);
  });
  socket.on('ping', () => (heard.pings += 1));
  socket.on('close', (code, reason) => (heard.closed = { code, reason: reason.toString() }));
  t.after(() => socket.terminate());
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  heard.offsets = () => heard.messages.map((message) => message.offset);
  heard.say = (frame) => socket.send(JSON.stringify(frame));
  heard.waitFor = (count) => waitUntil(`${count} messages came`, () => heard.messages.length >= count);
  return heard;
}

function committed(broker, topic, group, offset) {
  return waitUntil(`${offset} is committed`, async () => {
    const stats = await broker.request('GET', `/topics/${encodeURIComponent(topic)}/groups/${group}`);
    return stats.committed_offset === offset;
  });
}

test('a subscriber reads replayed and live messages', async (t) => {
  const broker = await startBroker(t);
  const topic = 'past & future/ü';
  await broker.createTopic(topic);
  await broker.publishNumbers(topic, 0, 20);
  const heard = await subscribe(t, broker, topic, '?from_offset=5');
  assert.equal(heard.socket.protocol, '', 'no subprotocol was offered');
  await broker.publishNumbers(topic, 20, 60);
  await heard.waitFor(55);
  assert.deepEqual(heard.offsets(), range(5, 60));
  assert.deepEqual(heard.messages.map((message) => Number(payloadOf(message))), range(5, 60));
  const [first] = heard.messages;
  assert.equal(first.topic, topic);
  assert.match(first.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
});

test('a group shares, redelivers and commits', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('work');
  const one = await subscribe(t, broker, 'work', '?group=g&from_offset=0');
  const two = await subscribe(t, broker, 'work', '?group=g&from_offset=0');
  await broker.publishNumbers('work', 0, 20);
  await waitUntil('all were given out', () => one.messages.length + two.messages.length === 20);
  assert.deepEqual([...one.offsets(), ...two.offsets()].sort((a, b) => a - b), range(0, 20));
  one.say({ ack: one.offsets() });
  const left = two.offsets();
  two.socket.terminate();
  await one.waitFor(20);
  const again = one.messages.slice(-left.length);
  assert.deepEqual(again.map((message) => message.offset), left);
  assert.ok(again.every((message) => message.attempt === 2), 'a second attempt says so');
  again.forEach((message) => one.say({ ack: message.offset }));
  await committed(broker, 'work', 'g', 20);
});

test('answers to what was asked with a reference, and pongs', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('asked');
  const heard = await subscribe(t, broker, 'asked', '?group=g&from_offset=0');
  heard.say({ publish: { payload: Buffer.from('hello').toString('base64') }, ref: 'p' });
  await heard.waitFor(1);
  await waitUntil('the publish is answered', () => heard.others.length === 1);
  const [published] = heard.others;
  assert.equal(published.ref, 'p');
  assert.equal(published.published.offset, 0);
  assert.equal(payloadOf(heard.messages[0]), 'hello');
  heard.say({ ack: 0, ref: 2 });
  await waitUntil('the acknowledgement is answered', () => heard.others.length === 2);
  assert.deepEqual(heard.others[1], { acked: 0, count: 1, ref: 2 });
  heard.say({ ping: { any: 'thing' } });
  await waitUntil('the ping is answered', () => heard.others.length === 3);
  assert.deepEqual(heard.others[2], { pong: { any: 'thing' } });
});

test('only clients that know the subprotocol are told of what is no message', async (t) => {
  const broker = await startBroker(t, '--retention', '5');
  await broker.createTopic('gap');
  await broker.publishNumbers('gap', 0, 12);
  const told = await subscribe(t, broker, 'gap', '?from_offset=2', ['other', EXTENDED]);
  const plain = await subscribe(t, broker, 'gap', '?from_offset=2');
  assert.equal(told.socket.protocol, EXTENDED);
  for (const heard of [told, plain]) {
    await heard.waitFor(5);
    assert.deepEqual(heard.offsets(), range(7, 12));
    // A mistake: told to who knows, passed over for the others, who must still get the answer after it.
    heard.socket.send('no JSON');
    heard.say({ ping: 1 });
    await waitUntil('the ping is answered', () => heard.others.some((frame) => frame.pong === 1));
  }
  assert.deepEqual(told.others[0], { gap: { requested: 2, resumed: 7 } });
  assert.equal(told.others[1].error.status, 400);
  assert.deepEqual(plain.others, [{ pong: 1 }]);
});

test('pings keep a quiet connection alive', async (t) => {
  // One that is silent for four heartbeats is cut: longer than the machine may hold up this one.
  const broker = await startBroker(t, '--heartbeat-ms', '1000');
  await broker.createTopic('quiet');
  const heard = await subscribe(t, broker, 'quiet');
  // `ws` answers each; six of them are more than a silent peer would be granted.
  await waitUntil('six pings came', () => heard.pings >= 6);
  await broker.publishNumbers('quiet', 0, 1);
  await heard.waitFor(1);
});

test('a deleted topic closes with 4404', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('gone');
  const heard = [await subscribe(t, broker, 'gone'), await subscribe(t, broker, 'gone', '?group=g'), await subscribe(t, broker, 'gone', '', [EXTENDED])];
  await broker.deleteTopic('gone');
  for (const one of heard) {
    await waitUntil('it was closed', () => one.closed);
    assert.equal(one.closed.code, 4404);
    assert.match(one.closed.reason, /deleted/);
  }
  await assert.rejects(subscribe(t, broker, 'gone'), /404/);
});

test('a broker that goes down closes with 1001 for its own clients and cuts the others', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('t');
  const own = await subscribe(t, broker, 't', '', [EXTENDED]);
  const other = await subscribe(t, broker, 't');
  broker.terminate();
  await waitUntil('both were closed', () => own.closed && other.closed);
  assert.equal(own.closed.code, 1001);
  // 1006 is what `ws` says of a connection that ended without a close frame.
  assert.equal(other.closed.code, 1006);
});

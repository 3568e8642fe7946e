// Promise: a page in headless Chromium follows a topic of a broker on another port with the browser's own EventSource:
// live, replayed, and resumed after the connection was cut or the broker was killed, and it may publish: nothing lost, nothing doubled.

import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { assertWholePartitions, range, startBroker, startLoggedBroker } from './broker.mjs';
import { startBrowser } from './browser.mjs';
import { waitUntil } from './deadline.mjs';
import { startProxy } from './proxy.mjs';

const page = `<!doctype html><meta charset="utf-8"><title>reader</title><script>
  const seen = { partitions: [], offsets: [], payloads: [], gaps: [], opened: 0 };
  let source;
  function follow(url) {
    source = new EventSource(url);
    source.onopen = () => { seen.opened += 1; };
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      seen.partitions.push(message.partition);
      seen.offsets.push(message.offset);
      seen.payloads.push(Number(atob(message.payload)));
    };
    source.addEventListener('gap', (event) => seen.gaps.push(JSON.parse(event.data)));
  }
  function look() {
    return { ...seen, state: source.readyState };
  }
</script>`;

let browser;
let pages;

before(async () => {
  pages = http.createServer((_, response) => response.setHeader('Content-Type', 'text/html').end(page));
  await new Promise((resolve) => pages.listen(0, '127.0.0.1', resolve));
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  pages?.closeAllConnections();
  await new Promise((resolve) => pages.close(resolve));
});

/** Opens the page of another origin than the broker's; `t` closes it. */
async function openPage(t) {
  const tab = await browser.newPage();
  t.after(() => tab.close());
  await tab.goto(`http://127.0.0.1:${pages.address().port}/`);
  return {
    follow: (url) => tab.evaluate((address) => follow(address), url),
    look: () => tab.evaluate(() => look()),
    run: (work, argument) => tab.evaluate(work, argument),
  };
}

test('a page follows a topic live', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('live');
  await broker.publishNumbers('live', 0, 3);
  const reader = await openPage(t);
  await reader.follow(broker.streamUrl('live'));
  await waitUntil('the stream is open', async () => (await reader.look()).opened === 1);
  await waitUntil('the subscriber counts', async () => (await broker.stats('live')).subscriber_count === 1);
  await broker.publishNumbers('live', 3, 60);
  const seen = await waitUntil('all arrived', async () => {
    const now = await reader.look();
    return now.offsets.length >= 57 && now;
  });
  assert.deepEqual(seen.offsets, range(3, 60));
  assert.deepEqual(seen.payloads, range(3, 60));
});

test('a page replays and goes on live', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('replay');
  await broker.publishNumbers('replay', 0, 100);
  const reader = await openPage(t);
  await reader.follow(broker.streamUrl('replay', '?from_offset=5'));
  await broker.publishNumbers('replay', 100, 160);
  const seen = await waitUntil('all arrived', async () => {
    const now = await reader.look();
    return now.offsets.length >= 155 && now;
  });
  assert.deepEqual(seen.offsets, range(5, 160));
  assert.deepEqual(seen.gaps, []);
});

test('a page whose connection is cut again and again loses and doubles nothing', async (t) => {
  const broker = await startBroker(t, '--retry-ms', '100');
  const proxy = await startProxy(t, broker.port);
  await broker.createTopic('cut');
  await broker.publishNumbers('cut', 0, 20);
  const reader = await openPage(t);
  await reader.follow(broker.streamUrl('cut', '?from_offset=0', proxy.port));
  const publishing = broker.publishNumbers('cut', 20, 300);
  for (const count of [1, 20, 60, 120, 200, 290]) {
    await waitUntil(`${count} arrived`, async () => (await reader.look()).offsets.length >= count);
    const connections = proxy.heads.length;
    proxy.cut();
    await waitUntil('the page came back', () => proxy.heads.length > connections);
  }
  await publishing;
  const seen = await waitUntil('all arrived', async () => {
    const now = await reader.look();
    return now.offsets.length >= 300 && now;
  });
  assert.deepEqual(seen.offsets, range(0, 300));
  assert.deepEqual(seen.payloads, range(0, 300));
  assert.deepEqual(seen.gaps, []);
  const resumes = proxy.heads.filter((head) => /^last-event-id: *\S/im.test(head));
  assert.ok(resumes.length >= 6, `resumed by Last-Event-ID only ${resumes.length} times`);
});

test('a page that is cut before its first message misses nothing', async (t) => {
  const broker = await startBroker(t, '--retry-ms', '100');
  const proxy = await startProxy(t, broker.port);
  await broker.createTopic('quiet');
  await broker.publishNumbers('quiet', 0, 3);
  const reader = await openPage(t);
  await reader.follow(broker.streamUrl('quiet', '', proxy.port));
  await waitUntil('the subscriber counts', async () => (await broker.stats('quiet')).subscriber_count === 1);
  await waitUntil('the stream is open', async () => (await reader.look()).opened === 1);
  await waitUntil('the first block was sent', () => /^id: ?\S/m.test(proxy.received()));
  proxy.refuse(true);
  proxy.end();
  await waitUntil('the subscriber is gone', async () => (await broker.stats('quiet')).subscriber_count === 0);
  await broker.publishNumbers('quiet', 3, 6);
  proxy.refuse(false);
  const seen = await waitUntil('all arrived', async () => {
    const now = await reader.look();
    return now.offsets.length >= 3 && now;
  });
  assert.deepEqual(seen.offsets, range(3, 6));
});

test('a page that reads three partitions misses nothing of a broker that is killed', async (t) => {
  const broker = await startLoggedBroker(t, '--retry-ms', '100');
  await broker.createTopic('parts', { partitions: 3 });
  await broker.publishNumbers('parts', 0, 30);
  const reader = await openPage(t);
  await reader.follow(broker.streamUrl('parts', '?from_offset=0'));
  let end = 30;
  for (let kill = 0; kill < 3; kill += 1) {
    await waitUntil('some arrived', async () => (await reader.look()).offsets.length >= end - 25);
    await broker.killAndRestart();
    await broker.publishNumbers('parts', end, end + 30);
    end += 30;
  }
  const seen = await waitUntil('all arrived', async () => {
    const now = await reader.look();
    return now.offsets.length >= end && now;
  });
  assertWholePartitions(seen, 3, end);
  assert.deepEqual(seen.gaps, []);
});

test('a page hears of a gap and of the end of its topic', async (t) => {
  const broker = await startBroker(t, '--retention', '5', '--retry-ms', '100');
  await broker.createTopic('short');
  await broker.publishNumbers('short', 0, 12);
  const reader = await openPage(t);
  await reader.follow(broker.streamUrl('short', '?from_offset=2'));
  const seen = await waitUntil('all arrived', async () => {
    const now = await reader.look();
    return now.offsets.length >= 5 && now;
  });
  assert.deepEqual(seen.offsets, range(7, 12));
  assert.deepEqual(seen.gaps, [{ requested: 2, resumed: 7 }]);
  await broker.deleteTopic('short');
  await waitUntil('the browser gave up', async () => (await reader.look()).state === 2);
});

test('a page may create topics, publish, and read errors', async (t) => {
  const broker = await startBroker(t);
  const reader = await openPage(t);
  const told = await reader.run(async (url) => {
    const send = async (path, method, body, headers) => {
      const response = await fetch(url + path, { method, body, headers });
      return { status: response.status, answer: await response.json() };
    };
    const json = { 'Content-Type': 'application/json' };
    return [
      await send('/topics', 'POST', JSON.stringify({ name: 'by page' }), json),
      await send('/topics/by%20page/publish', 'POST', JSON.stringify({ payload: btoa('hello') }), json),
      await send('/topics/by%20page/publish', 'POST', new Uint8Array([0, 255]), { 'X-Key': 'k', 'Last-Event-ID': '1' }),
      await send('/topics/by%20page/messages?from_offset=0', 'GET'),
      await send('/topics/nothing', 'GET'),
      await send('/topics/by%20page', 'DELETE'),
    ];
  }, broker.url);
  assert.deepEqual(told.map((one) => one.status), [201, 202, 202, 200, 404, 200]);
  assert.equal(told[3].answer.data.messages.length, 2);
  assert.equal(told[4].answer.code, 'topic_not_found');
});

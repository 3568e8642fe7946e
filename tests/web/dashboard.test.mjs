// Promise: the dashboard in headless Chromium shows what the broker has, in its four tabs and as it comes; hostile names
// and payloads stay text, and a broker that was killed is found again.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startBroker, startLoggedBroker } from './broker.mjs';
import { startBrowser } from './browser.mjs';
import { waitUntil } from './deadline.mjs';

const hostile = '<img src=x onerror="window.hostile=1">';

let browser;

before(async () => {
  browser = await startBrowser();
});

after(() => browser?.close());

/** Opens the dashboard; `t` closes it, and fails when the page had an error of its own. */
async function openDashboard(t, broker, hash = '', { viewport = { width: 1280, height: 800 }, prepare } = {}) {
  const tab = await browser.newPage({ viewport });
  await prepare?.(tab);
  const faults = [];
  tab.on('pageerror', (error) => faults.push(error.message));
  t.after(async () => {
    await tab.close();
    assert.deepEqual(faults, []);
  });
  await tab.goto(`${broker.url}/dashboard${hash}`);
  const text = (id) => tab.evaluate((name) => document.getElementById(name).innerText, id);
  return {
    tab,
    text,
    go: (to) => tab.evaluate((address) => (location.hash = address), to),
    sees: (id, ...words) =>
      waitUntil(`#${id} shows ${words.join(', ')}`, async () => {
        const shown = await text(id);
        return words.every((word) => shown.includes(word)) && shown;
      }),
    rows: (id) => tab.evaluate((name) => Array.from(document.querySelectorAll(`#${name} tbody tr`), (row) => Array.from(row.cells, (cell) => cell.innerText)), id),
  };
}

function publish(broker, topic, body, headers = {}) {
  return broker.request('POST', `/topics/${encodeURIComponent(topic)}/publish`, body, headers);
}

test('the four tabs show what was published', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('payments', { partitions: 2, retention: { max_messages: 500 } });
  await broker.createTopic('orders');
  await broker.publishNumbers('payments', 0, 12);
  await broker.publishNumbers('orders', 0, 5);
  await broker.request('POST', '/topics/orders/groups/billing/fetch', '{"max":2,"from_offset":0}');
  const page = await openDashboard(t, broker);
  await page.sees('totals', 'Topics\n2', '17 since the start', 'memory');
  await page.sees('state', 'The broker answers');
  await broker.publishNumbers('orders', 5, 8);
  await page.sees('totals', '20 since the start');
  assert.match(await page.text('charts'), /highest/);

  await page.go('#topics');
  await page.sees('topics-told', '2 of 2 topics');
  const rows = await page.rows('topics-table');
  assert.deepEqual(rows.map(([name, messages]) => [name, messages]), [['orders', '8'], ['payments', '12']]);
  assert.deepEqual(rows[1].slice(6), ['2', 'memory', '500 messages']);

  await page.go('#lag');
  await page.sees('lag-told', '1 group of 1 topic');
  const [[topic, group, lag, committed, pending]] = await page.rows('lag-table');
  assert.deepEqual([topic, group, lag, committed, pending], ['orders', 'billing', '8', '0', '2']);

  await page.go('#live/payments/earliest');
  await page.sees('live-count', 'All 12 that came');
});

test('the live feed shows messages as they come, pauses, and tells of gaps and ends', async (t) => {
  const broker = await startBroker(t, '--retention', '5');
  await broker.createTopic('live');
  await broker.publishNumbers('live', 0, 9);
  const page = await openDashboard(t, broker, '#live/live');
  await page.sees('live-told', 'Following from now on');
  await publish(broker, 'live', '{"amount":12345678901234567890}', { 'X-Key': 'k', 'X-Header-trace': 'abc' });
  await page.sees('live-feed', 'offset 9', 'key k', 'trace: abc', 'JSON', '"amount": 12345678901234567890');
  await publish(broker, 'live', Buffer.from([0xff, 0xfe]));
  await page.sees('live-feed', 'bytes, 2 B', 'ff fe');
  const [newest] = await page.tab.evaluate(() => Array.from(document.querySelectorAll('#live-feed li'), (item) => item.innerText));
  assert.match(newest, /offset 10/, 'the newest comes first');
  await page.tab.click('#live-pause');
  await publish(broker, 'live', 'while paused');
  await page.sees('live-count', '1 wait');
  assert.ok(!(await page.text('live-feed')).includes('while paused'));
  await page.tab.click('#live-pause');
  await page.sees('live-feed', 'while paused');
  await page.tab.click('#live-stop');
  await waitUntil('nobody follows', async () => (await broker.stats('live')).subscriber_count === 0);

  await page.go('#live/live/earliest');
  await page.sees('live-feed', 'goes on at offset 7');
  await broker.deleteTopic('live');
  await page.sees('live-feed', 'The topic was deleted');
});

test('of very many messages the newest are kept', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('many');
  const lines = Array.from({ length: 900 }, (_, number) => JSON.stringify({ payload: Buffer.from(`m${number}`).toString('base64') }));
  await publish(broker, 'many', lines.join('\n'), { 'Content-Type': 'application/x-ndjson' });
  const page = await openDashboard(t, broker, '#live/many/earliest');
  await page.sees('live-count', 'The newest 200 of 900');
  const items = await page.tab.evaluate(() => Array.from(document.querySelectorAll('#live-feed pre'), (item) => item.innerText));
  assert.deepEqual([items.length, items[0], items.at(-1)], [200, 'm899', 'm700']);
});

test('hostile names, groups, keys and payloads stay text', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic(hostile);
  await broker.request('POST', `/topics/${encodeURIComponent(hostile)}/groups/${encodeURIComponent(hostile)}/fetch`, '{"max":1,"from_offset":0}');
  const page = await openDashboard(t, broker, '#topics');
  await page.sees('topics-table', hostile);
  await page.go('#lag');
  await page.sees('lag-table', hostile);
  // The link that the table has leads to the topic's feed.
  await page.tab.click('#lag-table a');
  await page.sees('live-told', 'Following');
  assert.equal(await page.tab.inputValue('#live-name'), hostile);
  await publish(broker, hostile, `<script>window.hostile=1</script>${hostile}`, { 'X-Key': hostile, 'X-Header-x': hostile });
  await page.sees('live-feed', `key ${hostile}`, `x: ${hostile}`, '<script>window.hostile=1</script>');
  const found = await page.tab.evaluate(() => [window.hostile, document.querySelectorAll('main img, main script').length]);
  assert.deepEqual(found, [undefined, 0]);
});

test('a broker that was killed is missed, and found again', async (t) => {
  const broker = await startLoggedBroker(t, '--retry-ms', '100');
  await broker.createTopic('kept');
  await broker.publishNumbers('kept', 0, 3);
  const page = await openDashboard(t, broker, '#live/kept/earliest');
  await page.sees('live-count', 'All 3 that came');
  await page.sees('state', 'The broker answers');
  await broker.kill();
  await page.sees('state', 'does not answer; next attempt in');
  await broker.start();
  await page.sees('state', 'The broker answers');
  await page.sees('live-told', 'Following');
  await broker.publishNumbers('kept', 3, 5);
  await page.sees('live-count', 'All 5 that came');
  await page.go('#overview');
  await page.sees('totals', 'Topics\n1', '2 since the start', 'open');
});

test('a topic that is not there is followed once it is', async (t) => {
  const broker = await startBroker(t);
  const name = "it's later";
  const page = await openDashboard(t, broker, `#live/${encodeURIComponent(name)}/earliest`);
  await page.sees('live-told', 'There is no topic of this name');
  await page.sees('live-empty', "/topics' -d '{\"name\":\"it\\u0027s later\"}'");
  await broker.createTopic(name);
  await publish(broker, name, 'here it is');
  await page.sees('live-feed', 'here it is');
});

test('many topics are shown in pages, and groups among them are found', async (t) => {
  const broker = await startBroker(t);
  const name = (number) => `t${String(number).padStart(4, '0')}`;
  for (let number = 0; number < 620; number += 1) await broker.createTopic(name(number));
  await broker.request('POST', `/topics/${name(610)}/groups/g/fetch`, '{"max":1}');
  const page = await openDashboard(t, broker, '#topics');
  await page.sees('topics-told', '50 of 620 topics');
  await page.tab.click('#topics-next');
  await page.sees('topics-table', name(50), name(99));
  await page.tab.click('#topics-back');
  await page.sees('topics-table', name(0));
  await page.tab.fill('#topics-name', 't03');
  await page.tab.press('#topics-name', 'Enter');
  await page.sees('topics-table', name(300), name(349));
  assert.equal((await page.rows('topics-table')).length, 50);
  await page.go('#lag');
  await page.sees('lag-table', name(610), 'g');
  await page.go('#overview');
  await page.sees('totals', 'Topics\n620', 'in memory; see Topics');
});

test('tabs are reached by keys and by address, also on a narrow screen', async (t) => {
  const broker = await startBroker(t);
  const page = await openDashboard(t, broker, '#nothing', { viewport: { width: 360, height: 640 } });
  const selected = () => page.tab.evaluate(() => [document.querySelector('[aria-selected="true"]').id, document.activeElement.id, location.hash]);
  await page.sees('overview-empty', "curl '", '/topics');
  assert.equal((await selected())[0], 'tab-overview');
  await page.tab.focus('#tab-overview');
  for (const [key, view] of [['ArrowRight', 'topics'], ['ArrowRight', 'lag'], ['End', 'live'], ['ArrowRight', 'overview'], ['ArrowLeft', 'live'], ['Home', 'overview']]) {
    await page.tab.keyboard.press(key);
    await waitUntil(`${key} leads to ${view}`, async () => (await selected())[0] === `tab-${view}`);
    assert.deepEqual(await selected(), [`tab-${view}`, `tab-${view}`, `#${view}`]);
    const widths = await page.tab.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(widths[0] <= widths[1], `${view}: ${widths}`);
    const heights = await page.tab.evaluate(() => Array.from(document.querySelectorAll('[role="tablist"], .scroll'), (box) => [box.scrollHeight, box.clientHeight]));
    assert.ok(heights.every(([content, room]) => content <= room), `${view}: something scrolls that need not: ${heights}`);
    const panels = await page.tab.evaluate(() => Array.from(document.querySelectorAll('[role="tabpanel"]:not([hidden])'), (panel) => panel.id));
    assert.deepEqual(panels, [`panel-${view}`]);
  }
});

test('it asks one thing at a time, and nothing while nobody looks', async (t) => {
  const broker = await startBroker(t);
  await broker.createTopic('t');
  const asked = { all: 0, now: 0, most: 0 };
  const ended = (request) => (asked.now -= Number(request.resourceType() === 'fetch'));
  const page = await openDashboard(t, broker, '#topics', {
    prepare: async (tab) => {
      // The page's timers go on only when they are told to.
      await tab.clock.install();
      tab.on('requestfinished', ended).on('requestfailed', ended);
      tab.on('request', (request) => {
        if (request.resourceType() !== 'fetch') return;
        asked.all += 1;
        asked.now += 1;
        asked.most = Math.max(asked.most, asked.now);
      });
    },
  });
  const look = (isHidden) =>
    page.tab.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
  for (const rounds of [1, 2, 3]) {
    await waitUntil(`${rounds} rounds were asked`, async () => {
      // Health, totals and the list of topics.
      if (asked.all >= 3 * rounds && asked.now === 0) return true;
      await page.tab.clock.runFor(500);
      return false;
    });
  }
  assert.equal(asked.most, 1);
  await look(true);
  await waitUntil('what was asked is answered', () => asked.now === 0);
  const before = asked.all;
  await page.tab.clock.runFor(60_000);
  assert.equal(asked.all, before, 'nothing was asked in a minute');
  await look(false);
  await waitUntil('it asks again', () => asked.all >= before + 3);
});

// Promise: what the dashboard's scripts make of payloads, numbers, cursors and metrics, without a page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { niceTop, Series } from '../../src/dashboard/chart.mjs';
import * as format from '../../src/dashboard/format.mjs';
import { justBefore, Pager } from '../../src/dashboard/pager.mjs';
import { readMetrics } from '../../src/dashboard/requests.mjs';

const base64 = (bytes) => Buffer.from(bytes).toString('base64');

test('numbers, bytes and spans are short and exact', () => {
  assert.equal(format.count(1_234_567), '1,234,567');
  assert.equal(format.count(undefined), '–');
  assert.deepEqual([0, 0.25, 99.96, 1234.6].map(format.rate), ['0', '0.3', '100.0', '1,235']);
  assert.deepEqual([0, 1023, 1024, 1536, 200 * 1024, 2 ** 40].map(format.bytes), ['0 B', '1,023 B', '1.0 KiB', '1.5 KiB', '200 KiB', '1.0 TiB']);
  assert.deepEqual([0, 999, 61_000, 3_600_000, 90_061_000].map(format.duration), ['0 s', '0 s', '1 min 1 s', '1 h', '1 d 1 h']);
  assert.equal(format.retention({ max_messages: 1000, max_age_ms: 60_000 }), '1,000 messages, 1 min');
  assert.equal(format.retention({}), 'by storage');
  assert.equal(format.offsets({ earliest_offset: 0, latest_offset: -1 }), 'none yet');
  assert.equal(format.offsets({ earliest_offset: 5, latest_offset: 4 }), 'none below 5');
});

test('a payload is JSON, text or bytes', () => {
  const json = '{"a":[1,{}],"long":12345678901234567890,"text":"{\\"[,:]"}';
  const shown = format.payload(base64(json));
  assert.equal(shown.kind, 'JSON');
  assert.equal(shown.text, '{\n  "a": [\n    1,\n    {}\n  ],\n  "long": 12345678901234567890,\n  "text": "{\\"[,:]"\n}');
  assert.deepEqual(format.payload(base64('{no JSON')), { kind: 'text', size: 8, text: '{no JSON', isCut: false });
  assert.deepEqual(format.payload(base64('naïve ✓')), { kind: 'text', size: 10, text: 'naïve ✓', isCut: false });
  assert.deepEqual(format.payload(base64([0xff, 0, 1])), { kind: 'bytes', size: 3, text: 'ff 00 01', isCut: false });
  assert.deepEqual(format.payload(''), { kind: 'text', size: 0, text: '', isCut: false });
});

test('of long payloads only the beginning is shown, also when that splits a letter', () => {
  for (const shift of [0, 1, 2]) {
    const text = 'x'.repeat(shift) + '✓'.repeat(2000);
    const shown = format.payload(base64(text));
    assert.deepEqual([shown.kind, shown.size, shown.isCut], ['text', Buffer.byteLength(text), true]);
    assert.ok(text.startsWith(shown.text) && shown.text.length > 1000);
  }
  const shown = format.payload(base64(Buffer.alloc(1 << 20, 0xff)));
  assert.deepEqual([shown.kind, shown.isCut], ['bytes', true]);
  assert.ok(shown.text.length < 1000);
});

test('headers come one by one, those that are no text as base64', () => {
  const message = { headers: { a: '1', b: ['2', '3'] }, headers_base64: { c: '/w==' } };
  assert.deepEqual(format.headerPairs(message), [['a', '1'], ['b', '2'], ['b', '3'], ['c', '/w== (base64)']]);
  assert.deepEqual(format.headerPairs({}), []);
});

test('a cursor stands before all names that begin with a text, and behind those before it', () => {
  const inOrder = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));
  for (const [before, text] of [['paymens', 'payments'], ['payment', 'payments'], ['\u{d7ff}', '\u{e000}'], ['Z', 'a'], ['ü', '🚀']]) {
    const cursor = justBefore(text);
    assert.ok(inOrder(cursor, text) < 0, text);
    assert.ok(inOrder(cursor, before) > 0, text);
  }
  assert.equal(justBefore(''), undefined);
});

test('pages are turned to and fro', () => {
  const pager = new Pager(10);
  assert.equal(pager.path(), 'topics?limit=10');
  pager.next();
  assert.ok(pager.isFirst, 'nothing follows yet');
  pager.note('a&b');
  pager.next();
  assert.equal(pager.path(), 'topics?limit=10&cursor=a%26b');
  pager.back();
  assert.ok(pager.isFirst);
  pager.jump('x');
  assert.ok(!pager.isFirst);
  pager.first();
  assert.ok(pager.isFirst);
});

test('metrics are summed over their labels', () => {
  const { sums, states } = readMetrics('# HELP a b\na{x="1"} 2\na{x="} 9"} 3\nringmain_wal_state{shard="0",state="open"} 1\nringmain_wal_state{shard="0",state="full"} 0\n');
  assert.equal(sums.get('a'), 5);
  assert.deepEqual([...states], ['open']);
});

test('a line is broken where nobody looked, and axes end at round numbers', () => {
  const series = new Series();
  [[0, 1], [2000, 2], [60_000, 3], [62_000, undefined], [64_000, 4]].forEach(([atMs, value]) => series.add(atMs, value));
  assert.deepEqual(series.runs().map((run) => run.length), [2, 1, 1]);
  series.add(1e6, 5);
  assert.equal(series.points.length, 1, 'what is old goes');
  assert.deepEqual([0, 2, 3, 5, 11, 99, 101].map((value) => niceTop(value)), [2, 2, 4, 10, 20, 100, 200]);
  assert.deepEqual([0, 1500, 3 * 1024 ** 2].map((value) => niceTop(value, 1024)), [2, 2048, 4 * 1024 ** 2]);
});

// The view of the whole broker: totals, and what they were in the last minutes.
//
// The totals come from /metrics?topics=false, which is as small with a hundred thousand topics as with one. The whole of
// /metrics has several lines for each topic, and the list of topics as much: megabytes, every two seconds, for a few sums.

import { Chart } from './chart.mjs';
import { byId, curl, element, fillEmpty, setText } from './elements.mjs';
import { bytes, count, duration, rate } from './format.mjs';
import { readMetrics } from './requests.mjs';

/** With no more topics than these, what they store is summed from their list. */
const summedTopicsMax = 100;

const figures = [
  ['topics', 'Topics'],
  ['published', 'Published'],
  ['delivered', 'Delivered'],
  ['subscribers', 'Subscribers'],
  ['connections', 'Connections'],
  ['stored', 'Stored'],
  ['storage', 'Storage'],
  ['uptime', 'Uptime'],
];

const storageWords = {
  poisoned: ['failed', 'a write failed: nothing more is stored until a restart'],
  full: ['full', 'the disk is full: publishes are refused'],
  busy: ['busy', 'the disk is behind: publishes wait'],
  open: ['open', 'on the disk and in memory'],
};

/** The worst state of any shard; without a data directory there is none. */
export function storageState(states) {
  return ['poisoned', 'full', 'busy', 'open'].find((state) => states.has(state));
}

/** How much a counter grew a second; nothing when it began anew. */
export function growth(before, after, ms) {
  return before === undefined || after < before || ms <= 0 ? undefined : ((after - before) * 1000) / ms;
}

export class Overview {
  constructor() {
    this.places = new Map();
    for (const [key, title] of figures) {
      const value = element('div', { className: 'value' }, '–');
      const note = element('div', { className: 'note' });
      this.places.set(key, { value, note });
      byId('totals').append(element('div', {}, element('dt', {}, title), element('dd', {}, value, note)));
    }
    const charts = byId('charts');
    this.charts = {
      published: new Chart(charts, 'Messages published a second', rate),
      delivered: new Chart(charts, 'Messages delivered a second', rate),
      subscribers: new Chart(charts, 'Subscribers', count),
      traffic: new Chart(charts, 'Bytes in and out a second', bytes, 1024),
    };
  }

  set(key, value, note = '', state = '') {
    const place = this.places.get(key);
    setText(place.value, value);
    place.value.dataset.state = state;
    setText(place.note, note);
  }

  /** Takes the totals in every round, whichever view is shown, so that the charts have no holes. */
  async measure(ask, health) {
    const { sums, states } = readMetrics(await ask('metrics?topics=false', 'text'));
    const nowMs = performance.now();
    const of = (name) => sums.get(`ringmain_${name}`) ?? 0;
    const now = {
      uptimeMs: health.uptime_ms,
      published: of('messages_published_total'),
      delivered: of('messages_delivered_total'),
      traffic: of('received_bytes_total') + of('sent_bytes_total'),
    };
    const last = this.last?.now.uptimeMs <= now.uptimeMs ? this.last : undefined;
    const rates = {};
    for (const key of ['published', 'delivered', 'traffic']) {
      rates[key] = growth(last?.now[key], now[key], nowMs - (last?.nowMs ?? 0));
      this.charts[key].add(nowMs, rates[key]);
    }
    this.charts.subscribers.add(nowMs, of('subscribers'));
    this.last = { now, nowMs };
    this.topics = of('topics');
    this.set('topics', count(this.topics));
    this.set('published', `${rate(rates.published)}/s`, `${count(now.published)} since the start`);
    this.set('delivered', `${rate(rates.delivered)}/s`, `${count(now.delivered)} since the start`);
    this.set('subscribers', count(of('subscribers')), 'in streams and groups');
    this.set('connections', count(of('connections_open')), 'this page’s among them');
    this.set('uptime', duration(health.uptime_ms), `on ${count(health.cores)} ${health.cores === 1 ? 'core' : 'cores'}`);
    this.inMemory = of('memory_bytes');
    const [word, note] = storageWords[storageState(states)] ?? ['memory', 'ends with the process'];
    this.set('storage', word, note, ['failed', 'full'].includes(word) ? 'bad' : '');
  }

  async poll(ask) {
    if (this.topics > summedTopicsMax) {
      this.set('stored', bytes(this.inMemory), 'in memory; see Topics for the disk');
    } else {
      const { data } = await ask(`topics?limit=${summedTopicsMax}`);
      const sum = data.reduce((total, topic) => total + topic.bytes, 0);
      this.set('stored', bytes(sum), `${bytes(this.inMemory)} of it in memory`);
    }
    byId('overview-empty').hidden = this.topics > 0;
    if (this.topics === 0) {
      fillEmpty(
        byId('overview-empty'),
        'There are no topics yet. Make one and publish to it:',
        curl('topics', ` -d '{"name":"payments"}'`),
        curl('topics/payments/publish', ` -d 'hello'`),
      );
    }
  }
}

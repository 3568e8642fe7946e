// The view of all topics, by name and in pages: it never holds more than one page of them.

import { byId, curl, fillEmpty, setText, Table } from './elements.mjs';
import { bytes, count, offsets, retention } from './format.mjs';
import { Pager } from './pager.mjs';

const pageTopics = 50;

export function liveLink(name) {
  return `#live/${encodeURIComponent(name)}`;
}

const columns = [
  { head: 'Topic', text: ({ name }) => name, href: ({ name }) => liveLink(name), isName: true },
  { head: 'Messages', text: (topic) => count(topic.message_count), isNumber: true },
  { head: 'Bytes', text: (topic) => bytes(topic.bytes), isNumber: true },
  { head: 'Offsets', text: offsets, isNumber: true },
  { head: 'Subscribers', text: (topic) => count(topic.subscriber_count), isNumber: true },
  { head: 'Groups', text: (topic) => count(topic.groups), isNumber: true },
  { head: 'Partitions', text: (topic) => count(topic.partitions), isNumber: true },
  { head: 'Storage', text: ({ storage }) => (storage === 'wal' ? 'disk' : storage) },
  { head: 'Keeps', text: (topic) => retention(topic.retention) },
];

/** Has the buttons and the field of a list turn its pages. */
export function bindPager(prefix, pager, isTurned) {
  const turn = (how) => () => {
    how();
    isTurned();
  };
  byId(`${prefix}-first`).addEventListener('click', turn(() => pager.first()));
  byId(`${prefix}-back`).addEventListener('click', turn(() => pager.back()));
  byId(`${prefix}-next`).addEventListener('click', turn(() => pager.next()));
  byId(`${prefix}-jump`).addEventListener('submit', (event) => {
    event.preventDefault();
    pager.jump(byId(`${prefix}-name`).value);
    isTurned();
  });
}

/** Has the buttons say where they may lead. */
export function showPager(prefix, pager) {
  byId(`${prefix}-first`).disabled = pager.isFirst;
  byId(`${prefix}-back`).disabled = !pager.hasBefore;
  byId(`${prefix}-next`).disabled = pager.following === undefined;
}

export class Topics {
  constructor(askNow) {
    this.pager = new Pager(pageTopics);
    this.table = new Table(byId('topics-table'), 'Topics by name', columns);
    bindPager('topics', this.pager, askNow);
    showPager('topics', this.pager);
  }

  async poll(ask, total) {
    const { data, next_cursor: next } = await ask(this.pager.path());
    this.pager.note(next);
    showPager('topics', this.pager);
    this.table.show(data);
    byId('topics-region').hidden = data.length === 0;
    byId('topics-empty').hidden = data.length > 0;
    const told = byId('topics-told');
    if (data.length > 0) {
      setText(told, `${count(data.length)} of ${count(Math.max(total, data.length))} topics, by name. A name leads to its live feed.`);
    } else if (this.pager.isFirst) {
      setText(told, '');
      fillEmpty(byId('topics-empty'), 'There are no topics yet. Make one:', curl('topics', ` -d '{"name":"payments"}'`));
    } else {
      setText(told, `None of ${count(total)} topics.`);
      fillEmpty(byId('topics-empty'), 'No topic has this name or a later one. “First” leads back to the beginning.');
    }
  }
}

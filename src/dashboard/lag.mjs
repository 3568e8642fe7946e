// The view of consumer groups: how far each is behind.
//
// Only topics that have groups are asked for them, a bounded number in each round; what does not fit is on the next page.
// Among very many topics those with groups are looked for a bounded number of pages a round, so that the broker hardly notices.

import { Chart } from './chart.mjs';
import { byId, curl, fillEmpty, setText, Table } from './elements.mjs';
import { count, offset } from './format.mjs';
import { justBefore, Pager } from './pager.mjs';
import { Refused } from './requests.mjs';
import { bindPager, liveLink, showPager } from './topics.mjs';

const listedTopics = 200;
const askedTopicsMax = 20;
const shownGroupsMax = 200;
/** Pages looked through in one round while no topic with a group is found. */
const searchedPagesMax = 10;
const searchedTopics = 500;

const columns = [
  { head: 'Topic', text: ({ topic }) => topic, href: ({ topic }) => liveLink(topic), isName: true },
  { head: 'Group', text: ({ name }) => name, isName: true },
  { head: 'Lag', text: ({ lag }) => count(lag), isNumber: true },
  { head: 'Committed', text: (group) => offset(group.committed_offset), isNumber: true },
  { head: 'Pending', text: ({ pending }) => count(pending), isNumber: true },
  { head: 'Members', text: ({ members }) => count(members), isNumber: true },
  { head: 'Lost', text: ({ lost }) => count(lost), isNumber: true },
  { head: 'Dead', text: ({ dead }) => count(dead), isNumber: true },
];

export class Lag {
  constructor(askNow) {
    this.pager = new Pager(listedTopics);
    this.askNow = askNow;
    this.table = new Table(byId('lag-table'), 'Consumer groups by topic', columns);
    this.chart = new Chart(byId('lag-chart'), 'Lag of these groups together', count);
    this.search = undefined;
    bindPager('lag', this.pager, () => {
      this.search = undefined;
      this.chart.clear();
      askNow();
    });
    showPager('lag', this.pager);
    this.show([], '');
  }

  async poll(ask) {
    if (this.search) return this.goOn(ask);
    const { data, next_cursor: next } = await ask(this.pager.path());
    const having = data.filter((topic) => topic.groups > 0);
    if (having.length === 0 && next !== undefined) {
      this.search = { cursor: next, passed: data.length };
      return this.goOn(ask);
    }
    const asked = having.slice(0, askedTopicsMax);
    this.pager.note(having.length > asked.length ? asked.at(-1).name : next);
    const groups = [];
    for (const { name } of asked) {
      // A topic may be deleted between the two questions.
      const isGone = (error) => {
        if (error instanceof Refused && error.status === 404) return { data: [] };
        throw error;
      };
      groups.push(...(await ask(`topics/${encodeURIComponent(name)}/groups`).catch(isGone)).data);
    }
    this.showGroups(groups, asked.length);
  }

  showGroups(groups, topics) {
    const shown = groups.slice(0, shownGroupsMax);
    const more = groups.length > shown.length ? ` The first ${count(shown.length)} are shown.` : '';
    const further = this.pager.following === undefined ? '' : ' There may be more: “Next”.';
    this.show(shown, `${count(groups.length)} ${groups.length === 1 ? 'group' : 'groups'} of ${count(topics)} ${topics === 1 ? 'topic' : 'topics'}.${more}${further}`);
    if (groups.length > 0) {
      this.chart.add(performance.now(), groups.reduce((sum, { lag }) => sum + lag, 0));
      return;
    }
    setText(byId('lag-told'), '');
    const [sentence, ...commands] = this.pager.isFirst
      ? [
          'No topic has a consumer group. A group begins with its first member, or with its first fetch:',
          curl('topics/payments/groups/billing/fetch', ` -d '{"max":10,"from_offset":0}'`),
        ]
      : ['No topic from here on has a consumer group. “First” leads back to the beginning.'];
    fillEmpty(byId('lag-empty'), sentence, ...commands);
  }

  /** Looks on for a topic that has groups, and makes the page begin with it. */
  async goOn(ask) {
    const { search } = this;
    for (let pages = 0; pages < searchedPagesMax; pages += 1) {
      this.show([], `Looking for consumer groups: none in ${count(search.passed)} topics so far…`);
      const { data, next_cursor: next } = await ask(this.pager.path(searchedTopics, search.cursor));
      // Somebody turned the page meanwhile.
      if (this.search !== search) return undefined;
      const found = data.find((topic) => topic.groups > 0);
      if (found !== undefined || next === undefined) {
        this.search = undefined;
        this.pager.cursors[this.pager.cursors.length - 1] = found ? justBefore(found.name) : search.cursor;
        if (found === undefined) {
          this.pager.note(undefined);
          return this.showGroups([], 0);
        }
        return this.poll(ask);
      }
      search.cursor = next;
      search.passed += data.length;
    }
    return undefined;
  }

  show(groups, told) {
    showPager('lag', this.pager);
    this.table.show(groups);
    setText(byId('lag-told'), told);
    byId('lag-region').hidden = groups.length === 0;
    this.chart.figure.hidden = groups.length === 0;
    byId('lag-empty').hidden = true;
  }
}

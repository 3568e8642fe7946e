// The view of one topic's messages as they come: the newest few, however many come.

import { byId, curl, element, fillEmpty, setText, tell } from './elements.mjs';
import { bytes, count, headerPairs, offset, payload, textOr64 } from './format.mjs';
import { justBefore } from './pager.mjs';
import { get, Refused } from './requests.mjs';

const keptMessagesMax = 200;
/** How often what came is shown: often enough to be live, seldom enough for a million messages. */
const showMs = 150;
/** Longer ones are read when they come, so that only their beginnings wait. */
const waitingLettersMax = 16_384;
const comeBackMs = [1000, 2000, 4000, 8000, 15_000];
const suggestedTopics = 20;

/** Takes a topic and a start out of what follows `#live/`. */
export function readAddress(rest) {
  const [name = '', start] = rest.split('/');
  try {
    return { name: decodeURIComponent(name), start: start === 'earliest' ? 'earliest' : 'now' };
  } catch {
    return { name: '', start: 'now' };
  }
}

export function addressOf({ name, start }) {
  return `#live/${encodeURIComponent(name)}${start === 'earliest' ? '/earliest' : ''}`;
}

/** What is shown of a message. */
function digest(json) {
  const message = JSON.parse(json);
  return { ...message, payload: payload(message.payload) };
}

export class Live {
  constructor() {
    this.feed = byId('live-feed');
    this.told = byId('live-told');
    this.pause = byId('live-pause');
    this.name = byId('live-name');
    this.start = byId('live-start');
    this.pause.addEventListener('click', () => this.setPaused(!this.isPaused));
    byId('live-clear').addEventListener('click', () => this.clear());
    byId('live-stop').addEventListener('click', () => {
      this.stop();
      tell(this.told, 'Stopped. “Follow” begins again.');
    });
    byId('live-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const wanted = { name: this.name.value, start: this.start.value };
      const address = addressOf(wanted);
      if (location.hash === address) this.follow(wanted);
      else location.hash = address;
    });
    this.name.addEventListener('input', () => this.suggest());
    this.clear();
    this.idle();
    this.isPaused = false;
  }

  /** Shows what the address asks for; what is followed already goes on. */
  open(wanted) {
    if (wanted.name === '') return this.suggest();
    this.name.value = wanted.name;
    this.start.value = wanted.start;
    if (this.wanted?.name !== wanted.name || this.wanted?.start !== wanted.start) this.follow(wanted);
    return undefined;
  }

  idle() {
    fillEmpty(byId('live-empty'), 'Choose a topic to see its messages as they come. To send one:', curl('topics/payments/publish', ` -d 'hello'`));
  }

  follow(wanted) {
    this.stop();
    this.wanted = wanted;
    this.token = undefined;
    this.failures = 0;
    this.isAbsent = false;
    this.clear();
    this.setPaused(false);
    byId('live-clear').disabled = false;
    this.allowEnd(true);
    this.connect();
  }

  stop() {
    this.source?.close();
    this.source = undefined;
    clearTimeout(this.timer);
    this.allowEnd(false);
  }

  /** Whether there is something to pause and to stop. */
  allowEnd(isAllowed) {
    this.pause.disabled = !isAllowed && !this.isPaused;
    byId('live-stop').disabled = !isAllowed;
  }

  connect() {
    const { name, start } = this.wanted;
    // A page that is too slow for the topic goes on at the end, and is told.
    const query = new URLSearchParams({ slow: 'skip' });
    if (start === 'earliest') query.set('from_offset', '0');
    if (this.token) query.set('last_event_id', this.token);
    const source = new EventSource(new URL(`topics/${encodeURIComponent(name)}/subscribe/sse?${query}`, document.baseURI));
    this.source = source;
    tell(this.told, 'Connecting…');
    source.onopen = () => {
      this.failures = 0;
      this.isAbsent = false;
      tell(this.told, start === 'earliest' ? 'Following from the earliest message.' : 'Following from now on.');
      this.showCount();
    };
    source.onmessage = (event) => {
      this.token = event.lastEventId || this.token;
      this.take(event.data.length > waitingLettersMax ? { digest: digest(event.data) } : { json: event.data });
    };
    source.addEventListener('gap', (event) => this.onGap(event));
    source.addEventListener('end', (event) => this.onEnd(source, JSON.parse(event.data)));
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) this.onRefused(source);
      else tell(this.told, 'The connection was cut; the browser connects again…', 'bad');
    };
  }

  onGap(event) {
    this.token = event.lastEventId || this.token;
    const { requested, resumed, partition } = JSON.parse(event.data);
    const where = partition === undefined ? '' : ` in partition ${offset(partition)}`;
    const asked = requested === null ? 'a place of another life of the topic' : `offset ${offset(requested)}`;
    this.take({ notice: `Gap${where}: wanted ${asked}, goes on at offset ${offset(resumed)}.` });
  }

  onEnd(source, { reason }) {
    if (source === this.source) this.stop();
    const words = { topic_deleted: 'The topic was deleted.', too_slow: 'This page was too slow.' };
    const sentence = `${words[reason] ?? `The stream ended: ${reason}.`} “Follow” begins again.`;
    this.take({ notice: `End: ${sentence}` });
    tell(this.told, sentence, 'bad');
  }

  /** The browser gives up after an answer that is no stream; the broker may have started without the topic. */
  async onRefused(source) {
    const { name } = this.wanted;
    const waitMs = comeBackMs[Math.min(this.failures, comeBackMs.length - 1)];
    this.failures += 1;
    let sentence = 'The broker does not answer.';
    let isAbsent = false;
    try {
      await get(`topics/${encodeURIComponent(name)}`);
    } catch (error) {
      if (error instanceof Refused) sentence = error.message;
      isAbsent = error.status === 404;
    }
    if (source !== this.source) return;
    tell(this.told, isAbsent ? 'There is no topic of this name; it is followed once it is there.' : sentence, 'bad');
    this.isAbsent = isAbsent;
    this.showCount();
    this.timer = setTimeout(() => this.connect(), waitMs);
  }

  take(entry) {
    this.came += 1;
    this.waiting.push(entry);
    if (this.waiting.length > keptMessagesMax) this.waiting.shift();
    this.shower ??= setTimeout(() => this.showWaiting(), showMs);
  }

  showWaiting() {
    this.shower = undefined;
    if (!this.isPaused) {
      const entries = this.waiting.splice(0).map((entry) => (entry.notice ? noticeItem(entry.notice) : messageItem(entry.digest ?? digest(entry.json))));
      this.feed.prepend(...entries.reverse());
      while (this.feed.children.length > keptMessagesMax) this.feed.lastChild.remove();
    }
    this.showCount();
  }

  showCount() {
    const { length } = this.feed.children;
    const waits = this.isPaused && this.waiting.length > 0 ? ` Paused: ${count(this.waiting.length)}${this.waiting.length === keptMessagesMax ? ' or more' : ''} wait.` : '';
    setText(byId('live-count'), this.came > 0 ? `${length === this.came ? 'All' : `The newest ${count(length)} of`} ${count(this.came)} that came, newest first.${waits}` : '');
    const empty = byId('live-empty');
    empty.hidden = length > 0 || this.came > 0;
    if (!empty.hidden && this.wanted) {
      const { name } = this.wanted;
      // Names go into a shell's quotes.
      const path = `topics/${encodeURIComponent(name).replaceAll("'", '%27')}/publish`;
      const body = JSON.stringify({ name }).replaceAll("'", '\\u0027');
      if (this.isAbsent) fillEmpty(empty, 'To make the topic:', curl('topics', ` -d '${body}'`));
      else fillEmpty(empty, 'Nothing came yet. To send a message:', curl(path, ` -d 'hello'`));
    }
  }

  setPaused(isPaused) {
    this.isPaused = isPaused;
    this.pause.setAttribute('aria-pressed', String(isPaused));
    this.allowEnd(this.source !== undefined);
    if (this.waiting.length > 0) this.showWaiting();
    else this.showCount();
  }

  clear() {
    this.waiting = [];
    this.came = 0;
    this.feed.replaceChildren();
    this.showCount();
  }

  /** Offers names that begin as what was typed. One question at a time: the last letters count. */
  async suggest() {
    if (this.isSuggesting) {
      this.suggestAgain = true;
      return;
    }
    this.isSuggesting = true;
    const text = this.name.value;
    try {
      const cursor = justBefore(text);
      const { data } = await get(`topics?limit=${suggestedTopics}${cursor === undefined ? '' : `&cursor=${encodeURIComponent(cursor)}`}`);
      const options = data.filter(({ name }) => name.startsWith(text)).map(({ name }) => element('option', { value: name }));
      byId('live-names').replaceChildren(...options);
    } catch {
      // No suggestions while the broker is away.
    }
    this.isSuggesting = false;
    if (this.suggestAgain) {
      this.suggestAgain = false;
      this.suggest();
    }
  }
}

function noticeItem(sentence) {
  return element('li', { className: 'notice' }, sentence);
}

function messageItem(message) {
  const fact = (name, value) => element('span', {}, `${name} `, element('b', { className: 'name' }, value));
  const facts = element('div', { className: 'facts' }, fact('offset', offset(message.offset)));
  if (message.partition !== undefined) facts.append(fact('partition', offset(message.partition)));
  const key = textOr64(message.key, message.key_base64);
  if (key !== undefined) facts.append(fact('key', key));
  for (const [name, value] of headerPairs(message)) facts.append(fact(`${name}:`, value));
  const { kind, size, text, isCut } = message.payload;
  facts.append(element('span', {}, `${kind}, ${bytes(size)}${isCut ? ', the beginning' : ''}`));
  facts.append(element('time', { dateTime: message.timestamp }, message.timestamp.replace('T', ' ')));
  return element('li', {}, facts, element('pre', {}, text === '' ? '(empty)' : text));
}

// Asking the broker: one request at a time, in rounds that pause while nobody looks and come later while it is away.

export const everyMs = 2000;
const answerMsMax = 10_000;
const backOffMsMax = 15_000;

/** The broker answered, but not with what was asked for. */
export class Refused extends Error {
  constructor(status, { code = 'unknown', message = `the broker answered ${status}` } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether asking again later may help. */
  get isPassing() {
    return this.status >= 500;
  }
}

/** Gets a path of the broker, as text or as the whole answer in JSON. */
export async function get(path, signal, kind = 'json') {
  // Relative to the page, which may stand below a path of a proxy.
  const response = await fetch(new URL(path, document.baseURI), { signal, cache: 'no-store', headers: { Accept: kind === 'json' ? 'application/json' : 'text/plain' } });
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => undefined));
  return kind === 'json' ? response.json() : response.text();
}

/** Calls `round(ask)` again and again; never two at a time. */
export class Rounds {
  constructor(round, tell) {
    this.round = round;
    this.tell = tell;
    this.failures = 0;
    this.turn = 0;
    document.addEventListener('visibilitychange', () => this.again());
    window.addEventListener('online', () => this.again());
  }

  /** Ends what is in hand and begins a round now, unless nobody looks. */
  again() {
    this.turn += 1;
    this.control?.abort();
    clearTimeout(this.timer);
    if (!document.hidden) this.run(this.turn);
  }

  async run(turn) {
    const control = new AbortController();
    this.control = control;
    const ask = async (path, kind) => {
      const late = setTimeout(() => control.abort(), answerMsMax);
      try {
        return await get(path, control.signal, kind);
      } finally {
        clearTimeout(late);
      }
    };
    let waitMs = everyMs;
    let error;
    try {
      await this.round(ask);
    } catch (caught) {
      error = caught;
    }
    // Another round has taken its place.
    if (turn !== this.turn) return;
    if (error !== undefined) {
      waitMs = Math.min(everyMs * 2 ** this.failures, backOffMsMax);
      this.failures += 1;
    } else this.failures = 0;
    this.tell(error, waitMs);
    this.timer = setTimeout(() => this.again(), waitMs);
  }
}

/** The samples of a text exposition by family, each summed over its labels; and those of `ringmain_wal_state` that are 1. */
export function readMetrics(text) {
  const sums = new Map();
  const states = new Set();
  for (const line of text.split('\n')) {
    const [, name, labels = '', value] = /^([a-z_]+)(\{.*\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined) continue;
    sums.set(name, (sums.get(name) ?? 0) + Number(value));
    const state = name === 'ringmain_wal_state' && value === '1' && /state="([a-z]+)"/.exec(labels);
    if (state) states.add(state[1]);
  }
  return { sums, states };
}

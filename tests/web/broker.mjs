// Starts the real broker on a free port, and ends it with the test.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const binary = join(process.env.RINGMAIN_BINARY?.startsWith('/') ? '' : root, process.env.RINGMAIN_BINARY ?? 'target/debug/ringmain');
const logLinesMax = 200;

/** Starts a broker; `t` is the test, which ends it. */
export async function startBroker(t, ...flags) {
  const folder = await mkdtemp(join(tmpdir(), 'ringmain-web-'));
  const broker = new Broker(folder, flags);
  t.after(async () => {
    await broker.kill();
    await rm(folder, { recursive: true, force: true });
  });
  await broker.start();
  return broker;
}

/** Starts a broker that keeps its topics on the disk, on a port that stays free while it is down. */
export async function startLoggedBroker(t, ...flags) {
  return startBroker(t, '--storage', 'wal', '--port', String(await lastingPort()), ...flags);
}

/** A free port below those that systems give out by themselves. */
async function lastingPort() {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 20_000);
    const isFree = await new Promise((resolve) => {
      const server = createServer();
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

class Broker {
  constructor(folder, flags) {
    this.folder = folder;
    this.flags = flags.includes('--port') ? flags : ['--port', '0', ...flags];
    this.log = [];
  }

  /** Starts the program, which may have run in the folder before, and waits until it listens. */
  async start() {
    const { log } = this;
    const child = spawn(binary, ['serve', '--log-format', 'json', ...this.flags], {
      cwd: this.folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.child = child;
    this.ended = new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
    const address = await new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`the broker ended with ${code}:\n${log.join('\n')}`)));
      createInterface({ input: child.stderr }).on('line', (line) => {
        log.push(line);
        if (log.length > logLinesMax) log.shift();
        let fields;
        try {
          ({ fields } = JSON.parse(line));
        } catch {
          return;
        }
        if (fields?.message === 'listening') resolve(fields.address);
      });
    });
    this.url = `http://${address}`;
    this.port = Number(address.split(':').pop());
  }

  /** Asks the broker to end, as a supervisor of services does. */
  terminate() {
    this.child.kill('SIGTERM');
  }

  /** Ends the broker at once. */
  async kill() {
    this.child.kill('SIGKILL');
    await this.ended;
  }

  /** What a lost process and its supervisor do: SIGKILL, and the same command again. */
  async killAndRestart() {
    await this.kill();
    await this.start();
  }

  async request(method, path, body, headers = {}) {
    const response = await fetch(this.url + path, { method, body, headers });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
    return answer.data;
  }

  createTopic(name, settings = {}) {
    const body = JSON.stringify({ name, ...settings });
    return this.request('POST', '/topics', body, { 'Content-Type': 'application/json' });
  }

  deleteTopic(name) {
    return this.request('DELETE', `/topics/${encodeURIComponent(name)}`);
  }

  stats(name) {
    return this.request('GET', `/topics/${encodeURIComponent(name)}`);
  }

  /** Publishes the numbers from `first` up to but without `end` as raw bodies, one after the other. */
  async publishNumbers(name, first, end) {
    for (let number = first; number < end; number += 1) {
      await this.request('POST', `/topics/${encodeURIComponent(name)}/publish`, String(number));
    }
  }

  /** The URL of a topic's event stream, through another port when one is given. */
  streamUrl(name, query = '', port = this.port) {
    return `http://127.0.0.1:${port}/topics/${encodeURIComponent(name)}/subscribe/sse${query}`;
  }
}

/** Checks that the numbers below `end` came once each, without a gap and in order in each of so many partitions. */
export function assertWholePartitions({ partitions, offsets, payloads }, count, end) {
  const inOrder = (one, other) => one - other;
  assert.deepEqual([...payloads].sort(inOrder), range(0, end), 'each came once');
  for (const partition of range(0, count)) {
    const isOfIt = (_, index) => partitions[index] === partition;
    const numbers = payloads.filter(isOfIt);
    assert.ok(numbers.length > 0, `something came of ${partition}`);
    assert.deepEqual(offsets.filter(isOfIt), range(0, numbers.length), `the offsets of ${partition}`);
    assert.deepEqual(numbers, [...numbers].sort(inOrder), `the order of ${partition}`);
  }
}

/** The payload of a message as text. */
export function payloadOf(message) {
  return Buffer.from(message.payload, 'base64').toString();
}

/** The numbers from `first` up to but without `end`. */
export function range(first, end) {
  return Array.from({ length: end - first }, (_, index) => first + index);
}

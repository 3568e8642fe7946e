// Starts the real broker on a free port, and ends it with the test.

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
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
  const child = spawn(binary, ['serve', '--port', '0', '--log-format', 'json', ...flags], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
  const log = [];
  t.after(async () => {
    child.kill('SIGKILL');
    await ended;
    await rm(folder, { recursive: true, force: true });
  });
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
  return new Broker(address, log, child);
}

class Broker {
  constructor(address, log, child) {
    this.child = child;
    this.url = `http://${address}`;
    this.port = Number(address.split(':').pop());
    this.log = log;
  }

  /** Asks the broker to end, as a supervisor of services does. */
  terminate() {
    this.child.kill('SIGTERM');
  }

  async request(method, path, body, headers = {}) {
    const response = await fetch(this.url + path, { method, body, headers });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
    return answer.data;
  }

  createTopic(name) {
    return this.request('POST', '/topics', JSON.stringify({ name }), { 'Content-Type': 'application/json' });
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

/** The payload of a message as text. */
export function payloadOf(message) {
  return Buffer.from(message.payload, 'base64').toString();
}

/** The numbers from `first` up to but without `end`. */
export function range(first, end) {
  return Array.from({ length: end - first }, (_, index) => first + index);
}

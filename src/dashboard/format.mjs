// What the broker says as people read it: numbers, bytes, times, payloads. Pure, so that tests run it without a page.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const unitNames = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Bytes of a payload that are shown; what is longer is cut off and said so. */
export const shownBytesMax = 3072;
const hexBytesMax = 256;

export function count(number) {
  return Number.isFinite(number) ? whole.format(number) : '–';
}

/** A place in a log, as requests want it. */
export function offset(number) {
  return number === null || number === undefined ? '–' : String(number);
}

/** A number of something a second. */
export function rate(number) {
  if (!Number.isFinite(number)) return '–';
  return number > 0 && number < 100 ? tenths.format(number) : whole.format(number);
}

export function bytes(number) {
  if (!Number.isFinite(number)) return '–';
  let unit = 0;
  let rest = number;
  while (rest >= 1024 && unit < unitNames.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit > 0 && rest < 100 ? tenths.format(rest) : whole.format(rest)} ${unitNames[unit]}`;
}

/** A span of time in its two largest units. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return '–';
  const seconds = Math.floor(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ];
  const first = Math.max(parts.findIndex(([number]) => number > 0), 0);
  const told = parts.slice(first, first + 2).filter(([number], index) => index === 0 || number > 0);
  return (seconds === 0 ? [parts[3]] : told).map(([number, unit]) => `${number} ${unit}`).join(' ');
}

export function retention({ max_messages: messages, max_bytes: size, max_age_ms: age } = {}) {
  const bounds = [];
  if (messages !== undefined) bounds.push(`${count(messages)} messages`);
  if (size !== undefined) bounds.push(bytes(size));
  if (age !== undefined) bounds.push(age < 1000 ? `${age} ms` : duration(age));
  return bounds.join(', ') || 'by storage';
}

/** The offsets that a topic keeps. */
export function offsets({ earliest_offset: earliest, latest_offset: latest }) {
  if (latest < 0) return 'none yet';
  return earliest > latest ? `none below ${latest + 1}` : `${earliest} – ${latest}`;
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Text of these bytes, or nothing when they are no UTF-8. What was cut off may have split a character. */
function asText(shown, isCut) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(shown, { stream: isCut });
  } catch {
    return undefined;
  }
}

function asHex(shown) {
  const lines = [];
  for (let at = 0; at < shown.length; at += 16) {
    lines.push(Array.from(shown.subarray(at, at + 16), (byte) => byte.toString(16).padStart(2, '0')).join(' '));
  }
  return lines.join('\n');
}

/** A payload, from base64: as JSON with line ends, as text, or as hexadecimal digits; and how long it is. */
export function payload(base64) {
  const padding = base64.endsWith('==') ? 2 : Number(base64.endsWith('='));
  const size = (base64.length / 4) * 3 - padding;
  const isCut = size > shownBytesMax;
  const shown = fromBase64(isCut ? base64.slice(0, (shownBytesMax / 3) * 4) : base64);
  const text = asText(shown, isCut);
  if (text === undefined || text.includes('\0')) {
    const isShort = size <= hexBytesMax;
    return { kind: 'bytes', size, text: asHex(shown.subarray(0, hexBytesMax)), isCut: !isShort };
  }
  if (!isCut && /^\s*[{[]/.test(text)) {
    try {
      JSON.parse(text);
      return { kind: 'JSON', size, text: indented(text), isCut };
    } catch {
      // It only looked like JSON.
    }
  }
  return { kind: 'text', size, text, isCut };
}

/** Valid JSON with a line for each member. Its own letters stay: parsed and written again, long numbers would change. */
export function indented(json) {
  let out = '';
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === '{' || token === '[') {
      depth += 1;
      out += token + line();
    } else if (token === '}' || token === ']') {
      depth -= 1;
      const isEmpty = /[{[]\s*$/.test(out.slice(-2 * depth - 4));
      out = (isEmpty ? out.trimEnd() : out + line()) + token;
    } else if (token === ',') out += token + line();
    else out += token === ':' ? ': ' : token;
  }
  return out;
}

/** What of a message's fields came as text, or else in base64. */
export function textOr64(text, base64) {
  if (text !== undefined) return String(text);
  return base64 === undefined ? undefined : `${base64} (base64)`;
}

/** A message's headers as pairs; one with several values gives several. */
export function headerPairs({ headers = {}, headers_base64: encoded = {} }) {
  const pairs = [];
  for (const [name, values] of Object.entries(headers)) {
    for (const value of [values].flat()) pairs.push([name, textOr64(value)]);
  }
  for (const [name, values] of Object.entries(encoded)) {
    for (const value of [values].flat()) pairs.push([name, textOr64(undefined, value)]);
  }
  return pairs;
}

// Pages of a list by cursors: the broker says where the next page begins, the way back is remembered. Pure.

/** A text that stands just before all that begin with `text` in the order of names: as a cursor, it makes the page begin there. */
export function justBefore(text) {
  const letters = Array.from(text);
  const last = letters.pop();
  if (last === undefined) return undefined;
  const code = last.codePointAt(0);
  if (code === 0) return letters.join('') || undefined;
  // Surrogates are no letters: before the first one after them comes the last one before them.
  const before = code === 0xe000 ? 0xd7ff : code - 1;
  return `${letters.join('')}${String.fromCodePoint(before)}\u{10ffff}`;
}

export class Pager {
  constructor(limit) {
    this.limit = limit;
    this.first();
  }

  /** The cursor of this page; none for the first. */
  get cursor() {
    return this.cursors.at(-1);
  }

  get isFirst() {
    return this.cursors.length === 1 && this.cursor === undefined;
  }

  get hasBefore() {
    return this.cursors.length > 1;
  }

  first() {
    this.cursors = [undefined];
    this.following = undefined;
  }

  /** Begins with the first name from `text` on. */
  jump(text) {
    this.first();
    const cursor = justBefore(text);
    if (cursor !== undefined) this.cursors.push(cursor);
  }

  /** Notes where the next page begins, as the answer said. */
  note(nextCursor) {
    this.following = nextCursor;
  }

  next() {
    if (this.following === undefined) return;
    this.cursors.push(this.following);
    this.following = undefined;
  }

  back() {
    if (this.cursors.length > 1) this.cursors.pop();
    this.following = undefined;
  }

  path(limit = this.limit, cursor = this.cursor) {
    return cursor === undefined ? `topics?limit=${limit}` : `topics?limit=${limit}&cursor=${encodeURIComponent(cursor)}`;
  }
}

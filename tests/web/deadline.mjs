// Waiting for a condition with a deadline: the one place of these tests that waits for time to pass.

// Far above what any of it takes, so that a loaded machine fails nothing.
const limitMs = 30_000;

/** Polls `condition` until it is truthy and gives its value; throws with `what` when the deadline has passed. */
export async function waitUntil(what, condition) {
  const until = Date.now() + limitMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > until) throw new Error(`waited ${limitMs} ms in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

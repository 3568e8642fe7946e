// The page: its tabs, and the rounds of questions of the view that is shown.

import { byId, setText } from './elements.mjs';
import { Lag } from './lag.mjs';
import { Live, readAddress } from './live.mjs';
import { Overview } from './overview.mjs';
import { Refused, Rounds } from './requests.mjs';
import { Topics } from './topics.mjs';

const tabs = Array.from(document.querySelectorAll('[role="tab"]'));
const names = tabs.map((tab) => tab.hash.slice(1));
const state = byId('state');

const overview = new Overview();
const live = new Live();
const rounds = new Rounds(round, tellState);
const askNow = () => rounds.again();
const views = { overview, topics: new Topics(askNow), lag: new Lag(askNow), live };
let shown = '';

async function round(ask) {
  const { data: health } = await ask('health');
  setText(byId('version'), health.version);
  await overview.measure(ask, health);
  await views[shown].poll?.(ask, overview.topics);
}

function tellState(error, waitMs) {
  const isAway = error !== undefined && (!(error instanceof Refused) || error.isPassing);
  document.body.toggleAttribute('data-away', isAway);
  state.dataset.state = error === undefined ? 'good' : 'bad';
  const seconds = Math.round(waitMs / 1000);
  if (error === undefined) setText(state, 'The broker answers');
  else if (error instanceof Refused) setText(state, `${error.message} (${error.code})`);
  else setText(state, `The broker does not answer; next attempt in ${seconds} s`);
}

/** Shows what the address names: a tab, and for the live feed a topic behind a slash. */
function show() {
  const address = location.hash.slice(1);
  const slash = address.indexOf('/');
  const name = slash < 0 ? address : address.slice(0, slash);
  const next = names.includes(name) ? name : names[0];
  for (const tab of tabs) {
    const isShown = tab.hash === `#${next}`;
    tab.setAttribute('aria-selected', String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    byId(tab.getAttribute('aria-controls')).hidden = !isShown;
  }
  document.title = `${tabs[names.indexOf(next)].textContent} – Ringmain`;
  if (next === 'live') live.open(readAddress(slash < 0 ? '' : address.slice(slash + 1)));
  if (next !== shown) {
    shown = next;
    askNow();
  }
}

function onKey(event) {
  const at = tabs.indexOf(event.currentTarget);
  const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 };
  if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const next = tabs[(steps[event.key] + tabs.length) % tabs.length];
  next.focus();
  location.hash = next.hash;
}

for (const tab of tabs) {
  tab.dataset.text = tab.textContent;
  tab.addEventListener('keydown', onKey);
  // Space presses a tab, as it presses a button.
  tab.addEventListener('keyup', (event) => event.key === ' ' && tab.click());
}
window.addEventListener('hashchange', show);
show();

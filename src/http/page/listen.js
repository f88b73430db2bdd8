// The connection to the daemon: everything at the beginning, then what is new each second.

import { shownCritic } from '/address.js';
import { $, say } from '/dom.js';
import { apply, begin, known } from '/known.js';
import { grouped } from '/words.js';

// Beyond this the history is asked for again: the daemon thins what is old.
const POINTS = 2600;
let asking = false;
/** When the connection was lost, milliseconds; null while it stands. @type {?number} */
let lost = null;

/** Follow the daemon: `met` is called when all is known anew, `heard` at each news. */
export function listen(met, heard) {
  const events = new EventSource('/api/events');
  events.onopen = () => {
    live('live', 'live');
    ask(met);
  };
  events.onerror = () => {
    lost ??= Date.now();
    const since = new Date(lost).toLocaleTimeString([], { hour12: false });
    live('lost', `no connection to the daemon since ${since}; retrying`);
    progress();
    // A browser gives up after a refusal (too many pages, a daemon that starts); we do not.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => listen(met, heard), 2000);
  };
  events.onmessage = ({ data }) => {
    const news = JSON.parse(data);
    live('live', 'live');
    if (asking || news.number === known.number) return;
    const times = known.history.time ?? [];
    if (news.number !== known.number + 1 || !known.columns.length || times.length > POINTS) {
      ask(met);
      return;
    }
    const first = !known.status;
    apply(news);
    if (first) met();
    else heard();
  };
}

/** Ask for everything, the past of the shown critic included. @param {() => void} met called when it is known */
export async function ask(met) {
  if (asking) return;
  asking = true;
  const shown = shownCritic();
  try {
    const reply = await fetch(`/api/history${shown === null ? '' : `?${new URLSearchParams({ critic: shown })}`}`);
    if (reply.ok) begin(await reply.json());
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
  // Another critic may have been chosen meanwhile: its past is still to come.
  if (shown !== null && shownCritic() !== shown) ask(met);
  else met();
}

/** While a daemon starts it tells how much of its journal it has learned again. */
async function progress() {
  try {
    const reply = await fetch('/api/status');
    const { starting } = await reply.json();
    if (!starting || lost === null) return;
    const share = starting.of ? `${Math.floor((100 * starting.rows) / starting.of)} % of ${grouped(starting.of)} rows learned again` : 'soon';
    live('lost', `the daemon starts: ${share}`);
  } catch {
    /* there is no daemon */
  }
}

function live(state, words) {
  if (state === 'live') lost = null;
  $('live').dataset.state = state;
  document.body.classList.toggle('gone', state === 'lost');
  say($('live-text'), words);
}

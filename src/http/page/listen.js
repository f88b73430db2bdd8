// The connection to the daemon: everything at the beginning, then what is new each second.

import { $, say } from '/dom.js';
import { apply, begin, known } from '/known.js';

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

async function ask(met) {
  if (asking) return;
  asking = true;
  try {
    const reply = await fetch('/api/history');
    if (reply.ok) begin(await reply.json());
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
  met();
}

function live(state, words) {
  if (state === 'live') lost = null;
  $('live').dataset.state = state;
  document.body.classList.toggle('gone', state === 'lost');
  say($('live-text'), words);
}

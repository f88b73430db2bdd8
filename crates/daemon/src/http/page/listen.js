// The connection to the daemon: everything at the beginning, then what is new each second.

import { shownCritic } from '/address.js';
import { $, say } from '/dom.js';
import { apply, begin, critic, known } from '/known.js';
import { grouped } from '/words.js';

// Beyond this the history is asked for again: the daemon thins what is old.
const POINTS = 2600;
/** News that are held while the page stands still: five minutes. Of more the beginning is asked for instead. */
const HELD = 300;
let asking = false;
/** The news that have come since the page stands still, oldest first; null while it follows. @type {?any[]} */
let held = null;
/** Whether more has happened meanwhile than is held. */
let missed = false;
/** What is done when all is known anew, at each news, and when the daemon no longer answers or answers again. */
let on = { met: () => {}, heard: () => {}, left: () => {} };
/** The connection on which the news of the chosen critic come. @type {?EventSource} */
let events = null;
/** What is done in place of that when another critic has been asked for. @type {?() => void} */
let arrived = null;

const query = (/** @type {?string} */ shown) => (shown === null ? '' : `?${new URLSearchParams({ critic: shown })}`);

/** Follow the daemon. @param {typeof on} hearers */
export function listen(hearers) {
  on = hearers;
  connect();
}

/** Another critic has been chosen: its news are followed, its past is asked for, and then `done` called. What is held is of the other one. @param {() => void} done */
export function turn(done) {
  arrived = done;
  [held, missed] = [null, false];
  connect();
  ask();
}

/** Stand still: nothing of what is known changes, so that what is read, pointed at and saved stays one moment. */
export function stand() {
  held ??= [];
}

/** Follow again, with what has come meanwhile. */
export function goOn() {
  const news = held ?? [];
  const lost = missed;
  [held, missed] = [null, false];
  if (lost) ask();
  else if (news.length && news.every(taken)) on.heard();
}

/** Take in news. Where they do not follow on what is known, all is asked for again, and the answer is false. @param {any} news */
function taken(news) {
  const times = known.history.time ?? [];
  if (news.number !== known.number + 1 || !known.status || times.length > POINTS) ask();
  // A daemon that has started again with other critics.
  else if (news.critic !== critic().name) connect();
  else {
    apply(news);
    return true;
  }
  return false;
}

function connect() {
  events?.close();
  const own = new EventSource(`/api/events${query(shownCritic())}`);
  events = own;
  own.onopen = () => {
    live('live', 'live');
    // The daemon may be another one, or news may have been missed.
    if (held) missed = true;
    else ask();
  };
  own.onerror = () => {
    const now = Date.now();
    const since = new Date(known.lost ?? now).toLocaleTimeString([], { hour12: false });
    live('lost', `no connection to the daemon since ${since}; retrying`, now);
    progress();
    // A browser gives up after a refusal (too many pages, a daemon that starts); we do not.
    if (own.readyState === EventSource.CLOSED) setTimeout(() => events === own && connect(), 2000);
  };
  own.onmessage = ({ data }) => {
    const news = JSON.parse(data);
    live('live', 'live');
    if (held) {
      missed ||= held.length === HELD;
      // Where all is asked for again none of them is needed.
      if (missed) held = [];
      else held.push(news);
      return;
    }
    if (asking || news.number === known.number) return;
    if (taken(news)) on.heard();
  };
}

function live(/** @type {string} */ state, /** @type {string} */ words, now = Date.now()) {
  const turned = (state === 'lost') !== (known.lost !== null);
  known.lost = state === 'lost' ? (known.lost ?? now) : null;
  said(state, words);
  if (turned) on.left();
}

/** Ask for everything, the past of the shown critic included. */
async function ask() {
  if (asking) return;
  asking = true;
  const shown = shownCritic();
  try {
    const reply = await fetch(`/api/history${query(shown)}`);
    const all = reply.ok ? await reply.json() : null;
    // Asked before the page stood still.
    if (held) missed = true;
    else if (all) begin(all);
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
  // Another critic may have been chosen meanwhile: its past is still to come.
  if (shown !== null && shownCritic() !== shown) {
    ask();
    return;
  }
  const done = arrived ?? on.met;
  arrived = null;
  done();
}

/** While a daemon starts it tells how much of its journal it has learned again. */
async function progress() {
  try {
    const reply = await fetch('/api/status');
    const { starting } = await reply.json();
    if (!starting || known.lost === null) return;
    const share = starting.of ? `${Math.floor((100 * starting.rows) / starting.of)} % of ${grouped(starting.of)} rows learned again` : 'soon';
    said('lost', `the daemon starts: ${share}`);
  } catch {
    /* there is no daemon */
  }
}

function said(/** @type {string} */ state, /** @type {string} */ words) {
  $('live').dataset.state = state;
  document.body.classList.toggle('gone', state === 'lost');
  say($('live-text'), words);
}

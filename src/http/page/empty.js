// What is said before there is a model to show.

import { $, say } from '/dom.js';
import { critic, known } from '/known.js';
import { grouped } from '/words.js';

/** A sender of states of `dim` numbers. @param {number} dim */
function example(dim) {
  const numbers = (/** @type {string} */ each) => `[${Array(dim).fill(each).join(', ')}]`;
  return `from criticd import Sender

with Sender(stream="walker") as sender:
    for step in range(1000):        # your robot instead: state, reward, next state
        sender.send(${numbers('0.0')}, -1.0, ${numbers('0.1')}, truncated=step % 50 == 49)`;
}

/** Show the page's parts, or why there is nothing in them yet. */
export function empty() {
  const s = known.status;
  const c = critic();
  const ready = s && c?.kernel && known.states?.median.length;
  $('empty').hidden = Boolean(ready);
  for (const id of ['view', 'selection']) $(id).hidden = !ready;
  // Along trajectories and over errors there is the value of states alone.
  for (const id of ['trajectory', 'wrong', 'trio', 'heads']) $(id).hidden = !ready || Boolean(c.actions);
  $('time').hidden = !s || s.offset === 0;
  if (ready) return;
  const none = !s || s.offset === 0;
  $('empty-how').hidden = !s || !none;
  $('empty-progress').hidden = true;
  if (!s) {
    say($('empty-title'), 'Waiting for the daemon');
    say($('empty-text'), 'A running daemon sends its status every second.');
  } else if (c.failed) {
    say($('empty-title'), `The critic ${c.name} has failed`);
    say($('empty-text'), `It has stopped learning: ${c.failed}. The other critics continue. Please report this with the log.`);
  } else if (none) {
    say($('empty-title'), 'No rows yet');
    say($('empty-text'), `Send some transitions to ${known.endpoints.ingest}. In Python:`);
    say($('empty-code'), example(s.state_dim ?? known.stateDim ?? 1));
  } else {
    const needed = c.warmup_rows;
    say($('empty-title'), `${grouped(s.offset)} of ${grouped(needed)} rows`);
    say($('empty-text'), `The first model appears after ${grouped(needed)} rows (warmup_rows).`);
    $('empty-progress').hidden = false;
    $('empty-progress').value = Math.min(1, s.offset / needed);
  }
}

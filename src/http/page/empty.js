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
  // Values of actions have no map: its axes are variables of the state alone.
  const ofActions = Boolean(c?.kernel && c.actions);
  const ready = s && c?.kernel && !c.actions && known.states?.median.length;
  $('empty').hidden = Boolean(ready);
  for (const id of ['view', 'trajectory', 'wrong', 'trio', 'heads']) $(id).hidden = !ready;
  $('selection').hidden = !ready && !ofActions;
  $('time').hidden = !s || s.offset === 0;
  if (ready) return;
  const none = !s || (s.offset === 0 && !ofActions);
  $('empty-how').hidden = !s || !none;
  $('empty-progress').hidden = true;
  if (!s) {
    say($('empty-title'), 'Waiting for the daemon');
    say($('empty-text'), 'A running daemon sends its status every second.');
  } else if (c.failed) {
    say($('empty-title'), `The critic ${c.name} has failed`);
    say($('empty-text'), `It has stopped learning: ${c.failed}. The other critics continue. Please report this with the log.`);
  } else if (ofActions) {
    say($('empty-title'), `${c.name} learns values of actions`);
    say($('empty-text'), 'Their map is not drawn. The requests value and act answer with them; criticd status shows the model.');
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

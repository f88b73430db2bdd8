// What is said before there is a model to show.

import { unverified } from '/actions.js';
import { $, say } from '/dom.js';
import { critic, known } from '/known.js';
import { grouped } from '/words.js';

/** Where rows are sent to: a daemon that listens everywhere is reached where its page is. @returns {string} */
const ingest = () => known.endpoints.ingest.replace(/\/\/(0\.0\.0\.0|\[::\]|\*):/, `//${location.hostname}:`);

/** A sender of states of `dim` numbers. @param {number} dim */
function example(dim) {
  const numbers = (/** @type {string} */ each) => `[${Array(dim).fill(each).join(', ')}]`;
  const action = critic()?.actions ? ', action=0' : '';
  return `from criticd import Sender

with Sender("${ingest()}", stream="walker") as sender:
    for step in range(1000):
        # your robot instead: state, reward, next state
        sender.send(${numbers('0.0')}, -1.0, ${numbers('0.1')}, truncated=step % 50 == 49${action})`;
}

/** Numbers of a state of the simulated pendulum. */
const PENDULUM = 2;

/** A command that lets a simulator send: to this daemon where that fits its settings, else to one of its own. @returns {[string, string]} */
function demo() {
  const s = /** @type {import('/known.js').Status} */ (known.status);
  const dim = s.state_dim ?? known.stateDim ?? PENDULUM;
  const fits = dim === PENDULUM && s.critics.every((each) => !each.actions);
  if (!s.data_dir || !fits) return ['Or watch a simulator, which a daemon of its own learns:', 'criticd demo pendulum --open'];
  const folder = /^[\w./-]+$/.test(s.data_dir) ? s.data_dir : `'${s.data_dir.replaceAll("'", "'\\''")}'`;
  return ['Or let a simulated pendulum send to this daemon, on its machine:', `criticd demo pendulum --into=${folder}`];
}

/** Show the page's parts, or why there is nothing in them yet. */
export function empty() {
  const s = known.status;
  const c = critic();
  const ready = s && c?.kernel && known.states?.median.length;
  $('empty').hidden = Boolean(ready);
  for (const id of ['view', 'selection']) $(id).hidden = !ready;
  for (const id of ['trajectory', 'relevance-card', 'trio']) $(id).hidden = !ready;
  $('heads').hidden = !ready || Boolean(c.actions);
  if (!ready) $('wrong').hidden = true;
  $('calibration-card').hidden = unverified();
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
    say($('empty-text'), `Send some transitions to ${ingest()}. In Python:`);
    const [what, command] = demo();
    say($('empty-demo-text'), what);
    say($('empty-demo'), command);
    say($('empty-code'), example(s.state_dim ?? known.stateDim ?? 1));
  } else {
    const needed = c.warmup_rows;
    say($('empty-title'), `${grouped(s.offset)} of ${grouped(needed)} rows`);
    say($('empty-text'), `The first model appears after ${grouped(needed)} rows (warmup_rows). Until then values of states are provisional, of the rows so far.`);
    $('empty-progress').hidden = false;
    $('empty-progress').value = Math.min(1, s.offset / needed);
  }
}

// Where each stream is now: marks on the pictures, and the place in words.

import { rangeOf } from '/axes.js';
import { $, say } from '/dom.js';
import { axesNow, chosen, critic, inUnit, plain } from '/known.js';
import { shownStream } from '/path.js';
import { markers } from '/value.js';
import { format, grouped } from '/words.js';

/** Milliseconds between two questions under the same axes. */
const EVERY_MS = 900;

let asked = { key: '', at: 0 };
let asking = false;

/** "arm is at angle 0.3 rad, speed −2" @param {{stream: string, at: number[], silent: boolean}} robot */
function where({ stream, at, silent }) {
  const place = axesNow().map((k, j) => `${plain(Number(k))} ${inUnit(Number(k), format(at[j], 3))}`);
  const outside = axesNow().some((k, j) => at[j] < rangeOf(Number(k))[0] || at[j] > rangeOf(Number(k))[1]);
  return `${stream} is${silent ? ' silent' : ''} at ${place.join(', ')}${outside ? ', outside of the picture' : ''}`;
}

/** Ask where the streams are, and show it. */
export async function learnRobots() {
  if (asking || document.hidden || chosen.x === null || $('view').hidden) return;
  const query = new URLSearchParams({ critic: critic().name, x: String(chosen.x) });
  if (chosen.y !== null) query.set('y', String(chosen.y));
  const key = query.toString();
  if (key === asked.key && Date.now() - asked.at < EVERY_MS) return;
  asking = true;
  asked = { key, at: Date.now() };
  try {
    const reply = await fetch(`/api/newest?${query}`);
    // Axes may have changed meanwhile.
    if (reply.ok && axesNow().length === (query.has('y') ? 2 : 1)) shown(await reply.json());
  } catch {
    /* the event stream says that the daemon is away */
  }
  asking = false;
}

/** @param {{stream: string, at: number[], silent: boolean}[]} robots */
function shown(robots) {
  const own = robots.find(({ stream }) => stream === shownStream()) ?? (robots.length === 1 ? robots[0] : null);
  markers(robots.map((robot) => ({ ...robot, own: robot === own })));
  const words = own ? where(own) : '';
  const others = robots.length - (own ? 1 : 0);
  const more = others > 0 ? `${own ? '; ' : ''}${grouped(others)} ${own ? 'more ' : ''}${others === 1 ? 'stream' : 'streams'} marked` : '';
  say($('robots'), robots.length ? `◆ ${words}${more}` : '');
}

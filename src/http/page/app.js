// The page: its parts put together, and what its controls do.

import { addressedCritic, addressedSpan, addressedView, note } from '/address.js';
import { axes, choices, chooseAxes, medians, standAt } from '/axes.js';
import { calibrationCard, calibrationColumns } from '/calibration.js';
import { readTheme } from '/canvas.js';
import { modelCard, streams, vitals } from '/cards.js';
import { $, el, remembered } from '/dom.js';
import { empty } from '/empty.js';
import { buildErrors, learnErrors, showErrors } from '/errors.js';
import { chosen, critic, known } from '/known.js';
import { listen } from '/listen.js';
import { markList } from '/marks.js';
import { buildPath, follow, pathChoices, pathColumns } from '/path.js';
import { learnShares, ranked, relevanceCard } from '/relevance.js';
import { csvButton, pngButton } from '/save.js';
import { buildLines, timelines } from '/time.js';
import { trust } from '/trust.js';
import { blank, forget, heads, see, show } from '/value.js';

/** Whether the page stands still while its reader looks. */
let paused = false;
/** What the last pictures were drawn from. */
let revision = '';

/** Everything as it is known now. */
function render() {
  empty();
  if (!known.status) return;
  vitals();
  trust();
  streams();
  markList();
  if (!$('view').hidden) {
    learnShares();
    axes();
    arrive();
    note();
    modelCard();
    relevanceCard();
    calibrationCard();
    headChoice();
    pathChoices();
    const c = critic();
    const now = `${chosen.critic} ${chosen.x} ${chosen.y} ${c.generation} ${c.revision} ${c.learned}`;
    if (now !== revision || blank()) {
      revision = now;
      see();
    }
    follow();
    learnErrors();
  }
  timelines();
}

/** Go where the address says, once the axes are there. */
function arrive() {
  if (chosen.x === null) return;
  const view = addressedView();
  if (view?.axes) chooseAxes(view.axes[0], view.axes[1]);
  if (view?.state) standAt(view.state);
}

/** The reader has chosen something else to see. */
function seen() {
  note();
  see();
  follow(true);
  learnErrors();
}

/** A daemon is met, or another critic chosen. */
function met() {
  if (known.status) {
    chosen.critic = addressedCritic();
    choices(seen);
    forget();
  }
  render();
}

function headChoice() {
  const count = heads();
  $('head-choice').hidden = count < 2;
  if ($('head').childElementCount !== count) {
    $('head').replaceChildren(
      ...Array.from({ length: count }, (_, k) => el('option', { value: k, textContent: String(k) })),
    );
    $('head').value = chosen.head;
  }
}

function controls() {
  $('axis-x').addEventListener('change', () => {
    const x = Number($('axis-x').value);
    chooseAxes(x, x === chosen.y ? chosen.x : chosen.y);
  });
  $('axis-y').addEventListener('change', () => {
    const y = $('axis-y').value === '' ? null : Number($('axis-y').value);
    chooseAxes(y === chosen.x ? (chosen.y ?? ranked().find((k) => k !== y) ?? null) : chosen.x, y);
  });
  $('swap').addEventListener('click', () => chooseAxes(chosen.y, chosen.x));
  $('medians').addEventListener('click', () => {
    medians();
    seen();
  });
  for (const id of ['show-dictionary', 'show-recent', 'fade']) $(id).addEventListener('change', show);
  $('head').addEventListener('change', () => {
    chosen.head = Number($('head').value);
    seen();
  });
  $('critic').addEventListener('change', () => {
    chosen.critic = Number($('critic').value);
    met();
  });
  document.addEventListener('visibilitychange', () => !document.hidden && render());
}

const dark = matchMedia('(prefers-color-scheme: dark)');

/** Take on a theme; the system's without a name. @param {?string} [name] */
function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  readTheme();
  show();
  showErrors();
  if (known.status) render();
}

$('theme').addEventListener('click', () => {
  const now = document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light');
  const next = now === 'dark' ? 'light' : 'dark';
  remembered.set('theme', next);
  theme(next);
});
dark.addEventListener('change', () => theme());

$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', String(paused));
  if (!paused) render();
});
for (const [id, name] of [
  ['map-value', 'value'],
  ['map-deviation', 'deviation'],
  ['map-error', 'error'],
  ['path', 'trajectory'],
  ['calibration', 'calibration'],
]) {
  $(`${id}-save`).append(pngButton($(id), name));
}
$('path-save').append(csvButton('trajectory', pathColumns));
$('calibration-save').append(csvButton('calibration', calibrationColumns));
chosen.span = addressedSpan() ?? chosen.span;
controls();
buildLines();
buildPath();
buildErrors();
theme(remembered.get('theme'));
render();
listen(met, () => paused || render());

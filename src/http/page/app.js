// The page: its parts put together, and what its controls do.

import { ofActions } from '/actions.js';
import { addressedCritic, addressedSpan, addressedView, leave, note } from '/address.js';
import { averageOthers, axes, choices, chooseAxes, medians, standAt } from '/axes.js';
import { calibrationCard, calibrationColumns } from '/calibration.js';
import { readTheme, repaint } from '/canvas.js';
import { modelCard, streams, vitals } from '/cards.js';
import { againstChoices } from '/compare.js';
import { buildCritics, criticList } from '/critics.js';
import { $, el, remembered } from '/dom.js';
import { empty } from '/empty.js';
import { episodeColumns, episodesCard } from '/episodes.js';
import { buildErrors, errorColumns, learnErrors, showErrors, worstColumns } from '/errors.js';
import { buildGlossary } from '/glossary.js';
import { buildHeads, learnHeads } from '/heads.js';
import { chosen, critic, dim, known } from '/known.js';
import { ask, listen } from '/listen.js';
import { markList } from '/marks.js';
import { buildPath, follow, pathChoices, pathColumns } from '/path.js';
import { learnShares, ranked, relevanceCard, shareColumns } from '/relevance.js';
import { saveButtons } from '/save.js';
import { buildLines, timeColumns, timeParts, timelines } from '/time.js';
import { trust } from '/trust.js';
import { blank, forget, heads, see, show, valueColumns } from '/value.js';

/** Whether the page stands still while its reader looks. */
let paused = false;
/** Whether everything has been asked for again meanwhile. */
let missed = false;
/** The critics that the controls were made for. */
let laidOut = '';
/** What the last pictures were drawn from. */
let revision = '';

/** Everything as it is known now. */
function render() {
  empty();
  if (!known.status) return;
  vitals();
  criticList();
  trust();
  streams();
  markList();
  if (critic().kernel) modelCard();
  episodesCard();
  if (!$('view').hidden) {
    if (!ofActions()) learnShares();
    axes();
    againstChoices();
    arrive();
    note();
    if (!ofActions()) ofStates();
    headChoice();
    const c = critic();
    const now = `${chosen.critic} ${chosen.x} ${chosen.y} ${c.generation} ${c.revision} ${c.learned}`;
    if (now !== revision || blank()) {
      revision = now;
      see();
    }
    if (!ofActions()) {
      follow();
      learnErrors();
    }
  }
  timelines();
}

/** The parts that values of states alone have. */
function ofStates() {
  relevanceCard();
  learnHeads();
  calibrationCard();
  pathChoices();
}

/** Go where the address says, once the axes are there. */
function arrive() {
  if (chosen.x === null) return;
  const view = addressedView();
  if (view?.axes) chooseAxes(view.axes[0], view.axes[1]);
  if (view?.state) standAt(view.state);
  if (view?.average) averageOthers(true);
  if (view?.against) {
    chosen.against = view.against;
    againstChoices();
    see();
  }
}

/** The reader has chosen something else to see. */
function seen() {
  note();
  see();
  if (ofActions()) return;
  follow(true);
  learnErrors();
}

/** Which critics there are, and which of them is shown. */
const layout = () => JSON.stringify([chosen.critic, known.status?.critics.map(({ name }) => name)]);

/** A daemon is met, all has been asked for again, or another critic chosen: where the reader looks stays if it can. */
function met() {
  missed = false;
  if (known.status) {
    chosen.critic = addressedCritic();
    const sized = chosen.x === null || Object.keys(chosen.at).length === dim();
    if (layout() !== laidOut || !sized) {
      choices(seen);
      forget();
      laidOut = layout();
    }
  }
  render();
}

/** Show what has come, unless the page stands still; `all` says that everything was asked for again. */
function follows(/** @type {boolean} */ all) {
  missed ||= all;
  if (paused) return;
  if (missed) met();
  else render();
}

/** Another critic has been chosen: its past is asked for, and meanwhile its present shown. */
function other() {
  leave();
  met();
  ask(met);
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
  $('mode').addEventListener('change', () => averageOthers($('mode').value === 'average'));
  $('against').addEventListener('change', () => {
    chosen.against = $('against').value;
    seen();
  });
  for (const id of ['show-dictionary', 'show-recent', 'fade']) $(id).addEventListener('change', show);
  $('head').addEventListener('change', () => {
    chosen.head = Number($('head').value);
    againstChoices();
    seen();
  });
  $('critic').addEventListener('change', () => {
    chosen.critic = Number($('critic').value);
    other();
  });
  buildCritics((k) => {
    chosen.critic = k;
    other();
  });
  document.addEventListener('visibilitychange', () => document.hidden || follows(false));
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
  follows(false);
});
/** The words above a picture: what its card is about, and the slice. @param {string} id */
function titleOf(id) {
  const card = $(id).closest('figure, section');
  const words = (/** @type {string} */ selector) => card.querySelector(selector)?.textContent.trim() ?? '';
  const first = [words('b, h2'), words('figcaption b + span')].filter(Boolean).join(': ');
  return [first, id.startsWith('map-') ? $('slice').textContent : words('.hint')];
}

/** What the buttons of each picture save. @type {[string, string, () => ?Record<string, any>][]} */
const SAVED = [
  ['map-value', 'value', valueColumns],
  ['map-other', 'compared', valueColumns],
  ['map-difference', 'difference', valueColumns],
  ['map-deviation', 'deviation', valueColumns],
  ['map-chosen', 'action', valueColumns],
  ['episodes-plot', 'episodes', episodeColumns],
  ['map-error', 'error', errorColumns],
  ['path', 'trajectory', pathColumns],
  ['calibration', 'calibration', calibrationColumns],
];
for (const [id, name, columns] of SAVED) {
  const part = () => [{ canvas: $(id), paint: () => repaint($(id)), title: titleOf(id) }];
  saveButtons($(`${id}-save`), name, part, columns);
}
saveButtons($('time-save'), 'over-time', timeParts, timeColumns);
saveButtons($('worst-save'), 'worst-states', null, worstColumns);
saveButtons($('relevance-save'), 'relevance', null, shareColumns);
chosen.span = addressedSpan() ?? chosen.span;
buildGlossary();
controls();
buildLines();
buildPath();
buildErrors();
buildHeads();
theme(remembered.get('theme'));
render();
listen(
  () => follows(true),
  () => follows(false),
);

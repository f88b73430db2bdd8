// The page: its parts put together, and what its controls do.

import { ofActions, unverified } from '/actions.js';
import { addressedCritic, addressedSpan, addressedView, leave, note } from '/address.js';
import { averageOthers, axes, buildSliders, choices, chooseAxes, medians, sliceWords, standAt, zoom } from '/axes.js';
import { calibrationCard, calibrationColumns, groupColumns, groupParts } from '/calibration.js';
import { readTheme, repaint } from '/canvas.js';
import { modelCard, modelColumns, refusedColumns, streamColumns, streamRows, streams, vitals } from '/cards.js';
import { againstChoices } from '/compare.js';
import { buildCritics, criticList } from '/critics.js';
import { buildCourse, courseColumns, courseParts, learnCourse, showCourse, toldCourse } from '/course.js';
import { $, el, rememberFolds, remembered } from '/dom.js';
import { empty } from '/empty.js';
import { episodeColumns, episodesCard } from '/episodes.js';
import { buildErrors, errorColumns, learnErrors, showErrors, worstColumns, worstRows } from '/errors.js';
import { buildGlossary } from '/glossary.js';
import { buildHeads, headColumns, headRows, learnHeads } from '/heads.js';
import { chosen, critic, dim, known, rewardName } from '/known.js';
import { goOn, listen, stand, turn } from '/listen.js';
import { markColumns, markList, markRows } from '/marks.js';
import { buildPath, follow, pathChoices, pathColumns } from '/path.js';
import { buildPlan, learnPlan, planColumns, showPlan, toldPlan } from '/plan.js';
import { learnShares, ranked, relevanceCard, shareColumns, shareRows } from '/relevance.js';
import { learnRobots } from '/robots.js';
import { listPart, saveButtons, wrapped } from '/save.js';
import { lookBack, onLookingBack } from '/then.js';
import { buildLines, timeColumns, timeParts, timelines } from '/time.js';
import { trust } from '/trust.js';
import { blank, forget, heads, onZooming, see, show, valueColumns } from '/value.js';

/** Whether the page stands still while its reader looks: only what the reader then chooses is asked for. */
let paused = false;
/** The critics that the controls were made for. */
let laidOut = '';
/** What the last pictures were drawn from. */
let revision = '';

/** Everything as it is known now. */
function render() {
  // A critic that has just been chosen is not known yet.
  if (critic()?.brief) return;
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
    if (!paused) learnShares();
    axes();
    againstChoices();
    arrive();
    note();
    relevanceCard();
    pathChoices();
    if (!ofActions() && !paused) learnHeads();
    if (!unverified()) calibrationCard();
    headChoice();
    const c = critic();
    const now = `${chosen.critic} ${chosen.x} ${chosen.y} ${c.generation} ${c.revision} ${c.learned}`;
    if (now !== revision || blank()) {
      revision = now;
      see();
    }
    if (!paused) {
      suppose();
      learnNewest();
    }
  }
  timelines();
}

/** What the reader asks the model of the transition. */
function suppose() {
  // The event stream says that the daemon is away.
  learnPlan().catch(() => null);
  learnCourse().catch(() => null);
}

/** What comes with new rows. */
function learnNewest() {
  learnRobots();
  follow();
  learnErrors();
}

/** Go where the address says, once the axes are there. */
function arrive() {
  if (chosen.x === null) return;
  const view = addressedView();
  if (view?.axes) chooseAxes(view.axes[0], view.axes[1]);
  if (view?.part) zoom(view.part);
  if (view?.state) standAt(view.state);
  if (view?.average && !ofActions()) averageOthers(true);
  if (view) Object.assign(chosen, { head: view.reward, error: view.error, named: view.named });
  $('error-kind', HTMLSelectElement).value = chosen.error;
  if (view?.reward) see();
  if (view?.plan || view?.course) {
    Object.assign(chosen, { plan: view.plan, course: view.course });
    toldPlan();
    toldCourse();
  }
  if (view?.against || view?.earlier != null || view?.then != null) {
    Object.assign(chosen, { against: view.against, earlier: view.earlier, then: view.then });
    againstChoices();
    see();
  }
}

/** The reader has chosen something else to see. */
function seen() {
  againstChoices();
  suppose();
  note();
  see();
  learnRobots();
  follow(true);
  learnErrors();
}

/** Show the map of a head, or the map of the value. @param {?string} name */
function showHead(name) {
  chosen.named = name;
  if (name !== null) chosen.against = '';
  againstChoices();
  seen();
  if (name !== null) $('view').scrollIntoView({ behavior: 'auto', block: 'start' });
}

/** Which critics there are, and which of them is shown. */
const layout = () => JSON.stringify([chosen.critic, known.status?.critics.map(({ name }) => name)]);

/** A daemon is met, all has been asked for again, or another critic chosen: where the reader looks stays if it can. */
function met() {
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

/** Stand still, or follow again. @param {boolean} still */
function pause(still) {
  paused = still;
  $('pause', HTMLButtonElement).setAttribute('aria-pressed', String(still));
}

/** Another critic has been chosen: it is shown once it has been asked for. Of one that has not been seen nothing can stand still. */
function other() {
  pause(false);
  leave();
  turn(met);
}

function headChoice() {
  const count = heads();
  $('head-choice').hidden = count < 2;
  const names = Array.from({ length: count }, (_, k) => rewardName(k) ?? String(k));
  if ($('head', HTMLSelectElement).dataset.names !== names.join('\n')) {
    $('head', HTMLSelectElement).dataset.names = names.join('\n');
    $('head', HTMLSelectElement).replaceChildren(...names.map((textContent, value) => el('option', { value, textContent })));
    $('head', HTMLSelectElement).value = String(chosen.head);
  }
}

function controls() {
  $('axis-x', HTMLSelectElement).addEventListener('change', () => {
    const x = Number($('axis-x', HTMLSelectElement).value);
    chooseAxes(x, x === chosen.y ? chosen.x : chosen.y);
  });
  $('axis-y', HTMLSelectElement).addEventListener('change', () => {
    const y = $('axis-y', HTMLSelectElement).value === '' ? null : Number($('axis-y', HTMLSelectElement).value);
    chooseAxes(y === chosen.x ? (chosen.y ?? ranked().find((k) => k !== y) ?? null) : chosen.x, y);
  });
  $('swap', HTMLButtonElement).addEventListener('click', () => chooseAxes(chosen.y, chosen.x));
  $('medians', HTMLButtonElement).addEventListener('click', () => {
    medians();
    seen();
  });
  $('whole', HTMLButtonElement).addEventListener('click', () => zoom(null));
  onZooming(zoom);
  $('mode', HTMLSelectElement).addEventListener('change', () => {
    averageOthers($('mode', HTMLSelectElement).value === 'average');
    againstChoices();
  });
  $('shown', HTMLSelectElement).addEventListener('change', () => {
    const { value } = $('shown', HTMLSelectElement);
    chosen.earlier = value === '' || value === 'then' ? null : Number(value);
    lookBack(value === 'then');
    againstChoices();
    seen();
  });
  onLookingBack(seen);
  $('against', HTMLSelectElement).addEventListener('change', () => {
    chosen.against = $('against', HTMLSelectElement).value;
    seen();
  });
  for (const id of ['show-dictionary', 'show-recent', 'fade']) $(id).addEventListener('change', show);
  $('fade').addEventListener('change', showPlan);
  $('head', HTMLSelectElement).addEventListener('change', () => {
    chosen.head = Number($('head', HTMLSelectElement).value);
    againstChoices();
    seen();
    render();
  });
  $('critic', HTMLSelectElement).addEventListener('change', () => {
    chosen.critic = Number($('critic', HTMLSelectElement).value);
    other();
  });
  buildCritics((k) => {
    chosen.critic = k;
    other();
  });
  document.addEventListener('visibilitychange', () => document.hidden || paused || render());
}

const dark = matchMedia('(prefers-color-scheme: dark)');

/** Take on a theme; the system's without a name. @param {?string} [name] */
function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  readTheme();
  show();
  showErrors();
  showPlan();
  showCourse();
  repaint($('path'));
  if (known.status) render();
}

$('theme', HTMLButtonElement).addEventListener('click', () => {
  const now = document.documentElement.dataset.theme ?? (dark.matches ? 'dark' : 'light');
  const next = now === 'dark' ? 'light' : 'dark';
  remembered.set('theme', next);
  theme(next);
});
dark.addEventListener('change', () => theme());

$('pause', HTMLButtonElement).addEventListener('click', () => {
  pause(!paused);
  if (paused) stand();
  else goOn();
});
/** Maps of the errors are over all states, whatever their other variables were. */
const AS_VISITED = ', whatever their other variables were';

/** The words above a picture: what its card is about, and of a map of the value where all other variables stand. @param {string} id */
function titleOf(id) {
  const card = $(id).closest('figure, section');
  const words = (/** @type {string} */ selector) => card.querySelector(selector)?.textContent.trim() ?? '';
  const first = [words('b, h2'), words('figcaption b + span')].filter(Boolean).join(': ');
  if (id === 'map-error') {
    const kind = $('error-kind', HTMLSelectElement).selectedOptions[0].textContent;
    return [`Error: ${kind}`, ...wrapped(`${$('error-note').textContent}${AS_VISITED}`, $(id).clientWidth)];
  }
  if (!id.startsWith('map-')) return [first, words('.hint')];
  return [first, ...wrapped(sliceWords(Infinity), $(id).clientWidth)];
}

/** What the buttons of each picture save. @type {[string, string, () => ?Record<string, any>][]} */
const SAVED = [
  ['map-value', 'value', valueColumns],
  ['map-other', 'compared', valueColumns],
  ['map-difference', 'difference', valueColumns],
  ['map-deviation', 'deviation', valueColumns],
  ['map-chosen', 'action', valueColumns],
  ['map-plan', 'plan', planColumns],
  ['map-plan-action', 'plan-action', planColumns],
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
saveButtons($('course-save'), 'course', courseParts, courseColumns);
saveButtons($('worst-save'), 'worst-states', () => [listPart($('worst'), 'Where it is most wrong', worstRows)], worstColumns);
saveButtons($('relevance-save'), 'relevance', () => [listPart($('relevance'), 'What the value depends on', shareRows)], shareColumns);
saveButtons($('groups-save'), 'groups', groupParts, groupColumns);
saveButtons($('heads-save'), 'heads', () => [listPart($('heads-list'), 'Heads', headRows)], headColumns);
saveButtons($('marks-save'), 'model-selection', () => [listPart($('marks'), 'Model selection', markRows)], markColumns);
saveButtons($('streams-save'), 'streams', () => [listPart($('streams').parentElement, 'Streams', streamRows)], streamColumns);
saveButtons($('model-save'), 'model', null, modelColumns);
saveButtons($('rejected-save'), 'refused', null, refusedColumns);
chosen.span = addressedSpan() ?? chosen.span;
buildGlossary();
rememberFolds();
controls();
buildLines();
buildPath();
buildErrors();
buildSliders();
buildHeads(showHead);
buildPlan(seen);
buildCourse(seen);
$('named-back', HTMLButtonElement).addEventListener('click', () => showHead(null));
theme(remembered.get('theme'));
render();
listen({ met, heard: render, left: trust });

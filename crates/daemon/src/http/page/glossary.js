// The terms of the page: their meanings at hover and focus, and all of them at the end of the page.

import { $, el } from '/dom.js';

/** A term and its meaning, by its key. @type {Record<string, [string, string]>} */
const MEANINGS = {
  value: ['value', 'Expected discounted sum of the rewards that follow a state.'],
  deviation: ['standard deviation', 'How uncertain the value itself is (std): two of them hold the true value in 95 of 100 cases.'],
  tracking: ['tracking', 'Small models beside the main one that forget at several half-lives. Where they have predicted better, its values follow the newest rows.'],
  return: ['return', 'The discounted sum of rewards that really followed a row.'],
  interval: ['90 % interval', 'Where nine of ten returns should fall, if the model is right about its uncertainty.'],
  coverage: ['coverage', 'Share of returns that fell in their 90 % interval. Far below 90 % the model is too sure.'],
  bias: ['bias', 'Mean of return minus prediction. Above zero the values are too low.'],
  calibration: ['calibration', 'Predictions beside the returns that followed them.'],
  td: ['TD error', 'Reward plus discounted value of the next state, minus the value of the state. It is known at once.'],
  lengthscale: ['lengthscale', 'How far a variable has to move for the value to change much.'],
  slice: ['slice', 'The value over two variables while all others stand at one place.'],
  average: ['average as visited', 'The value over two variables, averaged over the others as they were in visited states.'],
  dictionary: ['dictionary', 'The states through which the model represents the value.'],
  generation: ['generation', 'Number of the model: each adoption raises it.'],
  selection: ['model selection', 'A background search for kernel, lambda and dictionary. It adopts a model that predicts better.'],
  heldout: ['held-out error', 'Squared error on episodes that the candidate has not learned; a constant has 1.'],
  error: ['error (rms)', 'Root mean square of return minus prediction.'],
  evidence: ['log evidence', 'How probable the model makes the returns it has learned. It grows with the number of rows.'],
  nats: ['nats', 'Unit of log evidence: one nat makes the data e = 2.7 times as probable.'],
  score: ['log score', 'How well each new reward was predicted before it was learned; higher is better.'],
  share: ['share', 'Part of the variance of the value that depends on a variable (total Sobol index).'],
  lambda: ['lambda', 'How far a return is followed before the value of a later state replaces it, 0 to 1.'],
  discount: ['discount', 'How much a reward counts for each step that it lies in the future.'],
  kernel: ['kernel', 'The assumption about how alike the values of two states are.'],
  noise: ['noise', 'What smooths the value. Only where the evidence selected does it say how returns scatter.'],
  chain: ['chain', 'Rows of one stream that continue each other.'],
  stream: ['stream', 'The rows of one robot or one copy of a simulator, in order.'],
  drift: ['drift', 'The errors of the model have changed: the world or the policy is another.'],
  alarm: ['alarm', 'The return from here will probably fall below the value that the settings name. False alarms keep the share that they state.'],
  provisional: ['provisional', 'No refit has selected this model yet, so that its deviations are rough.'],
  unknown: ['not known', 'Rows have removed less than three quarters of the variance that the value had before any.'],
};

/** A word with its meaning, for a keyboard as well. @param {string} key @param {string} [words] */
export function term(key, words = MEANINGS[key][0]) {
  return el('abbr', { className: 'term', tabIndex: 0, textContent: words, 'aria-describedby': `meaning-${key}`, data: { term: key } });
}

/** Show the meaning of a word beside it. @param {any} word */
function explain(word) {
  const tip = $('tip');
  tip.textContent = MEANINGS[word.dataset.term][1];
  tip.hidden = false;
  const at = word.getBoundingClientRect();
  const left = Math.min(Math.max(at.left, 8), innerWidth - tip.offsetWidth - 8);
  const below = at.bottom + tip.offsetHeight + 12 < innerHeight;
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${(below ? at.bottom + 6 : at.top - tip.offsetHeight - 6) + scrollY}px`;
}

/** The words of the document that have a meaning, and the list of all; once. */
export function buildGlossary() {
  const entries = Object.entries(MEANINGS).sort(([, a], [, b]) => (a[0] < b[0] ? -1 : 1));
  $('glossary').replaceChildren(
    ...entries.flatMap(([key, [word, meaning]]) => [
      el('dt', { textContent: word }),
      el('dd', { id: `meaning-${key}`, textContent: meaning }),
    ]),
  );
  for (const place of document.querySelectorAll('[data-word]')) {
    const { word } = /** @type {HTMLElement} */ (place).dataset;
    place.replaceWith(term(String(word), String(place.textContent)));
  }
  const found = (/** @type {Event} */ e) => /** @type {Element} */ (e.target).closest?.('.term');
  const hide = () => {
    $('tip').hidden = true;
  };
  for (const kind of ['pointerover', 'focusin']) {
    document.addEventListener(kind, (e) => {
      const word = found(e);
      if (word) explain(word);
      else if (kind === 'pointerover' && !document.activeElement?.matches('.term')) hide();
    });
  }
  document.addEventListener('focusout', hide);
  document.addEventListener('keydown', (e) => e.key === 'Escape' && hide());
}

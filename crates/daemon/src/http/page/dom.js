// Elements of the page. Text from outside is only ever set as text.

/**
 * The element of this id, which the page has. With its kind, as in `$('mode', HTMLSelectElement)`, its properties are checked.
 * @template {HTMLElement} [E=any]
 * @param {string} id
 * @param {new () => E} [_kind]
 * @returns {E}
 */
export const $ = (id, _kind) => /** @type {E} */ (document.getElementById(id));

/**
 * An element with properties and children; strings become text.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node | string | null | undefined)} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  /** @type {any} */
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'data') Object.assign(element.dataset, value);
    else if (name.startsWith('aria-') || name === 'role') element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flatMap((child) => child ?? []));
  return element;
}

/** Set text only where it has changed: screen readers and selections stay undisturbed. */
export function say(/** @type {Element} */ element, /** @type {string} */ words) {
  if (element.textContent !== words) element.textContent = words;
}

export const remembered = {
  get(/** @type {string} */ key) {
    try {
      return JSON.parse(localStorage.getItem(`criticd.${key}`) ?? 'null');
    } catch {
      return null;
    }
  },
  set(/** @type {string} */ key, /** @type {any} */ value) {
    try {
      localStorage.setItem(`criticd.${key}`, JSON.stringify(value));
    } catch {
      /* a private window forgets */
    }
  },
};

/** Replace the children only if their text differs. */
export function list(/** @type {any} */ parent, /** @type {Element[]} */ children) {
  const text = children.map((/** @type {Element} */ child) => child.textContent).join('\n');
  if (parent.dataset.text === text) return;
  parent.dataset.text = text;
  parent.replaceChildren(...children);
}

/** A list of words with what is said of each; where the words stay, their elements do, and so does the focus. */
export function facts(/** @type {any} */ list, /** @type {any[]} */ entries) {
  const shown = entries.filter(Boolean);
  const words = shown.map((/** @type {any[]} */ [word]) => word.textContent ?? word).join('\n');
  if (list.dataset.words !== words) {
    list.dataset.words = words;
    list.replaceChildren(...shown.flatMap((/** @type {any[]} */ [word]) => [el('dt', {}, word), el('dd')]));
  }
  shown.forEach((/** @type {any[]} */ [, ...said], /** @type {number} */ k) => list.children[2 * k + 1].replaceChildren(...said.filter((each) => each !== null)));
}

export const small = (/** @type {string} */ words) => el('small', { textContent: ` ${words}` });

/** What a reader has folded or unfolded stays so: the page remembers it. */
export function rememberFolds() {
  for (const fold of document.querySelectorAll('main details')) {
    const key = `fold.${fold.id}`;
    /** @type {HTMLDetailsElement} */ (fold).open = remembered.get(key) ?? false;
    fold.addEventListener('toggle', () => remembered.set(key, /** @type {HTMLDetailsElement} */ (fold).open));
  }
}

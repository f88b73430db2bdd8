// What is shown as a file: a picture as PNG, a table as CSV.

import { el } from '/dom.js';

function download(name, blob) {
  const link = el('a', { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** A button that saves a canvas on the colour of its card. @param {HTMLCanvasElement} canvas @param {string} name */
export function pngButton(canvas, name) {
  const button = el('button', { type: 'button', className: 'save', textContent: 'PNG', title: 'Save the picture' });
  button.setAttribute('aria-label', `Save ${canvas.getAttribute('aria-label')} as PNG`);
  button.addEventListener('click', () => {
    const copy = document.createElement('canvas');
    [copy.width, copy.height] = [canvas.width, canvas.height];
    const c = /** @type {CanvasRenderingContext2D} */ (copy.getContext('2d'));
    c.fillStyle = getComputedStyle(/** @type {Element} */ (canvas.closest('.card'))).backgroundColor;
    c.fillRect(0, 0, copy.width, copy.height);
    c.drawImage(canvas, 0, 0);
    copy.toBlob((blob) => blob && download(`${name}.png`, blob));
  });
  return button;
}

/**
 * A button that saves columns as CSV.
 * @param {string} name
 * @param {() => ?Record<string, any[]>} columns lists of one length, by name
 */
export function csvButton(name, columns) {
  const button = el('button', { type: 'button', className: 'save', textContent: 'CSV', title: 'Save the numbers' });
  button.setAttribute('aria-label', `Save the numbers of ${name} as CSV`);
  button.addEventListener('click', () => {
    const lists = columns();
    if (!lists) return;
    const names = Object.keys(lists);
    const rows = lists[names[0]].map((_, k) => names.map((each) => cell(lists[each][k])).join());
    download(`${name}.csv`, new Blob([`${[names.map(cell).join(), ...rows].join('\n')}\n`], { type: 'text/csv' }));
  });
  return button;
}

/** A field of a table: quoted where a comma or a quote would break it. */
function cell(value) {
  const text = String(value ?? '');
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

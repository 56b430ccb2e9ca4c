/* base.js - what all parts of a page use: elements, figures with units, and the data. */

/* Returns an element. A name of a trace is a child, and children that are texts stay texts. */
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) if (value !== null && value !== false) element.setAttribute(key, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ''));
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/* True of a value that says nothing: unknown, or a list or an object without members. */
const isEmpty = (value) => value === null || value === undefined || (typeof value === 'object' && !Object.keys(value).length);
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const sum = (values) => values.reduce((all, value) => all + value, 0);
/* Returns the sum, or null where one of the numbers is unknown. */
const knownSum = (values) => (values.every(isNumber) && values.length ? sum(values) : null);

/* ---- figures ---- */

const UNITS = {
  us: [[1e6, 's'], [1e3, 'ms'], [0, 'us']],
  bytes: [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [0, 'B']],
};

/* Returns [divisor, name] of the unit in which the largest of the values reads best. */
function unitOf(kind, values) {
  const units = UNITS[kind];
  if (!units) return [1, { pct: '%', tflops: 'TFLOP/s', gbs: 'GB/s' }[kind] || ''];
  const largest = values.reduce((most, value) => (isNumber(value) ? Math.max(most, Math.abs(value)) : most), 0);
  const [from, name] = units.find(([least]) => largest >= least);
  return [from || 1, name];
}

const grouped = (number, digits) => number.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });

function figure(kind, value, [divisor] = [1]) {
  if (isEmpty(value)) return '\u2013';
  if (!isNumber(value)) return typeof value === 'object' ? JSON.stringify(value) : String(value);
  if (kind === 'id') return String(value);
  if (kind === 'us') return grouped(value / divisor, 3);
  if (kind === 'bytes') return grouped(value / divisor, divisor === 1 ? 0 : 2);
  if (kind === 'pct') return grouped(value, 1);
  if (kind === 'real' || kind === 'tflops' || kind === 'gbs') return value && (Math.abs(value) < 0.01 || Math.abs(value) >= 1e9) ? value.toExponential(2) : grouped(value, 2);
  return Number.isInteger(value) ? grouped(value, 0) : grouped(value, 3);
}

/* Returns a figure with the unit that fits it alone. */
function alone(kind, value) {
  const unit = unitOf(kind, [value]);
  return isNumber(value) ? `${figure(kind, value, unit)} ${unit[1]}`.trim() : 'unknown';
}

/* ---- the data ---- */

async function readData() {
  const plain = document.getElementById('data');
  if (plain) return JSON.parse(plain.textContent);
  if (typeof DecompressionStream === 'undefined') throw new Error('this browser lacks DecompressionStream, with which the data of this page are unpacked');
  const text = atob(document.getElementById('packed').textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text());
}

/* Returns the parts by their ids, each with rows and totals also where the command gave no answer. */
function partsById(list) {
  const parts = {};
  for (const part of list) parts[part.id] = { ...part, rows: part.answer ? part.answer.rows : [], totals: (part.answer && part.answer.totals) || {} };
  return parts;
}

/* Adds a section to the page, and its entry to the list of sections. */
function section(id, title, ...children) {
  const box = el('section', { id, 'aria-labelledby': `${id}-title` }, el('h2', { id: `${id}-title` }, title), ...children);
  document.getElementById('main').append(box);
  document.getElementById('nav').append(el('a', { href: `#${id}` }, title));
  return box;
}

/* What a command said of its answer. */
function saidOf(part) {
  return part && part.said.length ? el('ul', { class: 'soft' }, part.said.map((line) => el('li', {}, line))) : '';
}

/* table.js - tables that are sorted, searched and read by keyboard. A column has one unit, and each cell its exact value. */

const ROWS_SHOWN = 15;

/* Returns a shorter form of the C++ name of a kernel: without template arguments and parameters. */
function shortName(name) {
  let depth = 0, out = '';
  for (const c of name.replaceAll('(anonymous namespace)::', '')) {
    if (c === '<' || c === '(') depth++;
    if (!depth) out += c;
    if (c === '>' || c === ')') depth = Math.max(0, depth - 1);
  }
  out = out.trim().replace(/^void /, '');
  return out || name;
}

const LONGEST = 160;
/* Shows a long text cut, and whole when asked. */
function longText(text) {
  if (text.length <= LONGEST) return [text];
  const button = el('button', { type: 'button' }, `\u2026 ${grouped(text.length, 0)} characters`);
  const shown = el('span', {}, text.slice(0, LONGEST));
  button.addEventListener('click', () => {
    shown.textContent = text;
    button.remove();
  });
  return [shown, ' ', button];
}

function compare(a, b) {
  if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b);
  if (isNumber(a) && isNumber(b)) return b - a;
  return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}

function cellOf(column, row, unit) {
  const value = row[column.key];
  const isText = column.kind === 'text' || column.kind === 'name';
  const cell = el('td', { 'data-key': column.key, class: isText ? 'text' : null });
  cell.dataset.value = JSON.stringify(value === undefined ? null : value);
  if (!isText) cell.textContent = figure(column.kind, value, unit);
  else {
    const text = isEmpty(value) ? '\u2013' : typeof value === 'string' ? value : JSON.stringify(value);
    const short = column.kind === 'name' ? shortName(text) : text;
    if (column.indent) cell.style.paddingLeft = `${0.6 + 0.9 * Math.min(row.depth || 0, 12)}rem`;
    cell.append(...longText(short));
    if (short !== text) cell.title = text.slice(0, 2000);
  }
  return cell;
}

/* The state of a table: its rows in order, which are shown, and how. */
class Table {
  constructor(id, caption, columns, rows) {
    const used = columns.filter((column) => rows.some((row) => !isEmpty(row[column.key])));
    Object.assign(this, { id, rows, all: rows, columns: used, limit: ROWS_SHOWN, sorted: null, down: true, words: '' });
    this.units = used.map((column) => unitOf(column.kind, rows.map((row) => row[column.key])));
    this.body = el('tbody');
    this.heads = used.map((column, i) => this.headOf(column, this.units[i]));
    const table = el('table', { id }, el('caption', {}, caption), el('thead', {}, el('tr', {}, this.heads)), this.body);
    this.more = el('button', { type: 'button' });
    this.more.addEventListener('click', () => this.showAll());
    this.count = el('span', { class: 'soft', role: 'status' });
    this.element = el('div', {}, this.toolsOf(), el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': id }, table));
    this.draw();
  }

  headOf(column, unit) {
    const label = unit[1] ? `${column.label}, ${unit[1]}` : column.label;
    const isText = column.kind === 'text' || column.kind === 'name';
    const button = el('button', { type: 'button', 'data-sort': column.key }, label);
    button.addEventListener('click', () => this.sortBy(column.key));
    return el('th', { scope: 'col', class: isText ? 'text' : null, 'data-key': column.key }, button);
  }

  toolsOf() {
    const search = el('input', { type: 'search', placeholder: 'search', 'aria-label': `search ${this.id}` });
    search.addEventListener('input', () => this.search(search.value));
    return el('div', { class: 'tools' }, this.all.length > 8 ? search : '', this.count, this.more);
  }

  showAll() {
    this.limit = this.limit === Infinity ? ROWS_SHOWN : Infinity;
    this.draw();
  }

  search(words) {
    this.words = words.toLowerCase();
    this.draw();
  }

  sortBy(key) {
    this.down = this.sorted === key ? !this.down : true;
    this.sorted = key;
    this.rows = [...this.all].sort((a, b) => compare(a[key], b[key]) * (this.down || isEmpty(a[key]) || isEmpty(b[key]) ? 1 : -1));
    this.heads.forEach((head) => head.removeAttribute('aria-sort'));
    const head = this.heads.find((one) => one.dataset.key === key);
    const isNumbers = this.all.some((row) => isNumber(row[key]));
    head.setAttribute('aria-sort', this.down === isNumbers ? 'descending' : 'ascending');
    this.draw();
  }

  matches(row) {
    return !this.words || this.columns.some((column) => String(row[column.key] ?? '').toLowerCase().includes(this.words));
  }

  draw() {
    const found = this.rows.filter((row) => this.matches(row));
    const shown = found.slice(0, this.limit);
    this.body.replaceChildren(...shown.map((row) => el('tr', {}, this.columns.map((column, i) => cellOf(column, row, this.units[i])))));
    this.count.textContent = `${shown.length} of ${found.length} row${found.length === 1 ? '' : 's'}${this.words ? ' found' : ''}`;
    this.more.hidden = found.length <= ROWS_SHOWN;
    this.more.textContent = this.limit === Infinity ? 'show fewer' : `show all ${found.length}`;
  }
}

/* Returns a table of the rows of a part, or says why there are none. */
function tableOf(part, id, columns, rows = part.rows) {
  if (!rows.length) return el('p', { class: 'soft' }, part.said.length ? '' : 'nothing', saidOf(part));
  const cut = part.top && rows.length >= part.top && part.id !== 'slowest' ? `; the first ${part.top} rows` : '';
  return el('div', {}, new Table(id, el('span', {}, el('code', {}, part.asked), cut), columns, rows).element, saidOf(part));
}

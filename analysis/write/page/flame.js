/* flame.js - the flame graph of samples by stage: a row of boxes for each depth of calls, callers above; a click looks closer. */

const FLAME_ROW = 20, FLAME_ROWS = 40, NARROWEST = 0.002;

/* Returns the tree of all stages: below each its calls, which the data list callers first, with their depths. */
function flameTree(data) {
  const node = (label, us, parent, own) => {
    const one = { label, us, parent, own, depth: parent ? parent.depth + 1 : 0, below: [] };
    if (parent) parent.below.push(one);
    return one;
  };
  const root = node('all stages', data.counted_us, null, 0);
  for (const stage of data.stages) {
    const path = [node(stage.stage, stage.total_us, root, 0)];
    for (const [frame, depth, us, own] of stage.nodes) path[depth] = node(data.frames[frame], us, path[depth - 1], own);
  }
  return root;
}

/* Shows a frame of Python by its function first, and its file without the path. */
function shortFrame(label) {
  const found = /^(.*)\((\d+)\): (.*)$/s.exec(label);
  return found ? `${found[3]} ${found[1].split('/').pop()}:${found[2]}` : label || '\u2013';
}

function flameRows(node, out = []) {
  node.below.sort((a, b) => b.us - a.us);
  out.push({ depth: node.depth, name: node.label, total_us: node.us, self_us: node.us - sum(node.below.map((one) => one.us)) });
  for (const one of node.below) flameRows(one, out);
  return out;
}

class Flame {
  constructor(root) {
    Object.assign(this, { root, at: root, words: '' });
    this.box = el('div', { class: 'flame', id: 'flame', role: 'group', 'aria-label': 'flame graph: arrow keys move, Enter looks closer, Escape shows all; the table below has the rows' });
    this.said = el('p', { role: 'status', class: 'soft', id: 'flame-said' });
    const search = el('input', { type: 'search', placeholder: 'search calls', 'aria-label': 'search the flame graph' }), all = el('button', { type: 'button' }, 'all');
    search.addEventListener('input', () => { this.words = search.value.toLowerCase(); this.draw(); });
    all.addEventListener('click', () => this.look(this.root));
    this.box.addEventListener('keydown', (event) => this.key(event));
    this.element = el('div', {}, el('div', { class: 'tools' }, search, all), this.box, this.said);
    this.draw();
  }

  look(node) {
    this.at = node;
    this.draw();
    this.focus(node);
  }

  focus(node) {
    const drawn = this.drawn.find((one) => one.node === node);
    if (!drawn) return;
    for (const one of this.drawn) one.button.tabIndex = one === drawn ? 0 : -1;
    drawn.button.focus({ preventScroll: true });
  }

  draw() {
    this.drawn = [];
    for (let node = this.at.parent; node; node = node.parent) this.place(node, 0, 1);
    this.below(this.at, 0, 1);
    this.box.replaceChildren(...this.drawn.map((one) => one.button));
    this.box.style.height = `${FLAME_ROW * (1 + Math.max(...this.drawn.map((one) => one.node.depth)))}px`;
    this.box.dataset.at = this.at.label;
  }

  below(node, from, width) {
    this.place(node, from, width);
    let at = from;
    if (node.depth - this.at.depth >= FLAME_ROWS) return;
    for (const one of node.below) {
      const wide = (width * one.us) / node.us;
      if (wide > NARROWEST) this.below(one, at, wide);
      at += wide;
    }
  }

  place(node, from, width) {
    const found = this.words && node.label.toLowerCase().includes(this.words);
    const button = el('button', { type: 'button', tabindex: node === this.at ? 0 : -1, class: found ? 'found' : node.own ? 'own' : null, title: this.wordsOf(node) }, shortFrame(node.label));
    Object.assign(button.style, { left: `${100 * from}%`, width: `${100 * width}%`, top: `${FLAME_ROW * node.depth}px` });
    button.addEventListener('click', () => this.look(node));
    for (const kind of ['focus', 'pointerenter']) button.addEventListener(kind, () => { this.said.textContent = this.wordsOf(node); });
    this.drawn.push({ node, button });
  }

  wordsOf(node) {
    return `${node.label}: ${alone('us', node.us)}, ${grouped((100 * node.us) / this.root.us, 1)} %`;
  }

  key(event) {
    const now = this.drawn.find((one) => one.button === document.activeElement);
    const beside = (step) => { const row = this.drawn.filter((one) => one.node.depth === now.node.depth); return row[row.indexOf(now) + step]?.node; };
    const act = { Escape: () => this.look(this.root), ArrowUp: () => this.focus(now.node.parent), ArrowDown: () => this.focus(now.node.below[0]), ArrowLeft: () => this.focus(beside(-1)), ArrowRight: () => this.focus(beside(1)) }[event.key];
    if (!now || !act) return;
    event.preventDefault();
    act();
  }
}

const FLAME_COLUMNS = [{ ...word('name', 'stage or call'), indent: true }, us('total_us', 'with inner calls'), us('self_us', 'own'), number('depth', 'depth')];

function flameOf(data, part) {
  if (!data || !(data.counted_us > 0)) return el('div', {}, el('p', { class: 'soft' }, 'no stack was sampled'), saidOf(part));
  const root = flameTree(data), rows = flameRows(root), left = data.left ? `${grouped(data.left, 0)} calls with less than ${alone('us', data.least_us)} each are not drawn. ` : '';
  return el('div', {}, el('p', { class: 'soft' }, `Time of ${alone('us', data.counted_us)} that counts, as in `, el('code', {}, 'tfanalyze hotspots'), data.imports_us ? `, without imports (${alone('us', data.imports_us)})` : '', `. ${left}A thick edge marks the program\u2019s own lines.`),
    new Flame(root).element, el('details', {}, el('summary', {}, 'The calls in figures'), new Table('flame-table', 'the calls of the flame graph', FLAME_COLUMNS, rows).element));
}

/* diff.js - the sections of a page of two runs: what changed from A to B. */

const FINDING_COLUMNS = [word('state', 'finding'), word('id', 'name'), RANK, STAGE, us('predicted_us', 'predicted gain'), us('measured_us', 'measured gain'), word('leaves', 'measured in'), us('headroom_b_us', 'headroom in B'), word('finding', 'what')];

/* Returns one row a leaf with the means of both runs. */
function compareLeaves(a, b) {
  const names = [...new Set([...a, ...b].map((row) => row.leaf))], of = (rows, leaf) => (rows.length ? sum(rows.filter((row) => row.leaf === leaf).map((row) => row.us)) : null);
  return names.map((leaf) => {
    const before = of(a, leaf), after = of(b, leaf), known = isNumber(before) && isNumber(after);
    return { leaf, a_us: before, b_us: after, change_us: known ? after - before : null, change_pct: known && before > 0 ? (100 * (after - before)) / before : null };
  });
}

/* Returns the rows of `diff --by stage` in the order of the tree of both runs. */
function diffTree(diff, a, b) {
  const parents = new Map([...b, ...a].map((row) => [row.stage, row.parent]));
  return inTree(diff.map((row) => ({ ...row, stage: row.name, parent: parents.get(row.name) ?? null })));
}

const DIFF_COLUMNS = [number('calls_a', 'calls A'), number('calls_b', 'calls B'), us('total_a_us', 'A'), us('total_b_us', 'B'), us('change_us', 'change'), pct('change_pct', 'change'), word('state', 'state')];

function sideOf(name, parts) {
  const title = first(parts.info.rows, 'command') || first(parts.info.rows, 'path') || '';
  return el('div', {}, el('p', {}, el('strong', {}, name), ` ${title}`), factsOf(parts.info));
}

/* Returns the leaves of B in the order of A, so that the bars of both compare. */
function inOrderOf(a, b) {
  const place = (row) => { const at = a.findIndex((one) => one.leaf === row.leaf); return at < 0 ? a.length : at; };
  return [...b].sort((x, y) => place(x) - place(y));
}

function sumsOfGains(findings, a, b) {
  const wall = (leaves) => (leaves.length ? sum(leaves.map((row) => row.us)) : null), before = wall(a), after = wall(b);
  const gone = findings.filter((row) => row.state === 'gone'), predicted = sum(gone.map((row) => row.predicted_us || 0));
  const text = isNumber(before) && isNumber(after) ? `A rank took ${alone('us', before)}, and takes ${alone('us', after)} now: ${before === after ? 'the same' : `${alone('us', Math.abs(before - after))} ${after < before ? 'less' : 'more'}`}.` : 'The whole gain is unknown.';
  const said = gone.length ? ` The findings that are gone had predicted up to ${alone('us', predicted)} in all; gains of several need not add up.` : '';
  return el('p', { id: 'gain', 'data-value': JSON.stringify(isNumber(before) && isNumber(after) ? before - after : null), 'data-predicted': JSON.stringify(predicted) }, text, said);
}

function drawDiff(data) {
  const [a, b] = data.runs.map((run) => partsById(run.parts)), diff = partsById(data.parts), ranks = [a, b].map((side) => leavesByRank(side.budget.rows)), leaves = ranks.map(leavesOfAll);
  const longest = Math.max(1e-9, ...leaves.map((rows) => sum(rows.map((row) => row.us)))), classes = new Set(leaves.flat().map((row) => classOfLeaf(row.leaf)));
  const findings = diff.finding.rows, changes = compareLeaves(...leaves), titled = (name) => [{ key: 'name', label: name, kind: name === 'kernel' ? 'name' : 'text' }, ...DIFF_COLUMNS];
  drawHead('What changed from A to B', sideOf('A', a), sideOf('B', b));
  section('verdict', 'Where the time went', el('div', { class: 'bars' }, bar('A', leaves[0], longest), bar('B', inOrderOf(leaves[0], leaves[1]), longest)), legend(classes), sumsOfGains(findings, ...leaves),
    tableOf({ ...a.budget, asked: 'tfanalyze budget, the mean of all ranks' }, 'budget', [word('leaf', 'leaf'), us('a_us', 'A'), us('b_us', 'B'), us('change_us', 'change'), pct('change_pct', 'change')], changes));
  section('findings', 'What to change', tableOf(diff.finding, 'finding-table', FINDING_COLUMNS, findings), el('h3', {}, 'In A'), findingsOf(a.advise), el('h3', {}, 'In B'), findingsOf(b.advise));
  section('stages', 'Stages', tableOf(diff.stage, 'stage-table', [{ ...STAGE, indent: true }, ...DIFF_COLUMNS], diffTree(diff.stage.rows, a.stages.rows, b.stages.rows)));
  section('operators', 'Operators', tableOf(diff.op, 'ops', titled('operator')));
  section('device-work', 'Device work', tableOf(diff.kernel, 'kernels', titled('kernel')));
  section('recording', 'How they were recorded', el('h3', {}, 'A'), tableOf(a.info, 'info-a', INFO_COLUMNS), el('h3', {}, 'B'), tableOf(b.info, 'info-b', INFO_COLUMNS), el('p', { class: 'soft' }, `tfanalyze ${data.version}`));
}

/* start.js - reads the data, and draws the page. `data-drawn` of the body says that it is done. */

async function start() {
  try {
    const data = await readData();
    document.getElementById('main').replaceChildren();
    if (data.kind === 'diff') drawDiff(data);
    else if (data.kind === 'memory') drawMemory(data);
    else await drawRun(data);
  } catch (error) {
    document.getElementById('main').append(el('p', { class: 'bad', role: 'alert' }, `The page could not be drawn: ${error.message}`));
    document.body.dataset.failed = error.stack || error.message;
  }
  document.body.dataset.drawn = 'yes';
}

start();

// The page: theme, axis, runs that are shown, and the cursor that all charts share.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  root.classList.add('js');
  const keyOf = (index) => String.fromCharCode(65 + index % 26) + (index < 26 ? '' : Math.floor(index / 26) + 1);
  const keys = data.runs.map((run, index) => keyOf(index));
  const view = {axis: 'step', hidden: new Set(), numRuns: data.runs.length};
  const spoken = document.getElementById('spoken');
  const axisNames = {step: 'step', epoch: 'epoch', time: 'time since the first record'};

  const figures = [...document.querySelectorAll('figure.chart')].map((element) => {
    const chart = data.charts[Number(element.dataset.chart)];
    return {element, chart, plot: element.querySelector('.plot'), name: element.querySelector('.axis-name'), log: false};
  });

  function node(tag, text, parent, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    if (parent) parent.append(made);
    return made;
  }

  function draw(figure) {
    figure.drawing = new Drawing(figure.chart, figure.plot.clientWidth, {...view, log: figure.log});
    const reading = figure.reading;
    figure.plot.innerHTML = figure.drawing.svg(keys);
    if (reading) figure.plot.append(reading);
    figure.name.textContent = axisNames[view.axis];
    figure.positions = null;
  }

  function drawAll() {
    hideCursor();
    view.range = Drawing.range(data.charts, view);
    figures.forEach(draw);
  }

  function placeText(found) {
    const {series, index} = found;
    const parts = ['step ' + Format.number(series.step[index], 9), 'epoch ' + Format.number(series.epoch[index], 4),
                   Format.duration(series.time[index])];
    return parts.join(' · ');
  }

  function roleName(figure, series) {
    if (figure.chart.kind === 'stack') return series.role;
    const several = figure.chart.series.some((other) => other.role !== series.role);
    return !several ? '' : series.role === 'interval' ? 'single steps' : series.role;
  }

  // Rows of a reading: run, role, value.
  function rowsOf(figure, found) {
    const rows = found.map(({series, index}) => ({
      series,
      key: view.numRuns > 1 && figure.chart.kind !== 'stack' ? keys[series.run] : '',
      role: roleName(figure, series),
      value: Format.of(series.y[index], figure.chart.unit, 5),
    }));
    if (figure.chart.kind === 'stack') {
      const sum = found.reduce((total, {series, index}) => total + series.y[index], 0);
      rows.reverse();
      rows.unshift({series: null, key: '', role: 'Step', value: Format.of(sum, 's', 5)});
    }
    return rows;
  }

  function fillReading(figure, found, x) {
    if (!figure.reading) figure.reading = node('div', undefined, figure.plot, 'reading');
    const box = figure.reading;
    box.replaceChildren();
    if (found.length === 0) { box.hidden = true; return; }
    box.hidden = false;
    node('p', placeText(found[0]), box);
    const table = node('table', undefined, box);
    for (const row of rowsOf(figure, found)) {
      const line = node('tr', undefined, table);
      const mark = node('td', undefined, line);
      if (row.key) node('span', row.key, mark, 'key c' + row.series.run % 8);
      const dot = figure.chart.kind === 'stack' && row.series;
      if (dot) node('i', '', mark, 'dot p' + figure.chart.series.indexOf(row.series));
      if (!row.key && !dot && row.series) {
        node('i', '', mark, 'dot').style.background = `var(--c${figure.drawing.colourOf(row.series)})`;
      }
      node('td', row.role, line);
      node('td', row.value, line);
    }
    const scale = figure.plot.clientWidth / figure.drawing.width;
    const left = figure.drawing.x(x) * scale;
    const room = figure.plot.clientWidth - box.offsetWidth;
    box.style.left = Math.max(0, Math.min(room, left - box.offsetWidth / 2)) + 'px';
    box.style.top = figure.plot.clientHeight + 'px';  // below the curves, which stay in sight
  }

  function markCursor(figure, x) {
    const layer = figure.plot.querySelector('.cursor');
    const {drawing} = figure;
    if (!layer || drawing.series.length === 0 || x < drawing.xs[0] || x > drawing.xs[1]) {
      if (layer) layer.innerHTML = '';
      return [];
    }
    const found = drawing.nearest(x);
    const at = drawing.x(x).toFixed(1);
    let marks = `<path d="M${at} ${drawing.box.top}V${drawing.box.bottom}"/>`;
    for (const {series, index} of found) {
      if (figure.chart.kind === 'stack' || !drawing.canDraw(series.y[index])) continue;
      marks += `<circle r="4" cx="${drawing.x(series[view.axis][index]).toFixed(1)}" cy="${drawing.y(series.y[index]).toFixed(1)}" ` +
               `style="fill:var(--c${drawing.colourOf(series)})"/>`;
    }
    layer.innerHTML = marks;
    return found;
  }

  function showCursor(source, x, speak) {
    for (const figure of figures) {
      const found = markCursor(figure, x);
      if (figure === source) fillReading(figure, found, x);
      else if (figure.reading) figure.reading.hidden = true;
      if (figure === source && speak && found.length > 0) {
        const words = rowsOf(figure, found).map((row) => [row.key && 'run ' + row.key, row.role, row.value].filter(Boolean).join(' '));
        spoken.textContent = placeText(found[0]) + ': ' + words.join(', ');
      }
    }
    source.at = x;
  }

  function hideCursor() {
    for (const figure of figures) {
      const layer = figure.plot.querySelector('.cursor');
      if (layer) layer.innerHTML = '';
      if (figure.reading) figure.reading.hidden = true;
    }
  }

  function positionsOf(figure) {
    if (!figure.positions) figure.positions = figure.drawing.positions();
    return figure.positions;
  }

  function nearestIndex(all, x) {
    let best = 0;
    all.forEach((value, index) => { if (Math.abs(value - x) < Math.abs(all[best] - x)) best = index; });
    return best;
  }

  function onKey(figure, event) {
    const all = positionsOf(figure);
    if (all.length === 0) return;
    const jump = Math.max(1, Math.round(all.length / 10));
    let index = figure.at === undefined ? all.length - 1 : nearestIndex(all, figure.at);
    const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -jump, PageDown: jump, Home: -all.length, End: all.length};
    if (event.key === 'Escape') { hideCursor(); return; }
    if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    index = Math.max(0, Math.min(all.length - 1, index + moves[event.key]));
    showCursor(figure, all[index], true);
  }

  function connect(figure) {
    const {plot, chart} = figure;
    plot.tabIndex = 0;
    plot.setAttribute('role', 'group');
    plot.setAttribute('aria-roledescription', 'chart');
    plot.setAttribute('aria-label', chart.title + ': the arrow keys move along the curve and read its numbers');
    plot.addEventListener('pointermove', (event) => {
      const all = positionsOf(figure);
      if (all.length === 0) return;
      const box = plot.getBoundingClientRect();
      const x = figure.drawing.valueAt((event.clientX - box.left) * figure.drawing.width / box.width);
      showCursor(figure, all[nearestIndex(all, x)], false);
    });
    plot.addEventListener('pointerleave', hideCursor);
    plot.addEventListener('blur', hideCursor);
    plot.addEventListener('focus', () => {
      const all = positionsOf(figure);
      if (all.length > 0 && plot.matches(':focus-visible')) showCursor(figure, figure.at ?? all[all.length - 1], true);
    });
    plot.addEventListener('keydown', (event) => onKey(figure, event));
    if (chart.kind !== 'lines' || chart.from_zero) return;
    const values = chart.series.flatMap((series) => series.y.filter((value) => typeof value === 'number'));
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(low > 0 && high > 3 * low)) return;  // nothing to gain
    const button = node('button', 'log', figure.element.querySelector('figcaption'), 'log');
    button.type = 'button';
    button.setAttribute('aria-pressed', 'false');
    button.setAttribute('aria-label', 'Logarithmic axis of ' + chart.title);
    button.addEventListener('click', () => {
      figure.log = !figure.log;
      button.setAttribute('aria-pressed', String(figure.log));
      draw(figure);
    });
  }

  function connectControls() {
    document.querySelectorAll('input[name="axis"]').forEach((input) => input.addEventListener('change', () => {
      view.axis = input.value;
      figures.forEach((figure) => { figure.at = undefined; });
      drawAll();
    }));
    document.querySelectorAll('.run-toggle').forEach((button) => button.addEventListener('click', () => {
      const run = Number(button.dataset.run);
      if (!view.hidden.delete(run)) view.hidden.add(run);
      button.setAttribute('aria-pressed', String(!view.hidden.has(run)));
      drawAll();
    }));
  }

  function connectTheme() {
    const button = document.getElementById('theme');
    const order = ['system', 'light', 'dark'];
    let theme = 'system';
    const apply = () => {
      if (theme === 'system') delete root.dataset.theme; else root.dataset.theme = theme;
      button.textContent = 'Theme: ' + theme;
    };
    try {
      const kept = localStorage.getItem('lockstep-theme');
      if (order.includes(kept)) theme = kept;
    } catch { /* no storage */ }
    button.addEventListener('click', () => {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      try { localStorage.setItem('lockstep-theme', theme); } catch { /* no storage */ }
      apply();
    });
    apply();
  }

  // Closed parts are printed too.
  let opened = [];
  window.addEventListener('beforeprint', () => {
    hideCursor();
    opened = [...document.querySelectorAll('details:not([open])')];
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener('afterprint', () => opened.forEach((part) => { part.open = false; }));
  let width = window.innerWidth;
  window.addEventListener('resize', () => {
    if (width === window.innerWidth) return;
    width = window.innerWidth;
    drawAll();
  });

  figures.forEach(connect);
  connectControls();
  connectTheme();
  drawAll();
})();

// The page: theme, axis, runs that are shown, and the cursor that all charts share.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  root.classList.add('js');
  const keyOf = (index) => String.fromCharCode(65 + index % 26) + (index < 26 ? '' : Math.floor(index / 26) + 1);
  const keys = data.runs.map((run, index) => keyOf(index));
  const view = {axis: 'step', hidden: new Set(), numRuns: data.runs.length, numShown: data.runs.length, breaks: data.breaks};
  const spoken = document.getElementById('spoken');
  const axisNames = {step: 'step', epoch: 'epoch', time: 'training time'};

  // Positions of a stack are in its first series; stretches begin where the ones before end, apart from gaps.
  for (const {series} of data.charts) {
    for (const entry of series) {
      const first = entry.step ? entry : series[0];
      Object.assign(entry, {step: first.step, epoch: first.epoch, time: first.time, begin: first.begin});
      if (!entry.gaps) continue;
      const begins = (all) => all.map((_, index) => all[index - 1]);
      entry.begin = {step: begins(entry.step), epoch: begins(entry.epoch), time: begins(entry.time)};
      for (const [index, step, epoch, time] of entry.gaps) {
        entry.begin.step[index] = step;
        entry.begin.epoch[index] = epoch;
        entry.begin.time[index] = time;
      }
    }
  }

  const figures = [...document.querySelectorAll('figure.chart')].map((element) => {
    const chart = data.charts[Number(element.dataset.chart)];
    return {element, chart, plot: element.querySelector('.plot'), name: element.querySelector('.axis-name'), log: false};
  });

  // In a part that is closed a chart has no width: it is drawn when the part is opened.
  function draw(figure) {
    figure.positions = null;
    figure.isDrawn = figure.plot.clientWidth > 0;
    if (!figure.isDrawn) return;
    figure.drawing = new Drawing(figure.chart, figure.plot.clientWidth, {...view, log: figure.log});
    figure.plot.innerHTML = figure.drawing.svg(keys);
    figure.name.textContent = axisNames[view.axis];
  }

  function drawAll() {
    hideCursor();
    view.numShown = view.numRuns - view.hidden.size;
    view.range = Drawing.range(data.charts, view);
    for (const {element, chart} of figures) {
      if (chart.kind === 'stack') element.hidden = view.hidden.has(chart.series[0].run);
    }
    figures.forEach(draw);
  }

  const isInSight = (figure) => {
    const {top, bottom, width} = figure.plot.getBoundingClientRect();
    return figure.isDrawn && width > 0 && bottom > 0 && top < innerHeight;
  };

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
    for (const {series, index} of view.numShown > 12 ? [] : found) {
      if (figure.chart.kind === 'stack' || series.begin || !drawing.canDraw(series.y[index])) continue;
      marks += `<circle r="4" cx="${drawing.x(series[view.axis][index]).toFixed(1)}" cy="${drawing.y(series.y[index]).toFixed(1)}" ` +
               `style="fill:var(--c${drawing.colourOf(series)})"/>`;
    }
    layer.innerHTML = marks;
    return found;
  }

  // In a crowd of curves that of the pointer stands out.
  function emphasise(figure, reading, y) {
    const svg = figure.plot.querySelector('svg');
    const run = reading && y !== undefined && view.numShown > 6 ? reading.runs(y, 1).shown[0]?.run : undefined;
    if (figure.near === run) return;
    figure.near = run;
    svg.classList.toggle('has-near', run !== undefined);
    svg.querySelectorAll('.series').forEach((group) => group.classList.toggle('near', Number(group.dataset.run) === run));
  }

  function showCursor(source, x, y, speak) {
    for (const figure of figures.filter(isInSight)) {
      const found = markCursor(figure, x);
      if (figure !== source) continue;
      figure.box ??= new ReadingBox(figure.plot);
      const reading = found.length > 0 ? new Reading(figure, found, x, view.axis) : null;
      if (figure.chart.kind === 'lines') emphasise(figure, reading, y);
      if (!reading) { figure.box.hide(); continue; }
      figure.box.show(reading, keys, y);
      figure.box.place(figure.drawing.x(x) * figure.plot.clientWidth / figure.drawing.width);
      if (speak) spoken.textContent = reading.spoken(keys, 12);
    }
    source.at = x;
  }

  function hideCursor() {
    for (const figure of figures) {
      const layer = figure.plot.querySelector('.cursor');
      if (layer) layer.innerHTML = '';
      if (figure.box) figure.box.hide();
      if (figure.near !== undefined) emphasise(figure);
    }
  }

  function positionsOf(figure) {
    if (!figure.positions) figure.positions = figure.isDrawn ? figure.drawing.positions() : [];
    return figure.positions;
  }

  function nearestIndex(all, x) {
    const index = Drawing.firstFrom(all, x);
    return index === all.length || (index > 0 && x - all[index - 1] < all[index] - x) ? index - 1 : index;
  }

  // The place of the pointer: a point that is near, else the pointer itself, which stands in a stretch.
  function placeOf(figure, pixel) {
    const {drawing} = figure;
    const all = positionsOf(figure);
    const x = drawing.valueAt(Math.max(drawing.box.left, Math.min(drawing.box.right, pixel)));
    const near = all[nearestIndex(all, x)];
    if (Math.abs(drawing.x(near) - pixel) < 6 || !drawing.series.some((series) => series.begin)) return near;
    return view.axis === 'step' ? Math.ceil(x) : x;
  }

  function onKey(figure, event) {
    const all = positionsOf(figure);
    if (!figure.isDrawn || all.length === 0) return;
    const jump = Math.max(1, Math.round(all.length / 10));
    let index = figure.at === undefined ? all.length - 1 : nearestIndex(all, figure.at);
    const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -jump, PageDown: jump, Home: -all.length, End: all.length};
    if (event.key === 'Escape') { hideCursor(); return; }
    if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    index = Math.max(0, Math.min(all.length - 1, index + moves[event.key]));
    showCursor(figure, all[index], undefined, true);
  }

  let pointer = null, frame = 0;
  function followPointer() {
    frame = 0;
    if (pointer) showCursor(pointer.figure, pointer.x, pointer.y, false);
  }

  function connect(figure) {
    const {plot, chart} = figure;
    plot.tabIndex = 0;
    plot.setAttribute('role', 'group');
    plot.setAttribute('aria-roledescription', 'chart');
    plot.setAttribute('aria-label', chart.title + ': the arrow keys move along the curve and read its numbers');
    plot.addEventListener('pointermove', (event) => {
      if (!figure.isDrawn || positionsOf(figure).length === 0) return;
      const box = plot.getBoundingClientRect();
      const scale = figure.drawing.width / box.width;
      pointer = {figure, x: placeOf(figure, (event.clientX - box.left) * scale), y: (event.clientY - box.top) * scale};
      // Once for each frame, however fast the pointer is.
      if (frame === 0) frame = requestAnimationFrame(followPointer);
    });
    plot.addEventListener('pointerleave', () => { pointer = null; hideCursor(); });
    plot.addEventListener('blur', hideCursor);
    plot.addEventListener('focus', () => {
      const all = positionsOf(figure);
      if (all.length > 0 && plot.matches(':focus-visible')) showCursor(figure, figure.at ?? all[all.length - 1], undefined, true);
    });
    plot.addEventListener('keydown', (event) => onKey(figure, event));
    if (chart.kind !== 'lines' || chart.from_zero) return;
    const values = chart.series.flatMap((series) => series.y.filter((value) => typeof value === 'number'));
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(low > 0 && high > 3 * low)) return;  // nothing to gain
    const button = ReadingBox.node('button', 'log', figure.element.querySelector('figcaption'), 'log');
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
    const toggles = [...document.querySelectorAll('.run-toggle')];
    const show = (button, isShown) => {
      const run = Number(button.dataset.run);
      if (isShown) view.hidden.delete(run); else view.hidden.add(run);
      button.setAttribute('aria-pressed', String(isShown));
    };
    toggles.forEach((button) => button.addEventListener('click', () => {
      show(button, view.hidden.has(Number(button.dataset.run)));
      drawAll();
    }));
    document.querySelectorAll('[data-all]').forEach((button) => button.addEventListener('click', () => {
      toggles.forEach((toggle) => show(toggle, button.dataset.all === '1'));
      drawAll();
    }));
    document.querySelectorAll('details').forEach((part) => part.addEventListener('toggle', () => {
      figures.filter((figure) => !figure.isDrawn && part.contains(figure.element)).forEach(draw);
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

  window.addEventListener('beforeprint', hideCursor);
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

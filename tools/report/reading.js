// What is read at a place of a chart: a heading with the place, and rows that name their own place where it is another one.
class Reading {
  constructor(figure, found, x, axis) {
    this.chart = figure.chart;
    this.drawing = figure.drawing;
    this.found = found;
    this.x = x;
    this.axis = axis;
    const [low, high] = this.drawing.ys;
    // Enough digits for a thousandth of the range.
    const digits = Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / (high - low))) + 3;
    this.digits = Math.max(5, Math.min(12, digits));
  }

  static place(axis, value) {
    if (axis === 'step') return 'step ' + Format.number(value, 9);
    if (axis === 'epoch') return 'epoch ' + Format.number(value, 4);
    return Format.duration(value);
  }

  // The stretch that a value is the mean of: "steps 41 to 80".
  static stretch(axis, begin, end) {
    if (axis === 'step') {
      return end - begin <= 1 ? 'step ' + Format.number(end, 9) : `steps ${Format.number(begin + 1, 9)} to ${Format.number(end, 9)}`;
    }
    if (axis === 'epoch') return `epochs ${Format.number(begin, 4)} to ${Format.number(end, 4)}`;
    return `${Format.duration(begin)} to ${Format.duration(end)}`;
  }

  // Where a value belongs; empty where that is what the heading says.
  where({series, index}) {
    const end = series[this.axis][index];
    if (!series.begin) return end === this.x ? '' : Reading.place(this.axis, end);
    const begin = series.begin[this.axis][index];
    if (this.axis === 'step' && end - begin <= 1 && end === this.x) return '';
    return Reading.stretch(this.axis, begin, end);
  }

  heading() {
    if (this.chart.kind === 'stack') {
      const {series, index} = this.found[0];
      return ['step', 'time'].map((axis) => Reading.stretch(axis, series.begin[axis][index], series[axis][index])).join(' · ');
    }
    const runs = new Set(this.found.map(({series}) => series.run));
    const exact = this.found.find(({series, index}) => series[this.axis][index] === this.x);
    if (runs.size > 1 || !exact) return Reading.place(this.axis, this.x);
    return ['step', 'epoch', 'time'].map((axis) => Reading.place(axis, exact.series[axis][exact.index])).join(' · ');
  }

  value({series, index}) { return Format.of(series.y[index], this.chart.unit, this.digits); }

  roleName(role) {
    const several = this.chart.series.some((other) => other.role !== role);
    return !several ? '' : role === 'interval' ? 'single steps' : role;
  }

  // The parts of a step, from above.
  parts() {
    const sum = this.found.reduce((total, {series, index}) => total + series.y[index], 0);
    const rows = this.found.map((entry) => ({part: entry.series.part, name: entry.series.role, value: this.value(entry)}));
    return [{name: 'Step', value: Format.of(sum, 's', 5)}, ...rows.reverse()];
  }

  // One row for each run: those that are nearest to the height `y` of the pointer, in the order of their values there.
  runs(y, limit) {
    const rows = new Map();
    for (const entry of this.found) {
      const {series, index} = entry;
      if (!rows.has(series.run)) rows.set(series.run, {run: series.run, cells: {}, distance: Infinity});
      const row = rows.get(series.run);
      row.cells[series.role] = entry;
      if (y === undefined || !this.drawing.canDraw(series.y[index])) continue;
      row.distance = Math.min(row.distance, Math.abs(this.drawing.y(series.y[index]) - y));
    }
    const all = [...rows.values()];
    if (all.length > limit && y !== undefined) all.sort((a, b) => a.distance - b.distance);
    const shown = all.slice(0, limit).sort((a, b) => a.run - b.run);
    return {shown, more: all.length - shown.length};
  }

  // All in words, for screen readers.
  spoken(keys, limit) {
    if (this.chart.kind === 'stack') return this.heading() + ': ' + this.parts().map((row) => `${row.name} ${row.value}`).join(', ');
    const {shown, more} = this.runs(undefined, limit);
    const words = shown.flatMap((row) => Object.values(row.cells).map((entry) => {
      const where = this.where(entry);
      const name = [keys.length > 1 && 'run ' + keys[row.run], this.roleName(entry.series.role), this.value(entry)].filter(Boolean);
      return name.join(' ') + (where ? ` (${where})` : '');
    }));
    return this.heading() + ': ' + words.join(', ') + (more > 0 ? `, and ${more} more` : '');
  }
}

// Fills the box beside a chart.
class ReadingBox {
  constructor(plot) {
    this.plot = plot;
    this.box = ReadingBox.node('div', undefined, undefined, 'reading');
  }

  static node(tag, text, parent, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    if (parent) parent.append(made);
    return made;
  }

  hide() { this.box.hidden = true; }

  show(reading, keys, y) {
    const {node} = ReadingBox;
    this.box.replaceChildren();
    this.box.hidden = false;
    if (!this.box.isConnected || this.box.parentNode !== this.plot) this.plot.append(this.box);
    node('p', reading.heading(), this.box);
    const table = node('table', undefined, this.box);
    if (reading.chart.kind === 'stack') this.fillParts(reading, table);
    else if (keys.length === 1) this.fillRoles(reading, table);
    else this.fillRuns(reading, table, keys, y);
  }

  fillParts(reading, table) {
    const {node} = ReadingBox;
    for (const row of reading.parts()) {
      const line = node('tr', undefined, table);
      const mark = node('td', undefined, line);
      if (row.part !== undefined) node('i', '', mark, 'dot p' + row.part);
      node('td', row.name, line);
      node('td', row.value, line, 'value');
    }
  }

  fillRoles(reading, table) {
    const {node} = ReadingBox;
    for (const entry of reading.found) {
      const line = node('tr', undefined, table);
      node('i', '', node('td', undefined, line), 'dot').style.background = `var(--c${reading.drawing.colourOf(entry.series)})`;
      node('td', reading.roleName(entry.series.role), line);
      node('td', reading.value(entry), line, 'value');
      node('td', reading.where(entry), line, 'where');
    }
  }

  // A column for each role; a place that all rows of a column share is named in its head.
  fillRuns(reading, table, keys, y) {
    const {node} = ReadingBox;
    const {shown, more} = reading.runs(y, 12);
    const roles = [...new Set(shown.flatMap((row) => Object.keys(row.cells)))];
    const shared = new Map(roles.map((role) => {
      const places = new Set(shown.filter((row) => row.cells[role]).map((row) => reading.where(row.cells[role])));
      return [role, places.size === 1 ? [...places][0] : ''];
    }));
    const head = node('tr', undefined, node('thead', undefined, table));
    node('td', undefined, head);
    for (const role of roles) {
      const cell = node('th', reading.roleName(role), head);
      if (shared.get(role)) node('span', shared.get(role), cell, 'where');
    }
    for (const row of shown) {
      const line = node('tr', undefined, table);
      node('span', keys[row.run], node('td', undefined, line), 'key c' + row.run % 8);
      for (const role of roles) {
        const entry = row.cells[role];
        const cell = node('td', entry ? reading.value(entry) : '–', line, 'value');
        const where = entry ? reading.where(entry) : '';
        if (where && !shared.get(role)) node('span', where, cell, 'where');
      }
    }
    if (more > 0) node('p', `and ${more} more`, this.box, 'more');
  }

  // Below the curves, which stay in sight; above them or beside the cursor where the window ends. `left`: the cursor.
  place(left) {
    const {box, plot} = this;
    const around = plot.getBoundingClientRect();
    const [width, height] = [box.offsetWidth, box.offsetHeight];
    const space = 4;
    let x = left - width / 2;
    let y = around.height;
    if (around.bottom + height > innerHeight - space) {
      if (around.top - height >= space) {
        y = -height;
      } else {
        y = Math.max(space, Math.min(around.bottom, innerHeight - space - height)) - around.top;
        x = around.left + left + 16 + width < innerWidth ? left + 16 : left - 16 - width;
      }
    }
    x = Math.max(space - around.left, Math.min(innerWidth - space - width - around.left, x));
    box.style.left = x + 'px';
    box.style.top = y + 'px';
  }
}

'use strict';
// Draws one chart as SVG, with the classes of the pictures that are already in the page. Only numbers get into the text of the
// SVG, and words of the page itself.

const Format = {
  // Narrow spaces between thousands, from 10 000 on.
  spaced(text) {
    const [whole, rest] = text.split('.');
    const digits = whole.replace('-', '').length;
    return (digits < 5 ? whole : whole.replace(/\B(?=(\d{3})+$)/g, '\u202f')) + (rest === undefined ? '' : '.' + rest);
  },
  number(value, digits = 4) {
    if (typeof value === 'string') return value;
    const size = Math.abs(value);
    if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toExponential(digits - 1).replace(/\.?0+e/, 'e');
    if (size < Math.pow(10, digits - 1)) return String(Number(value.toPrecision(digits)));
    return Format.spaced(String(Math.round(value)));
  },
  seconds(value, digits = 3) {
    if (typeof value === 'string') return value;
    if (value === 0) return '0';
    const size = Math.abs(value);
    if (size >= 1) return Format.number(value, digits) + ' s';
    return size >= 1e-3 ? Format.number(value * 1e3, digits) + ' ms' : Format.number(value * 1e6, digits) + ' µs';
  },
  duration(value) {
    if (value < 60) return Format.number(value, 3) + ' s';
    const whole = Math.round(value);
    const two = (number) => String(number).padStart(2, '0');
    if (whole < 3600) return Math.floor(whole / 60) + ' min ' + two(whole % 60) + ' s';
    return Math.floor(whole / 3600) + ' h ' + two(Math.floor(whole / 60) % 60) + ' min';
  },
  bytes(value, digits = 3) {
    if (typeof value === 'string') return value;
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    let unit = 0;
    for (; Math.abs(value) >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
    return Format.number(value, digits) + ' ' + units[unit];
  },
  // A value of a chart: for axes with few digits, for readings with more.
  of(value, unit, digits) {
    if (value === 0) return '0';
    if (unit === 's') return Format.seconds(value, digits);
    if (unit === 'B') return Format.bytes(value, digits);
    return Format.number(value, digits + 1) + (unit === '/s' && digits > 3 ? ' per second' : '');
  },
};

const Axis = {
  ticks(low, high, count, unit) {
    if (!(high > low) || !isFinite(high - low)) return [];
    if (unit === 'B' && high >= 1024) {
      const scale = Math.pow(1024, Math.floor(Math.log2(high) / 10));
      return Axis.ticks(low / scale, high / scale, count).map((value) => value * scale);
    }
    if (unit === 'time') return Axis.timeTicks(low, high, count);
    const rough = (high - low) / count;
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const digit = rough / power;
    const quarters = power !== 1;  // 25 and 0.25, not 2.5 steps
    const step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 2.5 && quarters ? 2.5 : digit <= 5 ? 5 : 10);
    const first = Math.ceil(low / step - 1e-9);
    const ticks = [];
    for (let index = 0; index <= 2 * count; ++index) {
      const value = (first + index) * step;
      if (value <= high + step * 1e-9) ticks.push(value);
    }
    return ticks;
  },
  timeTicks(low, high, count) {
    const rough = (high - low) / count;
    const steps = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
    if (rough < 30) return Axis.ticks(low, high, count);
    const step = steps.find((value) => value >= rough) || Math.ceil(rough / 604800) * 604800;
    const ticks = [];
    for (let value = Math.ceil(low / step) * step; value <= high && ticks.length < 50; value += step) ticks.push(value);
    return ticks;
  },
  // The digits after the point that multiples of `step` have.
  decimals(step) {
    for (let digits = 0; digits < 15; ++digits) {
      const scaled = step * Math.pow(10, digits);
      if (scaled > 0.5 && Math.abs(scaled - Math.round(scaled)) < 1e-4 * scaled) return digits;
    }
    return 15;
  },
  // A number with the digits that tell it from the next one, `step` away; `largest` is the largest on the axis.
  number(value, step, largest) {
    if (value === 0) return '0';
    if (largest >= 1e9 || largest < 1e-4) {
      const power = Math.floor(Math.log10(step) + 1e-9);
      const digits = Math.floor(Math.log10(Math.abs(value))) - power + Axis.decimals(step / Math.pow(10, power));
      return value.toExponential(Math.max(0, Math.min(16, digits)));
    }
    return Format.spaced(value.toFixed(Axis.decimals(step)));
  },
  labels(ticks, unit) {
    const largest = ticks.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : largest;
    if (unit === 'time') return ticks.map((value) => Axis.timeLabel(value, step));
    let scale = 1, name = '';
    if (unit === 's') [scale, name] = largest >= 1 ? [1, ' s'] : largest >= 1e-3 ? [1e-3, ' ms'] : [1e-6, ' µs'];
    if (unit === 'B') {
      const units = [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB'];
      const power = Math.max(0, Math.min(5, Math.floor(Math.log2(Math.max(1, largest)) / 10)));
      [scale, name] = [Math.pow(1024, power), units[power]];
    }
    return ticks.map((value) => Axis.number(value / scale, step / scale, largest / scale) + (value === 0 ? '' : name));
  },
  timeLabel(value, step) {
    if (value === 0) return '0';
    if (value < 60) return Axis.number(value, Math.min(step, value), value) + ' s';
    if (step < 60) {
      const decimals = Axis.decimals(step);
      const seconds = (value % 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, '0');
      return Math.floor(value / 60) + ':' + seconds + ' min';
    }
    const hours = Math.floor(value / 3600);
    const minutes = Math.round((value % 3600) / 60);
    if (hours === 0) return minutes + ' min';
    return minutes === 0 ? hours + ' h' : hours + ':' + String(minutes).padStart(2, '0') + ' h';
  },
  // Powers of ten, and 2 and 5 times them where there are few.
  logTicks(low, high) {
    const ticks = [];
    const digits = high / low > 1000 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
      for (const digit of digits) {
        const value = digit * Math.pow(10, power);
        if (value >= low && value <= high) ticks.push(value);
      }
    }
    const every = Math.ceil(ticks.length / 6);
    return ticks.filter((value, index) => index % every === 0);
  },
};

// A chart on the page: `view` is {axis, hidden, log, numRuns, numShown, range, breaks}.
class Drawing {
  constructor(chart, width, view) {
    this.chart = chart;
    this.view = view;
    this.width = Math.max(240, width);
    this.height = this.width < 420 ? 190 : 230;
    // A stretch that is narrower is a point to the eye.
    this.narrow = 3;
    this.box = {left: 58, right: this.width - (view.numRuns > 1 ? 24 : 14), top: 12, bottom: this.height - 26};
    this.series = chart.series.filter((series) => chart.kind === 'stack' || !view.hidden.has(series.run));
    this.findRanges();
    this.ticks = view.log ? Axis.logTicks(...this.ys) : Axis.ticks(...this.ys, 5, chart.unit);
    this.labels = view.log ? this.ticks.map((value) => Format.of(value, chart.unit, 3)) : Axis.labels(this.ticks, chart.unit);
    this.box.left = Math.max(58, 10 + 6.2 * Math.max(0, ...this.labels.map((label) => label.length)));
  }

  findRanges() {
    const {chart, series, view} = this;
    let xs = [Infinity, -Infinity];
    let ys = [Infinity, -Infinity];
    const widen = (range, value) => { range[0] = Math.min(range[0], value); range[1] = Math.max(range[1], value); };
    for (const entry of series) {
      for (const value of entry[view.axis]) widen(xs, value);
      if (entry.begin && entry.y.length > 0) widen(xs, entry.begin[view.axis][0]);
      if (chart.kind === 'stack') continue;
      for (const value of entry.y) if (this.canDraw(value)) widen(ys, value);
    }
    if (chart.kind === 'stack') {
      ys = [0, Math.max(...series[0].y.map((_, index) => series.reduce((sum, entry) => sum + entry.y[index], 0)))];
    }
    if (chart.from_zero && ys[0] > 0) ys[0] = 0;
    this.xs = Drawing.closed(chart.kind === 'lines' ? view.range : Drawing.fromZero(xs));
    this.ys = Drawing.closed(ys);
    if (view.log) {
      this.ys = [this.ys[0] > 0 ? this.ys[0] / 1.05 : this.ys[1] / 10, this.ys[1] * 1.05];
    } else {
      const room = (this.ys[1] - this.ys[0]) * 0.04;
      this.ys[1] += room;
      if (!chart.from_zero && chart.kind !== 'stack') this.ys[0] = this.ys[0] >= 0 ? Math.max(0, this.ys[0] - room) : this.ys[0] - room;
    }
  }

  // The range of all curves of the page, so that one position is at one place in all of them.
  static range(charts, view) {
    const range = [Infinity, -Infinity];
    for (const chart of charts) {
      for (const series of chart.kind === 'lines' ? chart.series : []) {
        if (view.hidden.has(series.run)) continue;
        const first = series.begin ? series.begin[view.axis].slice(0, 1) : [];
        for (const value of [...series[view.axis], ...first]) {
          range[0] = Math.min(range[0], value);
          range[1] = Math.max(range[1], value);
        }
      }
    }
    return Drawing.fromZero(range);
  }

  // Begins at zero, unless the run was resumed late.
  static fromZero([low, high]) { return [low > 0 && low < 0.25 * high ? 0 : low, high]; }

  static closed([low, high]) {
    if (!(low <= high)) return [0, 1];
    if (low < high) return [low, high];
    const room = low === 0 ? 1 : Math.abs(low) * 0.1;
    return [low === 0 ? 0 : low - room, high + room];
  }

  x(value) {
    return this.box.left + (value - this.xs[0]) / (this.xs[1] - this.xs[0]) * (this.box.right - this.box.left);
  }

  y(value) {
    const scaled = this.view.log ? Math.log : (number) => number;
    const part = (scaled(value) - scaled(this.ys[0])) / (scaled(this.ys[1]) - scaled(this.ys[0]));
    return this.box.bottom - part * (this.box.bottom - this.box.top);
  }

  // Differences of larger numbers are not finite.
  canDraw(value) { return typeof value === 'number' && Math.abs(value) <= 1e300 && (!this.view.log || value > 0); }

  valueAt(pixel) {
    return this.xs[0] + (pixel - this.box.left) / (this.box.right - this.box.left) * (this.xs[1] - this.xs[0]);
  }

  classOf(series) {
    const behind = series.role === 'interval' && this.chart.series.some((other) => other.role !== 'interval');
    const colour = this.colourOf(series);
    // From the ninth run on, colours return with other dashes.
    const dashes = this.view.numRuns === 1 ? colour : (series.run + Math.floor(series.run / 8)) % 8;
    // Among many runs the curves of training step back behind those of validation.
    const half = this.view.numRuns > 12 && series.role === 'train' && this.chart.series.some((other) => other.role === 'validation');
    return `c${colour} d${dashes}${behind ? ' faint' : ''}${half ? ' half' : ''}`;
  }

  colourOf(series) { return this.view.numRuns === 1 ? (series.role === 'validation' ? 1 : 0) : series.run % 8; }

  axes() {
    const {view, box} = this;
    const lines = this.ticks.map((value) => `<path d="M${box.left} ${this.y(value).toFixed(1)}H${box.right}"/>`);
    const texts = this.ticks.map((value, index) => `<text text-anchor="end" x="${box.left - 7}" ` +
                                                   `y="${(this.y(value) + 3.5).toFixed(1)}">${this.labels[index]}</text>`);
    const across = Axis.ticks(...this.xs, Math.max(2, Math.min(6, Math.floor((this.width - box.left) / 65))), view.axis);
    const names = Axis.labels(across, view.axis);
    across.forEach((value, index) => {
      const atEnd = this.x(value) + 3.2 * names[index].length > this.width;
      texts.push(`<text text-anchor="${atEnd ? 'end' : 'middle'}" x="${atEnd ? this.width : this.x(value).toFixed(1)}" ` +
                 `y="${this.height - 8}">${names[index]}</text>`);
    });
    return `<g class="grid">${lines.join('')}</g><g class="ticks">${texts.join('')}</g>`;
  }

  // Where the axis of time leaves out stretches without training.
  pauses() {
    const {view, box} = this;
    if (view.axis !== 'time') return '';
    const marks = [];
    for (const run of new Set(this.series.map((series) => series.run))) {
      for (const {at, seconds} of view.breaks[run]) {
        const x = this.x(at);
        if (x < box.left || x > box.right) continue;
        const colour = view.numRuns === 1 ? 'plain' : 'c' + run % 8;
        marks.push(`<g class="series ${colour}"><path d="M${(x - 5).toFixed(1)} ${box.bottom + 4}l4 -8m2 8l4 -8"/>` +
                   (view.numRuns === 1 ? `<path class="pause" d="M${x.toFixed(1)} ${box.top}V${box.bottom - 5}"/>` : '') + '</g>');
        if (view.numRuns > 1) continue;
        const atEnd = x > (box.left + box.right) / 2;
        marks.push(`<g class="ticks halo"><text text-anchor="${atEnd ? 'end' : 'start'}" x="${(x + (atEnd ? -4 : 4)).toFixed(1)}" ` +
                   `y="${box.top + 8}">${Format.duration(seconds)} left out</text></g>`);
      }
    }
    return marks.join('');
  }

  line(series) {
    const short = series.y.length <= 40;
    const few = this.view.numRuns === 1 || (series.role === 'validation' && this.view.numShown <= 12);
    const has = short && series.role !== 'interval' && few;
    const all = series[this.view.axis];
    let path = '', marks = '', crosses = '', down = false;
    series.y.forEach((value, index) => {
      const at = this.x(all[index]), x = at.toFixed(1);
      if (!this.canDraw(value)) {
        if (!this.view.log || typeof value === 'string') crosses += `M${x - 3} ${this.box.top - 3}l6 6m0 -6l-6 6`;
        down = false;
        return;
      }
      const y = this.y(value).toFixed(1);
      const alone = !this.canDraw(series.y[index - 1]) && !this.canDraw(series.y[index + 1]);
      if (series.begin) {
        // A mean holds for its stretch, and is drawn on to the next one.
        const begin = this.x(series.begin[this.view.axis][index]);
        path += `${down ? `H${begin.toFixed(1)}V${y}` : `M${begin.toFixed(1)} ${y}`}H${x}`;
        if ((series.y.length <= 12 || alone) && at - begin < this.narrow) marks += `<circle cx="${((at + begin) / 2).toFixed(1)}" cy="${y}" r="2.5"/>`;
      } else {
        path += `${down ? 'L' : 'M'}${x} ${y}`;
        if (alone || has) marks += `<circle cx="${x}" cy="${y}" r="${alone ? 3.5 : 2.5}"/>`;
      }
      down = true;
    });
    const bad = crosses ? `<path class="bad" d="${crosses}"/>` : '';
    return `<g class="series ${this.classOf(series)}" data-run="${series.run}"><path d="${path || 'M0 0'}"/>${bad}${marks}</g>`;
  }

  stack() {
    const count = this.series[0].y.length;
    const below = new Array(count).fill(0);
    return this.series.map((series) => {
      let upper = '', lower = '';
      series.y.forEach((own, index) => {
        const begin = this.x(series.begin[this.view.axis][index]).toFixed(1);
        const end = this.x(series[this.view.axis][index]).toFixed(1);
        const bottom = this.y(below[index]).toFixed(1);
        const top = this.y(below[index] += own).toFixed(1);
        upper += `${index === 0 ? `M${begin} ${top}` : `H${begin}V${top}`}H${end}`;
        lower = `${index + 1 === count ? `L${end} ${bottom}` : `H${end}V${bottom}`}H${begin}` + lower;
      });
      return `<path class="part p${series.part}" d="${upper}${lower}Z"/>`;
    }).join('');
  }

  // The letters of runs at the ends of their curves, moved apart where they would overlap.
  ends(keys) {
    if (this.view.numRuns === 1 || this.view.numShown > 12 || this.chart.kind === 'stack') return '';
    const order = {validation: 2, train: 1, interval: 0};
    const last = new Map();
    for (const series of this.series) {
      const index = series.y.findLastIndex((value) => this.canDraw(value));
      const before = last.get(series.run);
      if (index < 0 || (before && order[before.role] > order[series.role])) continue;
      last.set(series.run, {role: series.role, x: this.x(series[this.view.axis][index]), y: this.y(series.y[index]), series});
    }
    const ends = [...last.values()].sort((a, b) => a.y - b.y);
    ends.forEach((end, index) => {
      const near = ends.slice(0, index).filter((other) => Math.abs(other.x - end.x) < 16);
      for (const other of near) if (Math.abs(other.y - end.y) < 11) end.y = other.y + 11;
    });
    for (let index = ends.length - 1; index >= 0; --index) {
      const below = ends.slice(index + 1).filter((other) => Math.abs(other.x - ends[index].x) < 16).map((other) => other.y - 11);
      ends[index].y = Math.max(this.box.top, Math.min(ends[index].y, this.box.bottom, ...below));
    }
    const texts = ends.map((end) => `<text x="${(end.x + 6).toFixed(1)}" y="${(end.y + 4).toFixed(1)}" ` +
                                    `style="fill:var(--c${end.series.run % 8})">${keys[end.series.run]}</text>`);
    return `<g class="ends">${texts.join('')}</g>`;
  }

  svg(keys) {
    const inside = this.series.length === 0 ? '' :
      this.chart.kind === 'stack' ? this.stack() : this.series.map((series) => this.line(series)).join('') + this.ends(keys);
    const crowd = this.view.numShown > 12 && this.chart.kind === 'lines' ? ' class="crowd"' : '';
    return `<svg${crowd} viewBox="0 0 ${this.width} ${this.height}" aria-hidden="true">${this.axes()}${inside}${this.pauses()}<g class="cursor"></g></svg>`;
  }

  // All positions that a cursor can stand at, in order.
  positions() {
    const all = new Set();
    for (const series of this.series) for (const value of series[this.view.axis]) all.add(value);
    return [...all].sort((a, b) => a - b);
  }

  // What each series has at `x`: the stretch that `x` is in, else the nearest point. Nothing where the series does not reach it.
  nearest(x) {
    const room = (this.xs[1] - this.xs[0]) * 0.02;
    const found = [];
    for (const series of this.series) {
      const all = series[this.view.axis];
      const begins = series.begin ? series.begin[this.view.axis] : all;
      if (all.length === 0 || x < begins[0] - room || x > all[all.length - 1] + room) continue;
      let low = Drawing.firstFrom(all, x);
      const inside = series.begin && low < all.length && begins[low] <= x;
      if (!inside && (low === all.length || (low > 0 && Math.abs(all[low - 1] - x) <= Math.abs(begins[low] - x)))) --low;
      found.push({series, index: low});
    }
    return found;
  }

  // The index of the first value that is not below `x`.
  static firstFrom(all, x) {
    let low = 0, high = all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (all[middle] < x) low = middle + 1; else high = middle;
    }
    return low;
  }
}

// A line over the last minutes, drawn on a canvas.

const spanMs = 5 * 60_000;
/** After a pause as long as this the line is broken: nobody looked. */
const pauseMs = 10_000;
const axisWidth = 60;
const axisHeight = 20;

/** Where an axis ends that has room for `value`: a round number with a round half, of units that are powers of `base`. */
export function niceTop(value, base = 10) {
  let unit = 1;
  while (base > 10 && value >= unit * base) unit *= base;
  const power = 10 ** Math.floor(Math.log10(Math.max(value / unit, 1)));
  return [2, 4, 10, 20].map((factor) => factor * power * unit).find((top) => top >= value);
}

/** Values with their times, of which those of the last minutes are kept. */
export class Series {
  constructor() {
    this.points = [];
  }

  /** Adds a value; `undefined` breaks the line. */
  add(atMs, value) {
    this.points.push({ atMs, value });
    while (this.points[0].atMs < atMs - spanMs - pauseMs) this.points.shift();
  }

  clear() {
    this.points = [];
  }

  get top() {
    return this.points.reduce((top, { value }) => Math.max(top, value ?? 0), 0);
  }

  /** The points in runs without a break. */
  runs() {
    const runs = [[]];
    let lastMs;
    for (const point of this.points) {
      if (point.value === undefined || point.atMs - lastMs > pauseMs) runs.push([]);
      if (point.value !== undefined) runs.at(-1).push(point);
      lastMs = point.atMs;
    }
    return runs.filter((run) => run.length > 0);
  }
}

export class Chart {
  /** `write` makes text of a value; `base` is that of its units. */
  constructor(parent, title, write, base = 10) {
    this.title = title;
    this.write = write;
    this.base = base;
    this.series = new Series();
    const make = (tag, className) => Object.assign(document.createElement(tag), { className });
    this.figure = make('figure', '');
    const caption = make('figcaption', '');
    const name = make('span', '');
    name.textContent = title;
    this.now = make('span', 'now');
    caption.append(name, this.now);
    this.canvas = make('canvas', '');
    this.canvas.setAttribute('role', 'img');
    this.figure.append(caption, this.canvas);
    parent.append(this.figure);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  add(atMs, value) {
    this.series.add(atMs, value);
    const said = value === undefined ? 'no figure yet' : `now ${this.write(value)}, highest ${this.write(this.series.top)}`;
    if (this.now.textContent !== said) this.now.textContent = said;
    this.canvas.setAttribute('aria-label', `${this.title}, last five minutes: ${said}`);
    this.draw();
  }

  clear() {
    this.series.clear();
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    // It stands in a view that is not shown.
    if (width === 0) return;
    const scale = devicePixelRatio;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const area = { left: axisWidth, top: 6, width: width - axisWidth - 4, height: height - axisHeight - 6 };
    const top = niceTop(this.series.top, this.base);
    this.drawAxes(pen, area, top, { line: colour('--line'), text: colour('--muted'), font: `12px ${style.fontFamily}` });
    this.drawLine(pen, area, top, colour('--chart'));
  }

  drawAxes(pen, area, top, { line, text, font }) {
    pen.font = font;
    pen.lineWidth = 1;
    pen.strokeStyle = line;
    pen.fillStyle = text;
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(area.top + area.height * (1 - part)) + 0.5;
      pen.beginPath();
      pen.moveTo(area.left, y);
      pen.lineTo(area.left + area.width, y);
      pen.stroke();
      pen.fillText(this.write(top * part).replace(/\.0(?!\d)/, ''), area.left - 8, y);
    }
    pen.textBaseline = 'bottom';
    // On a narrow screen every second one has room.
    for (const minute of area.width < 330 ? [4, 2, 0] : [5, 4, 3, 2, 1, 0]) {
      const x = area.left + area.width * (1 - (minute * 60_000) / spanMs);
      pen.textAlign = minute === 0 ? 'right' : minute === 5 ? 'left' : 'center';
      pen.fillText(minute === 0 ? 'now' : `−${minute} min`, x, area.top + area.height + axisHeight);
    }
  }

  drawLine(pen, area, top, colour) {
    const nowMs = this.series.points.at(-1)?.atMs ?? 0;
    const x = ({ atMs }) => area.left + area.width * (1 - (nowMs - atMs) / spanMs);
    const y = ({ value }) => area.top + area.height * (1 - value / top);
    pen.save();
    pen.beginPath();
    pen.rect(area.left, 0, area.width + 4, area.top + area.height + 2);
    pen.clip();
    pen.lineWidth = 2;
    pen.lineJoin = 'round';
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    for (const run of this.series.runs()) {
      pen.beginPath();
      run.forEach((point, index) => (index === 0 ? pen.moveTo(x(point), y(point)) : pen.lineTo(x(point), y(point))));
      pen.stroke();
      pen.lineTo(x(run.at(-1)), area.top + area.height);
      pen.lineTo(x(run[0]), area.top + area.height);
      pen.globalAlpha = 0.12;
      pen.fill();
      pen.globalAlpha = 1;
    }
    const last = this.series.points.at(-1);
    if (last?.value !== undefined) {
      pen.beginPath();
      pen.arc(x(last), y(last), 3, 0, 2 * Math.PI);
      pen.fill();
    }
    pen.restore();
  }
}

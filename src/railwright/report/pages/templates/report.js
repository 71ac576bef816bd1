// Adds to a page that reads without it: numbers at the pointer, zooming, links that unfold, and unfolding for paper.
(function () {
  "use strict";

  const NS = "http://www.w3.org/2000/svg";
  // The factors and units of each quantity, the largest first: a value has the first unit whose start it reaches.
  const UNITS = {
    bandwidth_bytes_per_s: [[1e8, 1e9, "GB/s"], [0, 1e6, "MB/s"]],
    latency_s: [[1, 1, "s"], [1e-3, 1e-3, "ms"], [1e-6, 1e-6, "us"], [0, 1e-9, "ns"]],
    operations_per_s: [[1e6, 1e6, "Mop/s"], [1e3, 1e3, "kop/s"], [0, 1, "op/s"]],
    messages_per_s: [[1e6, 1e6, "Mmsg/s"], [1e3, 1e3, "kmsg/s"], [0, 1, "msg/s"]],
    flop_per_s: [[1e18, 1e18, "EFLOP/s"], [1e15, 1e15, "PFLOP/s"], [1e12, 1e12, "TFLOP/s"], [0, 1e9, "GFLOP/s"]],
    size_bytes: [[2 ** 40, 2 ** 40, "TiB"], [2 ** 30, 2 ** 30, "GiB"], [2 ** 20, 2 ** 20, "MiB"], [1024, 1024, "KiB"],
      [0, 1, "B"]],
    short: [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e3, 1e3, "k"], [0, 1, ""]],
  };

  function words(value, unit, digits = 4) {
    if (value === 0) return "0";
    const [, factor, name] = (UNITS[unit] || [[0, 1, unit.replace("plain ", "")]]).find(([from]) => value >= from);
    return `${Number((value / factor).toPrecision(digits))} ${name}`.trim();
  }

  // The ends, the kind and the unit of an axis; a share of it is 0 at its low end and 1 at its high end.
  class Axis {
    constructor(text) {
      [this.low, this.high, this.log, this.unit] = JSON.parse(text);
    }
    value(share) {
      return this.log ? this.low * (this.high / this.low) ** share : this.low + (this.high - this.low) * share;
    }
    share(value) {
      return this.log ? Math.log(value / this.low) / Math.log(this.high / this.low)
        : (value - this.low) / (this.high - this.low);
    }
    // Values for about `most` ticks between two shares: powers of ten or two while there are some, else even steps.
    ticks(from, to, most) {
      const low = this.value(from), high = this.value(to);
      const base = this.unit === "size_bytes" ? 2 : 10;
      const between = (values) => values.filter((value) => value >= low && value <= high);
      if (this.log && high / low >= base ** 2) {
        const first = Math.floor(Math.log(low) / Math.log(base)), last = Math.ceil(Math.log(high) / Math.log(base));
        const each = Math.max(1, Math.ceil((last - first) / most));
        const found = [];
        for (let power = first; power <= last; power += each) {
          for (const step of base === 10 && last - first <= most / 2 ? [1, 2, 5] : [1]) found.push(step * base ** power);
        }
        return between(found);
      }
      const rough = (high - low) / most, decade = 10 ** Math.floor(Math.log10(rough));
      const step = decade * [1, 2, 5, 10].find((each) => each * decade >= rough);
      const found = [];
      for (let n = Math.ceil(low / step); n * step <= high && found.length < 50; n += 1) found.push(n * step);
      return found;
    }
  }

  // Maps the coordinates of a path's absolute commands; shapes of marks are relative, and keep their size.
  function mapped(path, across, down) {
    return path.replace(/([MLHV])([^A-Za-z]*)/g, (_, command, text) => {
      const numbers = text.trim().split(/[\s,]+/).map(Number);
      const at = numbers.map((number, place) => {
        const isX = command === "H" || (command !== "V" && place % 2 === 0);
        return (isX ? across(number) : down(number)).toFixed(2);
      });
      return command + at.join(" ");
    });
  }

  function points(path) {
    const numbers = path.replace(/[a-z].*?(?=[A-Z]|$)/g, "").match(/-?[\d.]+/g).map(Number);
    return Array.from({ length: numbers.length / 2 }, (_, place) => [numbers[2 * place], numbers[2 * place + 1]]);
  }

  class Panel {
    constructor(node, figure) {
      this.node = node;
      this.plot = node.querySelector(".plot");
      this.box = ["x", "y", "width", "height"].map((name) => Number(this.plot.getAttribute(name)));
      [, , this.width, this.height] = this.box;
      this.axes = { x: new Axis(node.dataset.x), y: new Axis(node.dataset.y) };
      this.first = { x: [...node.querySelector(".x").childNodes], y: [...node.querySelector(".y").childNodes] };
      this.hasLanes = !this.first.y.some((child) => child.nodeName === "text"); // they have no scale, and are not zoomed
      this.paths = [...this.plot.querySelectorAll("path")].map((path) => [path, path.getAttribute("d")]);
      this.texts = [...this.plot.querySelectorAll("text")].map((text) => [text, +text.getAttribute("x"), +text.getAttribute("y")]);
      this.shown = { x: [0, 1], y: [0, 1] }; // as shares of the axes
      this.marks = this.paths.flatMap(([path, d]) => this.told(path, d, figure));
      this.curves = this.paths.filter(([path]) => path.dataset.curve).map(([path, d]) => [path.dataset.curve, stepPoints(d)]);
    }
    // The marks of a path with what a pointer shows there: a row of the table, or the path's title.
    told(path, d, figure) {
      if (path.dataset.row !== undefined) {
        return points(d).map(([x, y], place) => ({ x, y, lines: () => rowLines(figure, Number(path.dataset.row) + place) }));
      }
      const title = path.querySelector("title");
      if (!title) return [];
      const lines = title.textContent.split("\n");
      title.remove(); // else the browser shows it, too
      return points(d).map(([x, y]) => ({ x, y, lines: () => lines }));
    }
    across(x) {
      const [low, high] = this.shown.x;
      return ((x / this.width - low) / (high - low)) * this.width;
    }
    down(y) {
      const [low, high] = this.shown.y;
      return (1 - (1 - y / this.height - low) / (high - low)) * this.height;
    }
    isVisible({ x, y }) {
      const left = this.across(x), top = this.down(y);
      return left >= -1 && left <= this.width + 1 && top >= -1 && top <= this.height + 1;
    }
    draw() {
      for (const [path, d] of this.paths) path.setAttribute("d", mapped(d, (x) => this.across(x), (y) => this.down(y)));
      for (const [text, x, y] of this.texts) {
        text.setAttribute("x", this.across(x));
        text.setAttribute("y", this.down(y));
      }
      this.drawTicks("x", Math.max(2, Math.floor(this.width / 70)));
      this.drawTicks("y", Math.max(2, Math.floor(this.height / 32)));
    }
    drawTicks(name, most) {
      const group = this.node.querySelector(`.${name}`), [low, high] = this.shown[name];
      if ((low === 0 && high === 1) || (name === "y" && this.hasLanes)) {
        group.replaceChildren(...this.first[name]);
        return;
      }
      const [left, top, width, height] = this.box, axis = this.axes[name], grid = document.createElementNS(NS, "path");
      const hasWords = this.first[name].some((node) => node.nodeName === "text");
      const labels = [];
      let lines = "";
      for (const value of axis.ticks(low, high, most)) {
        const share = (axis.share(value) - low) / (high - low);
        const x = left + width * share, y = top + height * (1 - share);
        lines += name === "x" ? `M${x} ${top}V${top + height}` : `M${left} ${y}H${left + width}`;
        const text = document.createElementNS(NS, "text");
        text.textContent = words(value, axis.unit);
        text.setAttribute("x", name === "x" ? Math.min(x, 440 - text.textContent.length * 3.1) : left - 6);
        text.setAttribute("y", name === "x" ? top + height + 15 : y + 4);
        if (hasWords) labels.push(text);
      }
      grid.setAttribute("d", lines);
      group.replaceChildren(grid, ...labels);
    }
  }

  // The corners of a curve in steps: the start of each interval with its value.
  function stepPoints(d) {
    const found = [];
    let x = 0;
    for (const [, command, text] of d.matchAll(/([MHV])([^A-Za-z]*)/g)) {
      const numbers = text.trim().split(" ").map(Number);
      if (command === "H") [x] = numbers;
      else found.push(command === "M" ? numbers : [x, numbers[0]]);
    }
    return found;
  }

  function rowLines(figure, number) {
    const row = figure.querySelectorAll("tbody tr")[number], heads = [...figure.querySelectorAll("thead th")].slice(1);
    const name = row.closest("tbody").querySelector("th").textContent;
    const cells = [...row.querySelectorAll("td")].map((cell, place) => [heads[place].textContent, cell.textContent]);
    return [name, ...cells.filter(([, value]) => value && value !== "-").map(([head, value]) => `${head}\u2002${value}`)];
  }

  // A chart with its panels, which share the horizontal axis.
  class Chart {
    constructor(svg) {
      this.svg = svg;
      this.area = svg.parentNode;
      const figure = svg.closest("figure");
      this.panels = [...svg.querySelectorAll(".panel")].map((node) => new Panel(node, figure));
      this.tip = this.area.appendChild(document.createElement("output"));
      this.tip.className = "tip";
      this.name();
      this.buttons();
      this.listen();
    }
    // A title would follow the pointer everywhere; the chart keeps it as its name.
    name() {
      const title = this.svg.querySelector("title"), desc = this.svg.querySelector("desc");
      this.svg.setAttribute("aria-label", title.textContent);
      this.svg.setAttribute("aria-description", `${desc.textContent} Arrows show points, plus and minus zoom, 0 shows all.`);
      this.svg.tabIndex = 0;
      title.remove();
    }
    buttons() {
      const bar = document.createElement("div");
      bar.className = "zoom";
      for (const [sign, title, act] of [["+", "zoom in", () => this.zoomBy(0.5)], ["\u2212", "zoom out", () => this.zoomBy(2)],
        ["\u21ba", "show all", () => this.reset()]]) {
        const button = bar.appendChild(document.createElement("button"));
        button.type = "button";
        button.textContent = sign;
        button.title = title;
        button.setAttribute("aria-label", title);
        button.addEventListener("click", act);
      }
      this.area.append(bar);
    }
    // The pointer's place in the chart's coordinates, its panel, and its place there.
    place(event) {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      const panel = this.panels.find(({ box: [left, top, width, height] }) =>
        at.x >= left - 8 && at.x <= left + width + 8 && at.y >= top - 8 && at.y <= top + height + 8);
      return panel ? { panel, x: at.x - panel.box[0], y: at.y - panel.box[1] } : null;
    }
    listen() {
      const svg = this.svg;
      let start = null, frame = null;
      svg.addEventListener("pointermove", (event) => {
        const at = this.place(event);
        if (!start) { at ? this.point(at) : this.hide(); return; }
        const [x0, x1, y0, y1] = extent(start, event, this);
        for (const [name, value] of [["x", x0 + start.panel.box[0]], ["y", y0 + start.panel.box[1]], ["width", x1 - x0], ["height", y1 - y0]]) {
          frame.setAttribute(name, value);
        }
      });
      svg.addEventListener("pointerdown", (event) => {
        const at = this.place(event);
        if (!at || event.button !== 0) return;
        if (event.pointerType === "touch") { this.point(at); return; } // a finger scrolls the page
        start = at;
        frame = svg.appendChild(document.createElementNS(NS, "rect"));
        frame.setAttribute("class", "frame");
        svg.setPointerCapture(event.pointerId);
        this.hide();
      });
      const end = (event) => {
        if (!start) return;
        const [x0, x1, y0, y1] = extent(start, event, this), { panel } = start;
        frame.remove();
        start = null;
        if (event.type === "pointerup" && (x1 - x0 > 6 || y1 - y0 > 6)) {
          const [lowX, highX] = panel.shown.x, [lowY, highY] = panel.shown.y;
          const x = (at) => lowX + (highX - lowX) * (at / panel.width), y = (at) => lowY + (highY - lowY) * (1 - at / panel.height);
          this.show(panel, x1 - x0 > 6 ? [x(x0), x(x1)] : panel.shown.x, y1 - y0 > 6 && !panel.hasLanes ? [y(y1), y(y0)] : panel.shown.y);
        }
      };
      svg.addEventListener("pointerup", end);
      svg.addEventListener("pointercancel", end);
      svg.addEventListener("pointerleave", () => this.hide());
      svg.addEventListener("dblclick", () => this.reset());
      svg.addEventListener("keydown", (event) => this.key(event));
      svg.addEventListener("blur", () => this.hide());
    }
    show(panel, x, y) {
      if (x[1] - x[0] < 1e-4 || y[1] - y[0] < 1e-4) return;
      panel.shown.y = y;
      for (const each of this.panels) {
        each.shown.x = x;
        each.draw();
      }
      this.area.classList.toggle("zoomed", this.panels.some(({ shown }) => shown.x[1] - shown.x[0] < 1 || shown.y[1] - shown.y[0] < 1));
    }
    reset() {
      for (const panel of this.panels) this.show(panel, [0, 1], [0, 1]);
      this.hide();
    }
    // Zooms all panels around the chosen point, or around their middle.
    zoomBy(factor) {
      for (const panel of this.panels) {
        const chosen = this.chosen && this.chosen.panel === panel ? this.chosen.mark : null;
        const part = ([low, high], middle) => {
          const size = Math.min(1, (high - low) * factor), from = Math.min(1 - size, Math.max(0, middle - size / 2));
          return [from, from + size];
        };
        const { x, y } = panel.shown, middle = ([low, high]) => (low + high) / 2;
        this.show(panel, part(x, chosen ? chosen.x / panel.width : middle(x)),
          panel.hasLanes || panel.curves.length ? y : part(y, chosen ? 1 - chosen.y / panel.height : middle(y)));
      }
      if (this.chosen) this.choose(this.chosen.panel, this.chosen.mark);
    }
    point({ panel, x, y }) {
      if (panel.curves.length) { this.pointCurves(panel, x); return; }
      let nearest = null, least = 30 ** 2;
      for (const mark of panel.marks) {
        if (!panel.isVisible(mark)) continue;
        const distance = (panel.across(mark.x) - x) ** 2 + (panel.down(mark.y) - y) ** 2;
        if (distance < least) [nearest, least] = [mark, distance];
      }
      if (nearest) this.choose(panel, nearest);
      else this.hide();
    }
    pointCurves(panel, x) {
      const [low, high] = panel.shown.x, at = (low + (high - low) * (x / panel.width)) * panel.width;
      const lines = panel.curves.map(([name, corners]) => {
        const corner = corners.findLast(([from]) => from <= at) || corners[0];
        return `${name}\u2002${words(panel.axes.y.value(1 - corner[1] / panel.height), panel.axes.y.unit)}`;
      });
      const [, corners] = panel.curves[0];
      const y = (corners.findLast(([from]) => from <= at) || corners[0])[1];
      this.choose(panel, { x: at, y, lines: () => [words(panel.axes.x.value(at / panel.width), panel.axes.x.unit), ...lines] });
    }
    choose(panel, mark) {
      this.chosen = { panel, mark };
      const [head, ...lines] = mark.lines();
      const name = document.createElement("b");
      name.textContent = head;
      this.tip.replaceChildren(name, ...lines.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
      this.tip.classList.add("shown");
      const at = new DOMPoint(panel.box[0] + panel.across(mark.x), panel.box[1] + panel.down(mark.y)).matrixTransform(this.svg.getScreenCTM());
      const area = this.area.getBoundingClientRect();
      const x = at.x - area.left, y = at.y - area.top, { offsetWidth: width, offsetHeight: height } = this.tip;
      this.tip.style.left = `${Math.max(0, Math.min(area.width - width, x + 14 + width > area.width ? x - 14 - width : x + 14))}px`;
      this.tip.style.top = `${Math.max(0, y - height / 2)}px`;
      if (!this.ring) {
        this.ring = this.svg.appendChild(document.createElementNS(NS, "circle"));
        this.ring.setAttribute("class", "ring");
        this.ring.setAttribute("r", 7);
      }
      this.ring.setAttribute("cx", panel.box[0] + panel.across(mark.x));
      this.ring.setAttribute("cy", panel.box[1] + panel.down(mark.y));
    }
    hide() {
      this.tip.classList.remove("shown");
      if (this.ring) this.ring.remove();
      this.ring = this.chosen = null;
    }
    key(event) {
      const { key } = event;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (key === "+" || key === "=") this.zoomBy(0.5);
      else if (key === "-") this.zoomBy(2);
      else if (key === "0" || key === "Escape") this.reset();
      else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) this.step(key);
      else return;
      event.preventDefault();
    }
    // Left and right follow the points in the order of the table; up and down jump to the next panel or curve.
    step(key) {
      if (this.panels.some((panel) => panel.curves.length)) { this.slide(key); return; }
      const all = this.panels.flatMap((panel) => panel.marks.filter((mark) => panel.isVisible(mark)).map((mark) => ({ panel, mark })));
      if (!all.length) return;
      const now = this.chosen ? all.findIndex(({ mark }) => mark === this.chosen.mark) : -1;
      let next = now + (key === "ArrowRight" || key === "ArrowDown" ? 1 : -1);
      if (now >= 0 && (key === "ArrowUp" || key === "ArrowDown")) {
        const name = all[now].mark.lines()[0], forward = key === "ArrowDown";
        const others = all.map(({ mark }, place) => [mark, place]).filter(([mark, place]) =>
          mark.lines()[0] !== name && (forward ? place > now : place < now));
        if (others.length) [[, next]] = forward ? others : others.slice(-1);
      }
      const { panel, mark } = all[(next + all.length) % all.length];
      this.choose(panel, mark);
    }
    slide(key) {
      const now = this.chosen ? this.panels.indexOf(this.chosen.panel) : 0;
      const moved = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
      const panel = this.panels[(now + moved + this.panels.length) % this.panels.length];
      const x = this.chosen ? panel.across(this.chosen.mark.x) : panel.width / 2;
      const by = key === "ArrowRight" ? panel.width / 50 : key === "ArrowLeft" ? -panel.width / 50 : 0;
      this.pointCurves(panel, Math.max(0, Math.min(panel.width, x + by)));
    }
  }

  // The part of a panel between two places of the pointer: left, right, top and bottom.
  function extent(start, event, chart) {
    const { panel } = start;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.svg.getScreenCTM().inverse());
    const within = (value, end) => Math.max(0, Math.min(end, value));
    const x = within(at.x - panel.box[0], panel.width), y = within(at.y - panel.box[1], panel.height);
    const [x0, y0] = [within(start.x, panel.width), within(start.y, panel.height)];
    return [Math.min(x0, x), Math.max(x0, x), Math.min(y0, y), Math.max(y0, y)];
  }

  for (const svg of document.querySelectorAll("svg.chart")) new Chart(svg);

  // On paper evidence is unfolded, but not paths, numbers and long lists, which would fill many sheets.
  const folded = "details:not([open]):not(.path):not(.unprinted)";
  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll(folded)) {
      each.dataset.folded = "";
      each.open = true;
    }
  });
  window.addEventListener("afterprint", () => {
    for (const each of document.querySelectorAll("details[data-folded]")) {
      delete each.dataset.folded;
      each.open = false;
    }
  });

  // A link to a path unfolds it.
  function unfold() {
    const target = window.location.hash.length > 1 && document.getElementById(window.location.hash.slice(1));
    for (let each = target; each; each = each.parentElement) {
      if (each.tagName === "DETAILS") each.open = true;
    }
    if (target) target.scrollIntoView();
  }
  unfold();
  window.addEventListener("hashchange", unfold);

  // The title that a pointer shows is written below the drawing for users of a keyboard or a touch screen.
  const pointed = document.querySelector(".pointed");
  for (const link of pointed ? document.querySelectorAll(".machine a") : []) {
    link.addEventListener("focus", () => { pointed.textContent = link.querySelector("title").textContent; });
    link.addEventListener("blur", () => { pointed.textContent = ""; });
  }
})();

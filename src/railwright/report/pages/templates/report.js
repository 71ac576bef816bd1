// Draws the figures in the colours of the page: light, dark, and on paper.
(function () {
  "use strict";

  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)");
  const data = document.getElementById("figures");
  const figures = data ? JSON.parse(data.textContent) : [];
  const plots = Array.from(document.querySelectorAll(".plot"));
  // No buttons: some would need permissions that the page's policy denies, and dragging replaces the others.
  const settings = { displayModeBar: false, displaylogo: false, responsive: true };

  // A colour in a figure is the name of a CSS variable.
  function resolved(value, style) {
    if (typeof value === "string") {
      return /^--[a-z]+(-\d+(-band)?)?$/.test(value) ? style.getPropertyValue(value).trim() : value;
    }
    if (Array.isArray(value)) {
      return value.map((each) => resolved(each, style));
    }
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, resolved(each, style)]));
    }
    return value;
  }

  // The width between the margins of A4 and Letter, at 96 px an inch: on paper a figure fits the sheet, not the screen.
  const PAPER_PX = 690;

  function draw() {
    const style = window.getComputedStyle(root);
    const font = window.getComputedStyle(document.body).fontFamily;
    for (const plot of plots) {
      const figure = resolved(figures[Number(plot.dataset.figure)], style);
      figure.layout.font.family = font;
      if (root.classList.contains("paper")) {
        figure.layout.width = PAPER_PX;
        if (figure.layout.xaxis.type === "log") figure.layout.height *= 0.65; // a sheet is wide but not high
      }
      figure.layout.dragmode = touch.matches ? false : "zoom"; // a finger scrolls the page
      window.Plotly.react(plot, figure.data, figure.layout, settings);
    }
  }

  // On paper everything is unfolded and light, whatever the screen shows.
  function forPaper() {
    root.classList.add("paper");
    for (const each of document.querySelectorAll("details:not([open]):not(.path)")) {
      each.dataset.folded = "";
      each.open = true;
    }
    if (plots.length) draw();
  }

  function forScreen() {
    root.classList.remove("paper");
    for (const each of document.querySelectorAll("details[data-folded]")) {
      delete each.dataset.folded;
      each.open = false;
    }
    if (plots.length) draw();
  }

  // A link to a path unfolds it.
  function unfold() {
    const target = window.location.hash.length > 1 && document.getElementById(window.location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  unfold();
  window.addEventListener("hashchange", unfold);

  // The title that a pointer shows is written below the drawing for users of a keyboard or a touch screen.
  const pointed = document.querySelector(".pointed");
  for (const link of pointed ? document.querySelectorAll(".machine a") : []) {
    link.addEventListener("focus", () => { pointed.textContent = link.querySelector("title").textContent; });
    link.addEventListener("blur", () => { pointed.textContent = ""; });
  }

  if (plots.length) {
    draw();
    dark.addEventListener("change", draw);
  }
  window.addEventListener("beforeprint", forPaper);
  window.addEventListener("afterprint", forScreen);
})();

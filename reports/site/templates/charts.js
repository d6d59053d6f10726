// Draws the charts of a page that are in sight, the first at once, each further one when the browser has had time to
// breathe; those of a folded section when it opens.
// A chart's specification, data included, stands beside it in the page: nothing is fetched.
"use strict";
(() => {
  const CHARACTER_PX = 6.6, LINE_PX = 14; // of names beside rows
  const LEAST_PX = 190, MOST_PX = 360; // of a small chart
  const options = { renderer: "svg", actions: false, ast: true, defaultStyle: false, loader: refuse(),
    tooltip: { theme: "custom", disableDefaultStyle: true } };

  // Vega asks its loader for data and images; there are none, and a specification that names one gets nothing.
  function refuse() {
    const no = () => Promise.reject(new Error("these pages load nothing"));
    return { load: no, sanitize: no, http: no, file: no };
  }

  // Names beside rows are folded where a part of them ends, and never cut: arms often differ at their ends only.
  function foldNames(specification, names, limit) {
    const lines = names.map((name) => folded(name, Math.max(8, Math.floor(limit / CHARACTER_PX))));
    const most = Math.max(...lines.map((own) => own.length));
    specification.height = Math.max(specification.height, names.length * (most + 1) * LINE_PX + 20);
    specification.config.axis.labelLimit = 2 * limit; // a line of wide letters
    const labelExpr = `${JSON.stringify(lines)}[indexof(${JSON.stringify(names)}, datum.value)]`;
    for (const { encoding } of specification.layer) {
      if (encoding.y) encoding.y.axis = { ...encoding.y.axis, labelExpr };
    }
  }

  // Small charts: as many beside each other as there is room for, each as wide as that leaves; names fold above them.
  function spread(specification, room) {
    const { facet, spec } = specification, gap = specification.resolve ? 70 : 24; // own axes take room
    const names = facet.sort, columns = Math.max(1, Math.min(names.length, Math.floor(room / (LEAST_PX + gap))));
    specification.columns = columns;
    spec.width = Math.min(MOST_PX, Math.max(LEAST_PX, Math.floor(room / columns) - gap));
    const lines = names.map((name) => folded(name, Math.floor(spec.width / CHARACTER_PX)));
    const labelExpr = `${JSON.stringify(lines)}[indexof(${JSON.stringify(names)}, datum.value)]`;
    facet.header = { labelExpr, labelLimit: 2 * spec.width, labelLineHeight: LINE_PX };
  }

  function folded(name, most) {
    const lines = [""];
    for (const part of name.split(/(?<=[\s,./=_:-])/).flatMap((one) => one.match(new RegExp(`.{1,${most}}`, "gsu")))) {
      if (lines.at(-1) && (lines.at(-1) + part).trimEnd().length > most) lines.push("");
      lines[lines.length - 1] += part;
    }
    return lines.map((line) => line.trim());
  }

  async function draw(place) {
    try {
      const specification = JSON.parse(document.getElementById(place.dataset.chart).textContent);
      const axis = specification.config.axis;
      axis.labelLimit = Math.min(axis.labelLimit, 0.3 * place.clientWidth); // long names leave room for the bars
      if (specification.usermeta) foldNames(specification, specification.usermeta.names, axis.labelLimit);
      if (specification.columns) spread(specification, place.clientWidth - 60);
      await vegaEmbed(place, specification, options);
      place.dataset.state = "drawn";
    } catch (error) {
      place.dataset.state = "failed";
      const note = document.createElement("p");
      note.className = "chart-failed";
      note.textContent = `This chart could not be drawn (${error.message}); the table below holds its values.`;
      place.replaceChildren(note);
      console.error(error);
    }
  }

  // After the next frame; a page that nobody sees gets no frames and goes on all the same.
  function painted() {
    const frame = new Promise((resume) => requestAnimationFrame(() => setTimeout(resume)));
    return Promise.race([frame, new Promise((resume) => setTimeout(resume, 100))]);
  }

  function inSight() {
    const all = document.querySelectorAll(".chart[data-chart]:not([data-state])");
    return [...all].find((place) => !place.closest("details.fold:not([open])"));
  }

  let isDrawing = false;

  async function drawAll() {
    if (isDrawing) return;
    isDrawing = true;
    for (let place = inSight(); place; place = inSight()) {
      document.documentElement.dataset.charts = "drawing";
      await draw(place);
      await painted();
      performance.mark("chart drawn");
    }
    isDrawing = false;
    document.documentElement.dataset.charts = "drawn";
  }

  for (const fold of document.querySelectorAll("details.fold")) fold.addEventListener("toggle", drawAll);
  drawAll();
})();

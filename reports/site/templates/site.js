// Draws the charts of a page, the first at once, each further one when the browser has had time to breathe.
// A chart's specification, data included, stands beside it in the page: nothing is fetched.
"use strict";
(() => {
  const options = { renderer: "svg", actions: false, ast: true, defaultStyle: false, loader: refuse(),
    tooltip: { theme: "custom", disableDefaultStyle: true } };

  // Vega asks its loader for data and images; there are none, and a specification that names one gets nothing.
  function refuse() {
    const no = () => Promise.reject(new Error("these pages load nothing"));
    return { load: no, sanitize: no, http: no, file: no };
  }

  async function draw(place) {
    try {
      const specification = JSON.parse(document.getElementById(place.dataset.chart).textContent);
      const axis = specification.config.axis;
      axis.labelLimit = Math.min(axis.labelLimit, 0.3 * place.clientWidth); // long names leave room for the bars
      if (specification.columns) { // small charts: as many beside each other as there is room for
        specification.columns = Math.max(1, Math.floor((place.clientWidth - 60) / 210));
      }
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

  async function drawAll() {
    for (const place of document.querySelectorAll(".chart[data-chart]")) {
      await draw(place);
      await painted();
      performance.mark("chart drawn");
    }
    document.documentElement.dataset.charts = "drawn";
  }

  drawAll();
})();

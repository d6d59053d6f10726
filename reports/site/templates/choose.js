// Tables whose rows can be chosen and sorted, and sections that are folded. What is chosen and open stands in the
// fragment of the address, to be sent to others: #model=smollm2-135m&sort=-best speed-up, #open=20260101T000000Z-ab-1a2b
"use strict";
(() => {
  const folds = [...document.querySelectorAll("details.fold")];
  const tables = [...document.querySelectorAll("table[data-choices]")].map(chooser);

  function state() {
    const text = location.hash.slice(1);
    return new URLSearchParams(text.includes("=") ? text : "");
  }

  function keep(changes) {
    const kept = state();
    for (const [name, value] of Object.entries(changes)) {
      if (value) kept.set(name, value); else kept.delete(name);
    }
    history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname + location.search);
    tables.forEach((table) => table.show());
  }

  function chooser(table) {
    const rows = [...table.tBodies[0].rows];
    const choices = JSON.parse(document.getElementById(table.dataset.choices).textContent);
    const names = Object.keys(choices[0] ?? {});
    const valuesOf = (name) => [...new Set(choices.flatMap((row) => row[name] ?? []))].sort();
    const form = document.createElement("form");
    form.className = "controls";
    const selects = names.filter((name) => valuesOf(name).length > 1).map((name) => {
      const select = document.createElement("select");
      select.name = name;
      select.append(new Option("all", ""), ...valuesOf(name).map((value) => new Option(value, value)));
      select.addEventListener("change", () => keep({ [name]: select.value }));
      const label = document.createElement("label");
      label.append(name, select);
      form.append(label);
      return select;
    });
    const said = document.createElement("p");
    said.className = "table-note";
    said.setAttribute("role", "status");
    if (selects.length) {
      const all = document.createElement("button");
      all.type = "button";
      all.textContent = "show all";
      all.addEventListener("click", () => keep(Object.fromEntries(names.map((name) => [name, ""]))));
      form.append(all);
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    table.parentElement.before(...(selects.length ? [form, said] : []));

    const heads = [...table.tHead.rows[0].cells].map((head) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => {
        const name = button.textContent;
        keep({ sort: state().get("sort") === `-${name}` ? name : `-${name}` });
      });
      head.append(button);
      return head;
    });

    // Missing values come last, either way.
    function sorted(column, sign) {
      const cell = (row) => row.cells[column];
      const value = (row) => cell(row).dataset.order ?? cell(row).textContent.trim();
      const compare = (a, b) => a.localeCompare(b, "en", { numeric: true });
      const by = (a, b) => (cell(a).dataset.order && cell(b).dataset.order ? value(a) - value(b) : compare(value(a), value(b)));
      const isMissing = (row) => Number(value(row) === "-" || value(row) === "");
      return [...rows].sort((a, b) => isMissing(a) - isMissing(b) || sign * by(a, b));
    }

    function show() {
      const chosen = state();
      for (const select of selects) {
        select.value = chosen.get(select.name) ?? "";
        if (select.selectedIndex < 0) select.value = "";
      }
      rows.forEach((row, n) => {
        row.hidden = selects.some((select) => select.value && !choices[n][select.name].includes(select.value));
      });
      said.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
      const asked = chosen.get("sort") ?? "";
      const sign = asked.startsWith("-") ? -1 : 1;
      const column = heads.findIndex((head) => head.textContent === asked.replace(/^-/, ""));
      heads.forEach((head, n) => {
        if (n === column) head.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      table.tBodies[0].append(...(column < 0 ? rows : sorted(column, sign)));
    }
    return { show };
  }

  // A fragment that names a section itself, as a link does, opens it too.
  function unfold() {
    const named = decodeURIComponent(location.hash.slice(1));
    const asked = new Set([named, ...(state().get("open") ?? "").split(",")]);
    for (const fold of folds) fold.open ||= asked.has(fold.dataset.name);
    if (folds.some((fold) => fold.dataset.name === named)) document.getElementById(named).scrollIntoView();
  }

  function openAll() {
    const button = document.createElement("button");
    button.type = "button";
    const closed = () => folds.some((fold) => !fold.open);
    const name = () => { button.textContent = closed() ? "open all" : "close all"; };
    button.addEventListener("click", () => {
      const open = closed();
      folds.forEach((fold) => { fold.open = open; });
    });
    folds.forEach((fold) => fold.addEventListener("toggle", () => {
      keep({ open: folds.filter((one) => one.open).map((one) => one.dataset.name).join(",") });
      name();
    }));
    name();
    document.querySelector(".folds")?.append(button);
  }

  addEventListener("hashchange", () => {
    unfold();
    tables.forEach((table) => table.show());
  });
  unfold();
  if (folds.length) openAll();
  tables.forEach((table) => table.show());
})();

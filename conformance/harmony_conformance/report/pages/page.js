"use strict";
(() => {
  const results = [...document.querySelectorAll("details.result")];
  const make = (name, text, parent) => {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };

  // a copy button for each block
  for (const block of document.querySelectorAll("pre")) {
    const button = make("button", "Copy");
    button.type = "button";
    button.className = "copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.textContent);
      } catch {
        const range = document.createRange();
        range.selectNodeContents(block);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.before(button);
  }

  const openTarget = () => {
    if (location.hash.startsWith("#?")) return;
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    for (const inner of target.querySelectorAll(":scope > details.whole")) inner.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);

  if (results.length > 1) {
    const bar = make("form");
    bar.className = "filters";
    bar.setAttribute("role", "search");
    bar.addEventListener("submit", (event) => event.preventDefault());
    const search = make("input", "", bar);
    search.type = "search";
    search.placeholder = "Search failures ( / )";
    search.setAttribute("aria-label", "Search failures");
    const kinds = ["severity", "cause", "family", "api", "streamed"];
    const choices = {};
    for (const kind of kinds) {
      const values = [...new Set(results.flatMap((result) => result.dataset[kind].split("|")))].filter(Boolean).sort();
      if (values.length < (kind === "cause" ? 1 : 2)) continue;
      const select = make("select", "", bar);
      select.setAttribute("aria-label", kind);
      const all = make("option", `any ${kind}`, select);
      all.value = "";
      for (const value of values) make("option", value, select).value = value;
      select.addEventListener("change", () => filter());
      choices[kind] = select;
    }
    const count = make("output", "", bar);
    const clear = make("button", "Clear", bar);
    clear.type = "button";
    document.querySelector("#failures h2").after(bar);

    const words = new Map();
    const textOf = (result) => {
      if (!words.has(result)) {
        const head = result.closest("article").querySelector(".head").textContent;
        words.set(result, `${head} ${result.textContent}`.toLowerCase());
      }
      return words.get(result);
    };
    let visible = results;
    const filter = (keepsHash) => {
      const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = Object.entries(choices).filter(([, select]) => select.value);
      visible = results.filter((result) =>
        chosen.every(([kind, select]) => result.dataset[kind].split("|").includes(select.value)) &&
        wanted.every((word) => textOf(result).includes(word)));
      const shown = new Set(visible);
      for (const result of results) result.hidden = !shown.has(result);
      for (const card of new Set(results.map((result) => result.closest("article")))) {
        card.hidden = ![...card.querySelectorAll("details.result")].some((result) => shown.has(result));
      }
      for (const link of document.querySelectorAll("#failures .columns a")) {
        link.closest("li").hidden = document.getElementById(link.hash.slice(1)).hidden;
      }
      count.textContent = `${visible.length} of ${results.length} failed results`;
      const state = new URLSearchParams(chosen.map(([kind, select]) => [kind, select.value]));
      if (search.value.trim()) state.set("q", search.value.trim());
      if (!keepsHash) history.replaceState(null, "", String(state) ? `#?${state}` : location.pathname + location.search);
    };
    let pending = 0;
    search.addEventListener("input", () => {
      clearTimeout(pending);
      pending = setTimeout(filter, 120);
    });
    const reset = () => {
      search.value = "";
      for (const select of Object.values(choices)) select.value = "";
      filter();
    };
    clear.addEventListener("click", reset);

    for (const card of document.querySelectorAll("article[data-cause]")) {
      const own = results.filter((result) => result.dataset.cause.split("|").includes(card.dataset.cause));
      if (!own.length || !choices.cause) continue;
      const button = make("button", `Show its ${own.length} failed results`, card);
      button.type = "button";
      button.addEventListener("click", () => {
        reset();
        choices.cause.value = card.dataset.cause;
        filter();
        bar.scrollIntoView();
      });
    }

    const restore = () => {
      if (!location.hash.startsWith("#?")) return;
      const state = new URLSearchParams(location.hash.slice(2));
      search.value = state.get("q") || "";
      for (const [kind, select] of Object.entries(choices)) select.value = state.get(kind) || "";
      filter(true);
    };
    addEventListener("hashchange", restore);

    let at = -1;
    const go = (step) => {
      if (!visible.length) return;
      at = (at + step + visible.length) % visible.length;
      visible[at].open = true;
      visible[at].querySelector("summary").focus({ preventScroll: true });
      visible[at].scrollIntoView({ block: "center" });
    };
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const writing = event.target.matches("input, select, textarea");
      if (event.key === "Escape" && writing) { reset(); event.target.blur(); }
      if (writing) return;
      if (event.key === "/") { event.preventDefault(); search.focus(); }
      if (event.key === "j") go(1);
      if (event.key === "k") go(at < 0 ? 0 : -1);
    });
    filter(true);
    restore();
  }
  openTarget();
})();

// Colours, navigation on narrow screens, search, and buttons that copy code. Works without a server.
(() => {
  "use strict";
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const chosen = new URLSearchParams(location.search).get("theme") || stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);

  // An entry is [title, where, address, text, rank]. All words must occur; those of titles count most.
  function find(query) {
    const wanted = words(query);
    if (!wanted.length || typeof SEARCH_INDEX === "undefined") return [];
    const results = [];
    for (const entry of SEARCH_INDEX) {
      const title = entry[0].toLowerCase(), where = entry[1].toLowerCase(), text = entry[3].toLowerCase();
      const parts = words(title);
      let score = 0;
      for (const word of wanted) {
        let points = 0;
        if (parts.includes(word)) points = 12;
        else if (parts.some((part) => part.startsWith(word))) points = 8;
        else if (title.includes(word)) points = 5;
        else if (where.includes(word)) points = 2;
        else if (text.includes(word)) points = 1;
        if (!points) { score = 0; break; }
        score += points;
      }
      if (!score) continue;
      if (title === query.trim().toLowerCase()) score += 20;
      results.push([score - entry[4] * 0.5 - parts.length * 0.1, entry]);
    }
    return results.sort((a, b) => b[0] - a[0]).slice(0, 20).map((result) => result[1]);
  }

  function excerpt(text, query) {
    const at = words(query).map((word) => text.toLowerCase().indexOf(word)).filter((i) => i >= 0).sort((a, b) => a - b)[0] || 0;
    const from = Math.max(0, at - 40);
    return (from ? "… " : "") + text.slice(from, from + 140) + (text.length > from + 140 ? " …" : "");
  }

  addEventListener("DOMContentLoaded", () => {
    const top = root.dataset.top;
    const input = document.getElementById("search"), found = document.getElementById("found");
    let selected = -1;

    const select = (index) => {
      const links = [...found.querySelectorAll("a")];
      if (!links.length) return;
      selected = (index + links.length) % links.length;
      links.forEach((link, i) => link.setAttribute("aria-selected", String(i === selected)));
      links[selected].scrollIntoView({ block: "nearest" });
    };
    const show = () => {
      const query = input.value;
      found.replaceChildren();
      found.hidden = !query.trim();
      if (found.hidden) return;
      const results = find(query);
      if (!results.length) found.append(Object.assign(document.createElement("p"), { textContent: "Nothing found." }));
      for (const [title, where, address, text] of results) {
        const link = Object.assign(document.createElement("a"), { href: top + address });
        link.setAttribute("role", "option");
        link.append(Object.assign(document.createElement("b"), { textContent: title }),
                    Object.assign(document.createElement("small"), { textContent: where }),
                    Object.assign(document.createElement("span"), { textContent: excerpt(text, query) }));
        link.addEventListener("click", () => { found.hidden = true; });
        found.append(link);
      }
      select(0);
    };
    input.addEventListener("input", show);
    input.addEventListener("focus", show);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") { select(selected + 1); event.preventDefault(); }
      if (event.key === "ArrowUp") { select(selected - 1); event.preventDefault(); }
      if (event.key === "Enter") found.querySelectorAll("a")[selected]?.click();
      if (event.key === "Escape") { found.hidden = true; input.blur(); }
    });
    addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== input) { input.focus(); event.preventDefault(); }
    });
    addEventListener("click", (event) => { if (!event.target.closest(".find")) found.hidden = true; });

    document.getElementById("theme").addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a file without storage */ }
    });
    const menu = document.getElementById("menu"), pages = document.getElementById("pages");
    menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(pages.classList.toggle("open"))));
    pages.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
    if (!location.hash) scrollTo(0, 0);

    for (const block of document.querySelectorAll(".code:not(.signature)")) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: "copy" });
      button.addEventListener("click", () => {
        const text = block.querySelector("code").textContent.replace(/^\$ /gm, "");
        navigator.clipboard?.writeText(text).then(() => { button.textContent = "copied"; },
                                                  () => { button.textContent = "not allowed"; });
      });
      block.append(button);
    }
    const query = new URLSearchParams(location.search).get("q");
    if (query) { input.value = query; show(); }
  });
})();

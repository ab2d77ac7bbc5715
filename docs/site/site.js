// Colours, navigation on narrow screens, the field of the search, and buttons that copy code. Works without a server.
(() => {
  "use strict";
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const chosen = new URLSearchParams(location.search).get("theme") || stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

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
      const results = Search.find(query);
      if (!results.length) found.append(Object.assign(document.createElement("p"), { textContent: "Nothing found." }));
      for (const [title, where, address, text] of results) {
        const link = Object.assign(document.createElement("a"), { href: top + address });
        link.setAttribute("role", "option");
        link.append(Object.assign(document.createElement("b"), { textContent: title }),
                    Object.assign(document.createElement("small"), { textContent: where }),
                    Object.assign(document.createElement("span"), { textContent: Search.excerpt(text, query) }));
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

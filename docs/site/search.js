// The search: `Search.find(query)` returns the best entries of SEARCH_INDEX, `Search.excerpt(text, query)` the text around a hit.
//
// An entry is [title, where, address, text, kind]. A word of the query is found at the start of a word, of a part of a name
// (CheckpointManager, batch_size), and in its singular. All words must be found; pages and their sections come before
// classes, functions, members and texts.
const Search = (() => {
  "use strict";
  const KINDS = { page: 8, section: 5, command: 3, class: 3, function: 1, header: 0, contributor: 0, member: -5 };

  const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
  // "CheckpointManager" has the parts checkpointmanager, checkpoint and manager.
  const parts = (text) => {
    const all = text.split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
    const inner = all.flatMap((word) => word.replace(/(\p{Ll}|\p{N})(\p{Lu})/gu, "$1 $2").split(/[_ ]+/)).filter(Boolean);
    return [...new Set([...all, ...inner].map((word) => word.toLowerCase()))];
  };
  // What a word may begin with: itself, or its singular.
  const stems = (word) => {
    const found = [word];
    if (word.length > 4 && word.endsWith("ies")) found.push(word.slice(0, -3) + "y");
    if (word.length > 4 && /(ss|x|ch|sh)es$/.test(word)) found.push(word.slice(0, -2));
    else if (word.length > 3 && word.endsWith("s") && !word.endsWith("ss")) found.push(word.slice(0, -1));
    return found;
  };
  const equal = (word, part) => stems(word).some((stem) => stems(part).includes(stem));
  const begins = (word, part) => stems(word).some((stem) => part.startsWith(stem));
  const escaped = (text) => text.replace(/[^\p{L}\p{N}_]/gu, "\\$&");
  // A word begins behind what is no letter and no digit, or with a capital behind a small letter.
  const pattern = (word) => {
    const any = stems(word).map(escaped).join("|");
    const capital = stems(word).map((stem) => escaped(stem[0].toUpperCase() + stem.slice(1))).join("|");
    return { anywhere: new RegExp(`(?<![\\p{L}\\p{N}])(?:${any})`, "giu"), inside: new RegExp(`(?<=\\p{Ll})(?:${capital})`, "gu") };
  };

  let prepared = null;
  function entries() {
    prepared ??= SEARCH_INDEX.map((entry) => {
      const member = entry[4] === "member" ? entry[0].split("::").pop() : entry[0];
      return { entry, title: parts(member), where: parts(entry[1] + (member === entry[0] ? "" : " " + entry[0])) };
    });
    return prepared;
  }

  function points(word, pattern, item) {
    const kind = item.entry[4];
    if (item.title.some((part) => equal(word, part))) return 12;
    if (item.title.some((part) => begins(word, part))) return 8;
    if (item.where.some((part) => begins(word, part))) return kind === "member" ? 3 : 2;
    const hits = (item.entry[3].match(pattern.anywhere) || []).length || (item.entry[3].match(pattern.inside) || []).length;
    return hits ? 1 + Math.min(hits, 6) * 0.4 : 0;
  }

  function find(query) {
    const wanted = words(query);
    if (!wanted.length || typeof SEARCH_INDEX === "undefined") return [];
    const patterns = wanted.map(pattern), whole = query.trim();
    const results = [];
    for (const item of entries()) {
      let score = 0;
      for (let i = 0; i < wanted.length; ++i) {
        const found = points(wanted[i], patterns[i], item);
        if (!found) { score = 0; break; }
        score += found;
      }
      if (!score) continue;
      const [title, , , text, kind] = item.entry;
      if (title === whole || kind !== "member" && equal(whole.toLowerCase(), title.toLowerCase())) score += 4;
      if (title.endsWith("::" + whole) && whole.includes("_")) score += 6;  // the full name of a function
      if (wanted.length > 1 && `${title} ${text}`.toLowerCase().includes(whole.toLowerCase())) score += 3;
      if (whole.startsWith("-") && text.includes(whole)) score += 30;               // a flag
      results.push([score + KINDS[kind] * wanted.length - item.title.length * 0.25, item.entry]);
    }
    return results.sort((a, b) => b[0] - a[0]).slice(0, 20).map((result) => result[1]);
  }

  function excerpt(text, query) {
    const at = words(query).map((word) => text.search(pattern(word).anywhere)).filter((i) => i >= 0).sort((a, b) => a - b)[0] || 0;
    const from = text.lastIndexOf(" ", Math.max(0, at - 40)) + 1;
    return (from ? "… " : "") + text.slice(from, from + 140) + (text.length > from + 140 ? " …" : "");
  }

  return { find, excerpt };
})();

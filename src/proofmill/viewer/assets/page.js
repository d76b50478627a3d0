// Keys, and the line of descent in a recipe's lanes. Every page works without it.
"use strict";
const typing = () => ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
let wait = "";
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.activeElement?.blur();
  if (typing() || event.ctrlKey || event.metaKey || event.altKey) return;
  if (wait === "g") {
    wait = "";
    document.querySelector(`nav a[data-key="${event.key}"]`)?.click();
  } else if (event.key === "g") wait = "g";
  else if (event.key === "?") document.querySelector("#keys")?.showModal();
  else if (event.key === "/") {
    event.preventDefault();
    (document.querySelector("input[name=where]") ?? document.querySelector("input[name=q]"))?.focus();
  } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    document.querySelector(`a[rel=${event.key === "ArrowLeft" ? "prev" : "next"}]`)?.click();
  } else if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("tbody tr a[data-row]")];
    const next = rows.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    if (rows.length) rows[Math.max(0, Math.min(rows.length - 1, next))].focus();
    else document.querySelector(`a[rel=${event.key === "j" ? "next" : "prev"}]`)?.click();
  } else if (event.key === "h" || event.key === "l") {
    const attempts = [...document.querySelectorAll("article[id]")];
    const here = attempts.findIndex((one) => one.id === decodeURIComponent(location.hash.slice(1)));
    const next = attempts[event.key === "l" ? here + 1 : Math.max(0, here - 1)];
    if (next) location.replace(`#${encodeURIComponent(next.id)}`);
  }
});

// In the lanes: what a stage is made from, and what is made from it. `data-from` holds the numbers of its parents.
function bindLanes() {
  const lanes = document.querySelector(".lanes");
  if (!lanes) return;
  const nodes = [...lanes.querySelectorAll("a[data-from]")];
  const parents = nodes.map((a) => a.dataset.from.split(" ").filter(Boolean).map(Number));
  const middle = (a) => { const r = a.querySelector("rect"); return [Number(r.getAttribute("x")) + 8, Number(r.getAttribute("y")) + 8]; };
  const reach = (start, next) => {
    const seen = new Set([start]);
    for (const one of seen) next(one).forEach((other) => seen.add(other));
    return seen;
  };
  const children = (n) => parents.flatMap((from, child) => (from.includes(n) ? [child] : []));
  const said = document.querySelector("#lane-said"), first = (said.dataset.first ??= said.textContent);
  const clear = () => {
    lanes.querySelectorAll("path").forEach((p) => p.remove());
    nodes.forEach((a) => a.classList.remove("dim", "kin", "self"));
    said.textContent = first;
  };
  const show = (n) => {
    clear();
    const up = reach(n, (one) => parents[one]), down = reach(n, children);
    nodes.forEach((a, i) => a.classList.add(i === n ? "self" : up.has(i) || down.has(i) ? "kin" : "dim"));
    const near = [...parents[n].map((p) => [p, n]), ...children(n).map((c) => [n, c])];
    for (const [a, b] of near) {
      const [x, y] = middle(nodes[a]), [x2, y2] = middle(nodes[b]), path = document.createElementNS(lanes.namespaceURI, "path");
      path.setAttribute("d", `M${x} ${y}C${(x + x2) / 2} ${y} ${(x + x2) / 2} ${y2} ${x2} ${y2}`);
      lanes.append(path);
    }
    said.textContent = `${nodes[n].querySelector("title").textContent.split(":")[0]}: made from ${parents[n].length} directly, ${up.size - 1} in all; ${down.size - 1} are made from it`;
  };
  nodes.forEach((a, n) => {
    a.addEventListener("mouseenter", () => show(n));
    a.addEventListener("focus", () => show(n));
    a.addEventListener("mouseleave", clear);
    a.addEventListener("blur", clear);
  });
}
bindLanes();

// Blocks with `data-live` follow the run: one request asks for all of them, and a changed one is put in place unless it
// has the focus. Open folds stay open. Only a change of a state is spoken.
const blocks = [...document.querySelectorAll("[data-live]")], shown = {}, start = Date.now();
let tag = "", asking = 0;
const folds = (block) => [...block.querySelectorAll("details")];
function place(block, html) {
  if (block.contains(document.activeElement)) return false;
  const open = new Map(folds(block).map((fold) => [fold.id || fold.firstElementChild?.textContent, fold.open]));
  const said = block.querySelector("[data-state]")?.textContent.trim();
  block.innerHTML = html;
  for (const fold of folds(block)) fold.open = open.get(fold.id || fold.firstElementChild?.textContent) ?? fold.open;
  const now = block.querySelector("[data-state]")?.textContent.trim();
  if (now !== undefined && now !== said) document.querySelector("#said").textContent = now || "no job is running";
  if (block.dataset.live === "lanes") bindLanes();
  document.dispatchEvent(new CustomEvent("live", { detail: block }));
  return true;
}
async function ask() {
  clearTimeout(asking);
  if (document.hidden || !blocks.length) return;
  const query = new URLSearchParams({ page: location.pathname + location.search, keys: blocks.map((b) => b.dataset.live).join(",") });
  try {
    const answer = await fetch(`/live?${query}`, tag ? { headers: { "If-None-Match": tag } } : {});
    if (answer.ok) {
      const fresh = await answer.json();
      const changed = blocks.filter((b) => fresh[b.dataset.live] !== undefined && fresh[b.dataset.live] !== shown[b.dataset.live]);
      const placed = changed.filter((b) => place(b, fresh[b.dataset.live]));
      for (const b of placed) shown[b.dataset.live] = fresh[b.dataset.live];
      tag = placed.length === changed.length ? answer.headers.get("ETag") : "";
    }
  } catch { /* the viewer was stopped, or the tunnel is closed: keep the content */ }
  clearTimeout(asking);
  asking = setTimeout(ask, Date.now() - start > 3600000 ? 30000 : 2000);
}
document.addEventListener("visibilitychange", ask);
asking = setTimeout(ask, 2000);

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
  else if (event.key === "/") {
    event.preventDefault();
    (document.querySelector("input[name=where]") ?? document.querySelector("input[name=q]"))?.focus();
  } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    document.querySelector(`a[rel=${event.key === "ArrowLeft" ? "prev" : "next"}]`)?.click();
  } else if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("tbody tr a[data-row]")];
    const next = rows.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    rows[Math.max(0, Math.min(rows.length - 1, next))]?.focus();
  }
});

// In the lanes: what a stage is made from, and what is made from it. `data-from` holds the numbers of its parents.
const lanes = document.querySelector(".lanes");
if (lanes) {
  const nodes = [...lanes.querySelectorAll("a[data-n]")];
  const parents = nodes.map((a) => a.dataset.from.split(" ").filter(Boolean).map(Number));
  const middle = (a) => { const r = a.querySelector("rect"); return [Number(r.getAttribute("x")) + 8, Number(r.getAttribute("y")) + 8]; };
  const reach = (start, next) => {
    const seen = new Set([start]);
    for (const one of seen) next(one).forEach((other) => seen.add(other));
    return seen;
  };
  const children = (n) => parents.flatMap((from, child) => (from.includes(n) ? [child] : []));
  const said = document.querySelector("#lane-said"), first = said.textContent;
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
    said.textContent = `${nodes[n].dataset.n}: made from ${parents[n].length} directly, ${up.size - 1} in all; ${down.size - 1} are made from it`;
  };
  nodes.forEach((a, n) => {
    a.addEventListener("mouseenter", () => show(n));
    a.addEventListener("focus", () => show(n));
    a.addEventListener("mouseleave", clear);
    a.addEventListener("blur", clear);
  });
}

// During a run, replace the page's content every few seconds.
async function follow() {
  const main = document.querySelector("main");
  const seconds = Number(main?.dataset.live || 0);
  if (!seconds) return;
  await new Promise((done) => setTimeout(done, 1000 * seconds));
  try {
    const answer = await fetch(location.href);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (answer.ok && fresh) main.replaceWith(fresh);
  } catch { /* the viewer was stopped, or the tunnel is closed: keep the content */ }
  follow();
}
follow();

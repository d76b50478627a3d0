// Keyboard shortcuts, and reloading of a page during a run.
"use strict";

const typing = () => ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);

document.addEventListener("keydown", (event) => {
  if (typing() || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowLeft: "prev", k: "prev", ArrowRight: "next", j: "next" }[event.key];
  const link = step && document.querySelector(`a[rel=${step}]`);
  if (link) link.click();
  if (event.key === "/") {
    const field = document.querySelector("input[name=where]");
    if (field) { event.preventDefault(); field.focus(); }
  }
});

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

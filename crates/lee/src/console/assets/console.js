// Brings a page that is watched up to date. Everything works without.
"use strict";
const live = document.querySelector("[data-live]");
if (live) {
  const bar = document.createElement("p");
  const button = document.createElement("button");
  const said = document.createElement("span");
  let runs = true;
  let asking = false;
  const show = (text) => { said.textContent = text; button.textContent = runs ? "Pause" : "Go on"; };
  bar.className = "live";
  bar.append(button, said);
  live.before(bar);
  button.onclick = () => { runs = !runs; show(runs ? "Up to date within 5 seconds." : "Paused."); };
  show("Up to date within 5 seconds.");
  const isInUse = () => live.contains(document.activeElement) || !getSelection().isCollapsed;
  setInterval(async () => {
    if (!runs || asking || document.hidden || isInUse()) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { redirect: "error", headers: { "x-leeward-refresh": "1" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const now = page.querySelector("[data-live]");
      if (!answer.ok || !now) throw new Error("no page");
      if (runs && !isInUse()) { live.replaceChildren(...now.childNodes); show("Up to date within 5 seconds."); }
    } catch {
      show("The server does not answer, or you were logged out: what is shown is old.");
    } finally {
      asking = false;
    }
  }, 5000);
}

// PocketMQ's dashboard: parts of a page that move, the live tail, keys. No library, no inline code.
"use strict";

const pulse = document.getElementById("pulse");
const say = (live) => {
  if (!pulse) return;
  pulse.hidden = false;
  pulse.classList.toggle("lost", !live);
  pulse.title = live ? "live" : "no connection to the dashboard: it is tried again";
};

// ---- a part of the page that the server sends whenever it has changed

const screens = document.querySelector("header nav");
const here = screens && screens.querySelector("[aria-current]");
if (here) screens.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - screens.clientWidth / 2; // a phone shows some of them

const live = document.getElementById("live");
if (live && live.dataset.reload) { // a page that asks brokers itself: it is loaded again while somebody looks
  const again = async () => {
    const busy = live.querySelector("input:checked") || live.contains(document.activeElement) && /^(input|select)$/i.test(document.activeElement.tagName);
    if (document.hidden || busy) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
      if (!answer.ok) throw new Error(String(answer.status));
      const part = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (part && part.innerHTML !== live.innerHTML) live.replaceChildren(...part.childNodes);
      say(true);
    } catch { say(false); }
  };
  const loop = () => setTimeout(async () => { await again(); loop(); }, Number(live.dataset.reload) * 1000);
  loop();
} else if (live) {
  const replace = (html) => {
    const active = live.contains(document.activeElement) ? document.activeElement : null;
    const key = active && (active.id || active.getAttribute("href"));
    const open = new Set([...live.querySelectorAll("details[open]")].map((each) => each.id));
    const scrolls = [...live.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const template = document.createElement("template");
    template.innerHTML = html; // made by the server's templates, which escape every value; the policy runs no script in it
    live.replaceChildren(template.content);
    for (const each of live.querySelectorAll("details")) if (open.has(each.id)) each.open = true;
    live.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = scrolls[at] || 0; });
    if (key) {
      const again = [...live.querySelectorAll("a, button, input, summary")].find((each) => (each.id || each.getAttribute("href")) === key);
      if (again) again.focus({ preventScroll: true });
    }
  };
  let source = null;
  const begin = () => {
    source = new EventSource(live.dataset.live);
    source.addEventListener("open", () => say(true));
    source.addEventListener("error", () => say(false));
    source.addEventListener("end", () => location.reload());
    source.addEventListener("page", (event) => {
      say(true);
      const selection = document.getSelection();
      const selecting = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
      if (!selecting) replace(event.data);
    });
  };
  begin();
  document.addEventListener("visibilitychange", () => { // a page in the background costs nothing
    if (document.hidden) { source.close(); } else { begin(); }
  });
}

// ---- the live tail of a topic

const tail = document.getElementById("tail");
if (tail) {
  const rowsMax = 200;
  const body = tail.tBodies[0];
  const state = document.getElementById("tail-state");
  const pause = document.getElementById("tail-pause");
  let count = 0, leftOut = 0, waiting = [], paused = false;
  const tell = (text) => {
    state.textContent = text || `${count} messages` + (leftOut ? `, ${leftOut} more were too fast to show` : "") + (paused ? `, paused: ${waiting.length} wait` : "");
  };
  const show = (html) => {
    const row = document.createElement("tr");
    row.className = "new";
    row.innerHTML = html;
    body.prepend(row);
    while (body.rows.length > rowsMax) body.lastElementChild.remove();
  };
  const source = new EventSource(tail.dataset.tail);
  source.addEventListener("open", () => { say(true); tell(count ? "" : "following: messages appear as they are stored"); });
  source.addEventListener("error", () => { say(false); tell("no connection: it is tried again"); });
  source.addEventListener("message", (event) => {
    count += 1;
    if (paused) { waiting.push(event.data); if (waiting.length > rowsMax) { waiting.shift(); leftOut += 1; } } else { show(event.data); }
    tell();
  });
  source.addEventListener("left_out", (event) => { leftOut += Number(event.data); tell(); });
  source.addEventListener("end", (event) => { source.close(); tell(`ended: ${event.data || "the topic is gone"}`); });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) { waiting.forEach(show); waiting = []; }
    tell();
  });
}

// ---- questions before a change, and keys

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-all]")) return;
  for (const box of event.target.closest("table").querySelectorAll("tbody input[type=checkbox]")) box.checked = event.target.checked;
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (/^(input|textarea|select)$/i.test(event.target.tagName)) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-key='/']");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  } else if (/^[1-9]$/.test(event.key)) {
    const link = document.querySelectorAll("header nav a")[Number(event.key) - 1];
    if (link) link.click();
  }
});

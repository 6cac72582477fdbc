"use strict";
// A served page fetches its data, and takes what is new: the sections that differ, and what the application draws.
// A visible page leaves a request with the server, which answers when there is something new. A hidden one asks rarely.
(() => {
  const PAUSE = 50, SLOWEST = 30000, AT_ONCE = 300;  // milliseconds, milliseconds; curves in one request
  const OWN = ["h-explore", "h-case", "h-evaluation", "h-evaluations", "h-compare"];
  const status = document.getElementById("live");
  if (!status) return;
  const pristine = new Map();  // sections as they came, by their headings
  let tag = "", shown = "", version = "", cache = { grids: [], of: {} }, wait = PAUSE, timer = null, request = null;

  const getJson = async (address, headers, signal = null) => {
    const answer = await fetch(address, { headers, cache: "no-store", signal });
    if (answer.status === 304) return null;
    if (!answer.ok) throw new Error(answer.status === 401 ? "the token is no longer valid: open the printed address again" : `${address}: ${answer.status}`);
    return { tag: answer.headers.get("ETag"), body: await answer.json() };
  };

  // Curves come when they are picked. Those of an older version are gone: the next round brings the newer one.
  const curvesOf = (asked) => async (keys) => {
    const missing = keys.filter((key) => !(key in cache.of));
    for (let start = 0; start < missing.length; start += AT_ONCE) {
      const part = missing.slice(start, start + AT_ONCE);
      const found = await getJson(`curves.json?version=${asked}&keys=${part.join(";")}`, {}).catch(() => null);
      if (asked !== version) return null;
      if (!found) { tag = ""; return null; }
      for (const key of part) cache.of[key] = null;
      for (const [key, [grid, ...rows]] of Object.entries(found.body.of)) cache.of[key] = [grid + cache.grids.length, ...rows];
      cache.grids.push(...found.body.grids);
    }
    return cache;
  };

  // What one page shows alone; an answer of an older version is none.
  const ask = (asked, name) => (one, other) => getJson(`${name}?version=${asked}&places=${one},${other}`, {}).then((found) => found?.body ?? null, () => null);

  const replace = async () => {
    const answer = await fetch("./", { cache: "no-store" });
    if (!answer.ok) throw new Error(`./: ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = fresh.title;
    document.querySelector("header").replaceWith(document.importNode(fresh.querySelector("header"), true));
    const main = document.querySelector("main"), opened = new Set([...document.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    const key = (section) => section.getAttribute("aria-labelledby");
    const kept = new Set();
    let last = document.getElementById("nothing");  // a new section comes after the one before it
    for (const section of fresh.querySelectorAll("main > section")) {
      const name = key(section), old = main.querySelector(`:scope > section[aria-labelledby="${CSS.escape(name)}"]`);
      kept.add(name);
      const text = section.outerHTML;
      if (old && (OWN.includes(name) || pristine.get(name) === text || old.contains(document.activeElement))) {
        old.dataset.view = section.dataset.view;  // those of OWN take all else themselves
        last = old;
        continue;
      }
      const made = document.importNode(section, true);
      if (old) old.replaceWith(made); else last.after(made);
      last = made;
      for (const details of made.querySelectorAll("details")) details.open = opened.has(details.querySelector("summary").textContent);
      pristine.set(name, text);
      lobench.setPart(made);
    }
    for (const section of main.querySelectorAll(":scope > section")) if (!kept.has(key(section))) section.remove();
    lobench.show();
  };

  const look = async () => {
    [timer, request] = [null, new AbortController()];
    try {
      const found = await getJson(document.hidden ? "data.json" : "data.json?wait", tag ? { "If-None-Match": tag } : {}, request.signal);
      wait = PAUSE;
      if (found) {
        const { problem, note, subtitle, explorer } = found.body;
        status.textContent = problem ? `${problem} What is shown is from before.` : note;
        status.hidden = !status.textContent;
        if (explorer && shown !== found.body.version) {  // also after an error on the way: the tag is the former one
          if (!document.getElementById("explorer")) { location.reload(); return; }  // the first results
          [version, cache] = [found.body.version, { grids: [], of: {} }];
          await lobench.start(explorer, { curves: curvesOf(version), evaluation: ask(version, "evaluation.json"), pair: ask(version, "pair.json") });
          if (subtitle) {  // what the explorer draws is newer than the other sections, which follow
            document.querySelector("header p").textContent = subtitle;
            status.dataset.version = "";
          } else {
            if (status.dataset.version !== version) await replace();
            status.dataset.version = version;
          }
          shown = version;
        }
        tag = found.tag;
      }
    } catch (error) {
      if (!request.signal.aborted) {
        wait = Math.min(2 * wait, SLOWEST);
        status.textContent = `The server does not answer (${error.message}); trying again. What is shown is from before.`;
        status.hidden = false;
      }
    }
    timer = setTimeout(look, document.hidden ? SLOWEST : wait);
  };
  document.addEventListener("visibilitychange", () => {
    wait = PAUSE;
    if (document.hidden) request.abort();  // a browser has few connections to a server, for all of its pages
    else if (timer !== null) { clearTimeout(timer); look(); }
  });
  look();
})();

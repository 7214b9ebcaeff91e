// Print the slides: at the address with ?print-pdf, each state of each slide is a page. Ctrl + P goes there.

// Load each player, without its results and live pictures next to a question, and wait until it is drawn.
function loadPlayer(frame) {
  const asks = frame.closest("section").querySelector(".fragment");
  const loaded = new Promise(resolve => frame.addEventListener("load", resolve, { once: true }));
  frame.srcdoc = pages[frame.dataset.page].replace('"at":""', () => `"at":"${frame.dataset.at}"`);
  return loaded.then(() => {
    if (asks) hideResults(frame);
  });
}

// After pdf-ready the pages are in the document. A page with nothing but a title is left out.
const printable = new Promise(resolve => Reveal.on("pdf-ready", async () => {
  for (const page of document.querySelectorAll(".pdf-page")) if (bare(page.querySelector("section"))) page.remove();
  await Promise.all([...document.querySelectorAll(".pdf-page iframe")].map(loadPlayer));
  resolve();
}));
// slides_pdf.py reads this title in the file, because a browser on a busy machine may print too early.
if (location.search === "?print-pdf") {
  const title = document.title;
  document.title = "npformer: not ready";
  printable.then(() => requestAnimationFrame(() => requestAnimationFrame(() => document.title = title)));
}

const printNow = "?print-pdf&now";
if (location.search === printNow) printable.then(() => {
  addEventListener("afterprint", () => history.back());
  print();
});

document.addEventListener("keydown", event => {
  if (!(event.ctrlKey || event.metaKey) || event.code !== "KeyP" || location.search) return;
  event.preventDefault();
  location.search = printNow;
});

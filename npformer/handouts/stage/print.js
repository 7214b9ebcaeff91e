// Print the slides: at the address with ?print-pdf, each state of each slide is a page. Ctrl + P goes there.

// Load each player, without its results where a question is asked, and wait until it is drawn.
function loadPlayer(frame) {
  const asks = frame.closest("section").querySelector(".fragment");
  const loaded = new Promise(resolve => frame.addEventListener("load", resolve, { once: true }));
  frame.srcdoc = pages[frame.dataset.page].replace('"at":""', () => `"at":"${frame.dataset.at}"`);
  return loaded.then(() => {
    if (asks) frame.contentDocument.querySelector("[aria-keyshortcuts=h]").click();
  });
}

const isBar = part => part.querySelector(".over") !== null;
const isShown = part => part.offsetHeight > 0 && part.closest(".fragment:not(.visible)") === null;

// Make the content of a page smaller until it ends above the question or answer.
function fitContent(slide) {
  const texts = [...slide.querySelectorAll(".text")].filter(part => isShown(part) && part.closest("aside") === null);
  const bars = texts.filter(part => isBar(part) && getComputedStyle(part).visibility === "visible");
  const parts = texts.filter(part => !isBar(part)).flatMap(text => [...text.children]);
  const content = parts.filter(part => !part.matches("h1, h2"));
  const bottom = Math.min(slide.getBoundingClientRect().bottom, ...bars.map(bar => bar.getBoundingClientRect().top));
  const ends = () => Math.max(0, ...content.map(part => part.getBoundingClientRect().bottom));
  for (let percent = 98; percent >= 30 && ends() > bottom + 1; percent -= 2)
    for (const part of content) part.style.zoom = `${percent}%`;
}

// After pdf-ready the pages are in the document. A page with nothing but a title is left out.
const printable = new Promise(resolve => Reveal.on("pdf-ready", async () => {
  for (const page of document.querySelectorAll(".pdf-page")) if (bare(page.querySelector("section"))) page.remove();
  await Promise.all([...document.querySelectorAll(".pdf-page iframe")].map(loadPlayer));
  for (const slide of document.querySelectorAll(".pdf-page section")) fitContent(slide);
  resolve();
}));

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

document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".sidebar-scroll"), here = document.querySelector(".sidebar-tree li.current-page");
  if (list && here) { // scroll the list of pages to the current page
    const top = here.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
    list.scrollBy({ top, behavior: "instant" }); // without animation, which the theme would use
  }
  for (const box of document.querySelectorAll(".table-wrapper, .highlight pre, div.math"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; // can be scrolled with the keyboard
  for (const caption of document.querySelectorAll('.caption[role="heading"]')) caption.ariaLevel = 2; // the theme sets no heading level
  if (location.protocol !== "file:") return; // without a server, a browser cannot run Python in a page
  for (const hint of document.querySelectorAll(".run span"))
    hint.textContent = "works on the published site, or after: python -m http.server -d build/site";
});
// Load the frames one after the other while nothing else is done, so that a printed page has its players.
function loadNext() {
  const wait = window.requestIdleCallback ?? (act => setTimeout(act, 500)); // Safari has no requestIdleCallback
  wait(() => {
    const frame = document.querySelector("iframe[loading=lazy]:not(.loaded)");
    if (!frame) return;
    frame.addEventListener("load", loadNext, { once: true });
    frame.loading = "eager";
  });
}
document.addEventListener("load", event => event.target.classList?.add("loaded"), true);
if (innerWidth >= 960) addEventListener("load", loadNext); // a phone loads a frame when it is scrolled to

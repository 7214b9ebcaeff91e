// A page that was opened from a folder has no server, and without one no browser runs Python in a page.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const wrapper = table.closest(".table-wrapper");
    if (wrapper && wrapper.scrollWidth > wrapper.clientWidth) wrapper.tabIndex = 0; // scrolled with the keys too
  }
  if (location.protocol !== "file:") return;
  for (const said of document.querySelectorAll(".run span"))
    said.textContent = "works on the published site, or after: python -m http.server -d build/site";
});

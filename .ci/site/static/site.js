document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".sidebar-scroll"), here = document.querySelector(".sidebar-tree li.current-page");
  if (list && here) { // where one is, and what stands beside it, without scrolling the list
    const top = here.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
    list.scrollBy({ top, behavior: "instant" }); // the theme would glide there
  }
  for (const table of document.querySelectorAll("article table")) {
    const wrapper = table.closest(".table-wrapper");
    if (wrapper && wrapper.scrollWidth > wrapper.clientWidth) wrapper.tabIndex = 0; // scrolled with the keys too
  }
  if (location.protocol !== "file:") return; // from a folder, without a server, no browser runs Python in a page
  for (const said of document.querySelectorAll(".run span"))
    said.textContent = "works on the published site, or after: python -m http.server -d build/site";
});

document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".sidebar-scroll"), here = document.querySelector(".sidebar-tree li.current-page");
  if (list && here) { // where one is, and what stands beside it, without scrolling the list
    const top = here.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
    list.scrollBy({ top, behavior: "instant" }); // the theme would glide there
  }
  for (const box of document.querySelectorAll(".table-wrapper, .highlight pre, div.math"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; // scrolled with the keys too
  for (const caption of document.querySelectorAll('.caption[role="heading"]')) caption.ariaLevel = 2; // the theme says none
  if (location.protocol !== "file:") return; // from a folder, without a server, no browser runs Python in a page
  for (const said of document.querySelectorAll(".run span"))
    said.textContent = "works on the published site, or after: python -m http.server -d build/site";
});

// The kernel's worker, started before JupyterLab: Python loads while the page is still being drawn.
// The build writes two lines above: `options`, which the kernel hands to loadPyodide, and `first`, Python to run.
const folder = new URL("pyodide/", location).href;
importScripts(folder + "pyodide.js");
const python = loadPyodide({ indexURL: folder, ...options }).then(started => {
  started.runPython(first);
  return started;
});
self.loadPyodide = () => python; // the kernel asks for a Python of its own: this one is under way
const load = self.importScripts;
self.importScripts = (...urls) => urls.every(url => url.endsWith("/pyodide.js")) || load(...urls);
// The first message names the kernel's own script; all that follow are for that script.
self.addEventListener("message", message => load(message.data.script), { once: true });

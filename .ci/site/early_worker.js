// The kernel's worker, started before JupyterLab, so that Python loads while the page is loading.
// The build adds two lines above: `options` for loadPyodide, and `first`, the Python code that runs first.
const folder = new URL("pyodide/", location).href;
importScripts(folder + "pyodide.js");
const python = loadPyodide({ indexURL: folder, ...options }).then(started => {
  started.runPython(first);
  return started;
});
self.loadPyodide = () => python; // the kernel would load Python again: give it the one that is loading
const load = self.importScripts;
self.importScripts = (...urls) => urls.every(url => url.endsWith("/pyodide.js")) || load(...urls);
// The first message is the address of the kernel's script. The messages after it are for that script.
self.addEventListener("message", message => load(message.data.script), { once: true });

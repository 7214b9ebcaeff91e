// This script runs first on a lesson's page: it starts the worker, and gives it to the kernel later.
{
  const Plain = Worker;
  let early = null;
  let wanted = false;
  // A worker can read the page's files only if a service worker was installed before it. If there is no service
  // worker, the kernel starts its own worker, as it does after a restart.
  const files = navigator.serviceWorker;
  const there = new Promise(done => (files?.controller ? done() : files?.addEventListener("controllerchange", done)));
  files?.register(new URL("../service-worker.js?enableCache=false", location));
  there.then(() => {
    if (!wanted) early = new Plain(new URL("../static/early_worker.js", location));
  });
  window.Worker = class extends Plain {
    constructor(script, options) {
      const first = String(script).includes("/pyodide-kernel-extension/") && early;
      wanted ||= String(script).includes("/pyodide-kernel-extension/");
      if (first) {
        early = null;
        first.postMessage({ script: String(script) });
        return first;
      }
      super(script, options);
    }
  };
}

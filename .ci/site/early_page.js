// On a lesson's page, before anything else: start the worker, and hand it over when the kernel wants one.
{
  const Plain = Worker;
  let early = null;
  let wanted = false;
  // A worker sees the page's files only through a service worker that was there before it. Where none can be
  // had, the kernel starts a worker of its own, as it does after a restart.
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

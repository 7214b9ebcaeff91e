// Run a Python script in Pyodide under node:  node pyodide.mjs PYODIDE SCRIPT FOLDER [PACKAGE...]
// PYODIDE is the folder of the core, the wheels and the lock file. The script sees FOLDER as /mnt.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, script, folder, ...packages] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(resolve(pyodide, "pyodide.mjs")).href);
const env = { NPFORMER_TESTS: process.env.NPFORMER_TESTS ?? "" }; // for mathematics.py
const python = await loadPyodide({ indexURL: resolve(pyodide) + "/", packages, env: { HOME: "/home/pyodide", ...env } });
python.mountNodeFS("/mnt", resolve(folder));
try {
  const code = await python.runPythonAsync(readFileSync(script, "utf8"));
  process.exitCode = Number.isInteger(code) ? code : 0; // the value of the script's last line, if it is a number
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}

// Runs a WASI program with the whole file system open to it, by absolute paths:
// node run_wasi.js PROGRAM.wasm ARGUMENT...
'use strict';
const fs = require('node:fs');
const { WASI } = require('node:wasi');

const args = process.argv.slice(2);
const wasi = new WASI({
    version: 'preview1',
    args,
    preopens: { '/': '/' },
    returnOnExit: true,
});
WebAssembly.instantiate(fs.readFileSync(args[0]), { wasi_snapshot_preview1: wasi.wasiImport })
    .then(({ instance }) => { process.exitCode = wasi.start(instance); })
    .catch((error) => { console.error(error); process.exitCode = 70; });

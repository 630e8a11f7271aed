'use strict';
// The other side of the comparison with the npm package canonicalize.
//
//   node canonicalize.js numbers SEED COUNT
//       random doubles in their shortest form, one a line
//   node canonicalize.js canonical FOLDER < documents > texts
//       canonical text of each line by the package installed in FOLDER;
//       lines are base64, since documents may hold line breaks

const path = require('path');

function numbers(seed, count) {
  let state = seed >>> 0;
  const next = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
  const bits = new DataView(new ArrayBuffer(8));
  const lines = [];
  while (lines.length < count) {
    bits.setUint32(0, next());
    bits.setUint32(4, next());
    let x = bits.getFloat64(0);
    // Of bits at will few are of everyday size: scale every other one.
    if (lines.length % 2) {
      x = (next() / 2 ** 32 - 0.5) * 10 ** (next() % 30 - 8);
    }
    if (Number.isFinite(x)) {
      lines.push(String(x));
    }
  }
  process.stdout.write(lines.join('\n') + '\n');
}

function canonical(folder) {
  const canonicalize = require(path.join(folder, 'node_modules', 'canonicalize'));
  const lines = require('fs').readFileSync(0, 'latin1').split('\n').filter(Boolean);
  process.stdout.write(lines.map((line) => {
    const document = JSON.parse(Buffer.from(line, 'base64').toString('utf8'));
    return Buffer.from(canonicalize(document), 'utf8').toString('base64') + '\n';
  }).join(''));
}

const [mode, ...rest] = process.argv.slice(2);
if (mode === 'numbers') {
  numbers(Number(rest[0]), Number(rest[1]));
} else {
  canonical(path.resolve(rest[0]));
}

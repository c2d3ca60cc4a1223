// grpc-js in both roles: as a client of `cbtctl serve`, and as the plugin that `cbtctl list` and
// `cbtctl conform` call. Messages are read and written by hand here, as a third reading of the contract.
//
//   node js_test.js CBT          needs @grpc/grpc-js (make interop-js installs it)
'use strict';

const assert = require('node:assert');
const { spawn, execFile } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');

const CBT = path.resolve(process.argv[2]);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'cbt-js-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

const same = (buffer) => buffer;

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}
const number = (field, value) =>
  BigInt(value) === 0n ? Buffer.alloc(0) : Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) =>
  Buffer.concat([varint((field << 3) | 2), varint(value.length), Buffer.from(value)]);

// [field, value] of a message; numbers as BigInt.
function fields(buffer) {
  const found = [];
  let at = 0;
  const read = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (at === buffer.length || shift > 63n) throw new Error('no varint');
      const byte = buffer[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < buffer.length) {
    const tag = Number(read());
    const value = read();
    if ((tag & 7) === 2) {
      found.push([tag >> 3, buffer.subarray(at, at + Number(value))]);
      at += Number(value);
    } else {
      found.push([tag >> 3, BigInt.asIntN(64, value)]);
    }
  }
  return found;
}

const METHODS = {
  GetMetadataAllocated: '/csi.v1.SnapshotMetadata/GetMetadataAllocated',
  GetMetadataDelta: '/csi.v1.SnapshotMetadata/GetMetadataDelta',
};
const definition = (method, stream) => ({
  path: method, requestStream: false, responseStream: stream, requestSerialize: same,
  requestDeserialize: same, responseSerialize: same, responseDeserialize: same,
});

async function asClient() {
  const root = path.join(folder, 'root');
  fs.mkdirSync(root);
  const image = Buffer.alloc(40 * 4096);
  for (const block of [1, 2, 5, 39]) image.fill(7, block * 4096, (block + 1) * 4096);
  fs.writeFileSync(path.join(root, 'a.img'), Buffer.alloc(40 * 4096));
  fs.writeFileSync(path.join(root, 'b.img'), image);
  const socket = path.join(folder, 'serve.sock');
  const server = spawn(CBT, ['serve', '--root', root, '--listen', `unix://${socket}`],
    { stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise((resolve) => server.stderr.once('data', resolve));
  const Client = grpc.makeGenericClientConstructor(
    { delta: definition(METHODS.GetMetadataDelta, true) }, 'csi.v1.SnapshotMetadata');
  const client = new Client(`unix://${socket}`, grpc.credentials.createInsecure());
  const tuples = [];
  const trailers = await new Promise((resolve, reject) => {
    const call = client.delta(Buffer.concat([bytes(1, 'a'), bytes(2, 'b')]));
    call.on('data', (message) => {
      for (const [field, value] of fields(message)) {
        if (field === 3) {
          const tuple = new Map(fields(value));
          tuples.push([Number(tuple.get(1) ?? 0n), Number(tuple.get(2))]);
        } else {
          assert.strictEqual(value, field === 1 ? 2n : BigInt(40 * 4096));
        }
      }
    });
    call.on('error', reject);
    call.on('status', (status) => resolve(status.metadata));
  });
  assert.deepStrictEqual(tuples, [[4096, 8192], [5 * 4096, 4096], [39 * 4096, 4096]]);
  assert.deepStrictEqual(trailers.get('cbt-tuple-count'), ['3']);
  const error = await new Promise((resolve) => {
    const call = client.delta(Buffer.concat([bytes(1, 'a'), bytes(2, 'none')]));
    call.on('data', () => {});
    call.on('error', resolve);
  });
  assert.strictEqual(error.code, grpc.status.NOT_FOUND);
  client.close();
  server.kill();
}

const CAPACITY = 1000000n;
const TRUTH = Array.from({ length: 100 }, (_, i) => [BigInt(i * 9000), BigInt(1000 + (i % 5) * 700)]);

function stream(delta) {
  return (call) => {
    const fail = (code) => call.emit('error', { code, details: 'no' });
    let request;
    try {
      request = new Map(fields(call.request));
    } catch {
      return fail(grpc.status.INVALID_ARGUMENT);
    }
    const text = (field) => (request.has(field) ? request.get(field).toString() : '');
    const at = delta ? 3 : 2;
    const target = text(delta ? 2 : 1);
    const offset = request.get(at) ?? 0n;
    const most = Number(BigInt.asIntN(32, request.get(at + 1) ?? 0n));
    if (!target || (delta && !text(1)) || most < 0) return fail(grpc.status.INVALID_ARGUMENT);
    if (target !== 'b' || (delta && !['a', 'b'].includes(text(1)))) {
      return fail(grpc.status.NOT_FOUND);
    }
    if (offset < 0n || offset > CAPACITY) return fail(grpc.status.OUT_OF_RANGE);
    const truth = delta && text(1) === target ? [] : TRUTH;
    const rest = truth.filter(([begin, size]) => begin + size > offset);
    for (let i = 0; i === 0 || i < rest.length; i += most || 30) {
      call.write(Buffer.concat([number(1, 2), number(2, CAPACITY),
        ...rest.slice(i, i + (most || 30)).map(([begin, size]) =>
          bytes(3, Buffer.concat([number(1, begin), number(2, size)])))]));
    }
    return call.end();
  };
}

async function asServer() {
  const server = new grpc.Server();
  server.addService({
    allocated: definition(METHODS.GetMetadataAllocated, true),
    delta: definition(METHODS.GetMetadataDelta, true),
    info: definition('/csi.v1.Identity/GetPluginInfo', false),
    capabilities: definition('/csi.v1.Identity/GetPluginCapabilities', false),
    probe: definition('/csi.v1.Identity/Probe', false),
  }, {
    allocated: stream(false),
    delta: stream(true),
    info: (call, done) => done(null, bytes(1, 'js.example.com')),
    capabilities: (call, done) => done(null, bytes(1, bytes(1, number(1, 4)))),
    probe: (call, done) => done(null, Buffer.alloc(0)),
  });
  const address = `unix://${path.join(folder, 'plugin.sock')}`;
  await new Promise((resolve, reject) => server.bindAsync(
    address, grpc.ServerCredentials.createInsecure(),
    (error) => (error ? reject(error) : resolve())));
  const run = (...options) => new Promise((resolve) => {
    execFile(CBT, options, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, stderr }));
  });
  const rows = TRUTH.map(([offset, size]) => `${offset},${size}\n`).join('');
  const expected = `byte_offset,size_bytes\ncapacity,${CAPACITY}\nbase,a\nsnapshot,b\n${rows}complete,${TRUTH.length}\n`;
  const listed = await run('list', address, '--snapshot', 'b', '--base', 'a', '--format', 'csv');
  assert.deepStrictEqual([listed.code, listed.stdout], [0, expected], listed.stderr);
  const conform = await run('conform', address, '--snapshot', 'b', '--base', 'a');
  assert.strictEqual(conform.code, 0, conform.stdout);
  server.forceShutdown();
}

asClient().then(asServer).then(() => {
  console.log('2 passed, 0 failed');
  process.exit(0);
}, (error) => {
  console.error(error);
  process.exit(1);
});

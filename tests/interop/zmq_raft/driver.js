'use strict';
// Does to a zmq-raft FileLog what each line of its input says, and answers each with a line.
// The first argument is the directory in which the package is installed; with a second, the clock stands
// at so many milliseconds, until a command moves it, and the host's name is golden-host.
const path = require('path');
const fs = require('fs');
const os = require('os');
const readline = require('readline');

let frozen = Number(process.argv[3]);
if (frozen) {
  const Real = Date;
  global.Date = class extends Real {
    constructor(...given) {
      super(...(given.length ? given : [frozen]));
    }
    static now() {
      return frozen;
    }
  };
  os.hostname = () => 'golden-host';
}

const home = path.join(path.resolve(process.argv[2]), 'node_modules', 'zmq-raft', 'lib');
// An open FileLog sweeps temporary files without waiting for that, and may sweep the one it makes next.
const temporary = require(path.join(home, 'utils', 'tempfiles'));
const sweep = temporary.cleanupTempFiles;
let swept = Promise.resolve();
temporary.cleanupTempFiles = (...given) => (swept = sweep(...given));
const FileLog = require(path.join(home, 'server', 'filelog'));
const RaftPersistence = require(path.join(home, 'server', 'raft_persistence'));

let log = null;
let root = null;

const hex = (text) => Buffer.from(text, 'hex');

function indexFiles(directory) {
  if (!fs.existsSync(directory)) return [];
  return fs.readdirSync(directory, {recursive: true}).filter((name) => name.endsWith('.rlog'));
}

async function untilThereIsAFile() {
  // A discarding snapshot is answered before the new log is there.
  for (let n = 0; n < 500 && indexFiles(path.join(root, 'log')).length === 0; ++n) {
    await new Promise((done) => setTimeout(done, 10));
  }
  await new Promise((done) => setTimeout(done, 50));
}

const commands = {
  async open({directory, capacity, readOnly, ttl}) {
    root = directory;
    const options = {readOnly: !!readOnly, indexFileCapacity: capacity || 16384};
    if (ttl) options.requestIdTtl = ttl;
    log = new FileLog(path.join(root, 'log'), path.join(root, 'snap'), options);
    await log.ready();
    await swept;
  },
  async close() {
    await log.close();
    log = null;
  },
  async entries({entries, index}) {
    await log.appendEntries(entries.map(hex), index);
  },
  async entry({requestId, type, term, data}) {
    return log.appendEntry(hex(requestId), type, term, hex(data));
  },
  async request({requestId, term, data}) {
    // As a leader does: a request that is remembered is not appended again.
    return log.getRid(hex(requestId)) || log.appendEntry(hex(requestId), 0, term, hex(data));
  },
  async findAll({requestIds}) {
    return requestIds.map((id) => log.getRid(hex(id)) || null);
  },
  async checkpoint({term}) {
    return log.appendCheckpoint(term);
  },
  async snapshot({index, term, data, compactOnly}) {
    const bytes = hex(data);
    const snapshot = log.createTmpSnapshot(index, term, bytes.length);
    await snapshot.ready();
    if (bytes.length) await snapshot.write(bytes, 0, bytes.length);
    await snapshot.sync();
    await log.installSnapshot(snapshot, compactOnly);
    if (!compactOnly) await untilThereIsAFile();
  },
  async find({requestId}) {
    return log.getRid(hex(requestId)) || null;
  },
  async dump() {
    const entries = [];
    for (let index = log.firstIndex; index <= log.lastIndex; ++index) {
      entries.push((await log.getEntry(index)).toString('hex'));
    }
    const {logIndex, logTerm, dataSize} = log.snapshot;
    const data = dataSize ? await log.snapshot.read(0, dataSize) : Buffer.alloc(0);
    const {firstIndex, lastIndex, lastTerm} = log;
    const snapshot = {index: logIndex, term: logTerm, data: data.toString('hex')};
    return {firstIndex, lastIndex, lastTerm, entries, snapshot};
  },
  async fill({count, size}) {
    const id = hex('6593' + '00'.repeat(10));
    const entry = () => Buffer.concat([id, Buffer.from([0, 1, 0, 0, 0, 0, 0, 0]), Buffer.alloc(size, 120)]);
    await log.appendEntries(Array.from({length: count}, entry), log.lastIndex + 1);
  },
  async scan() {
    let rows = 0;
    for await (const batch of log.createEntriesReadStream(log.firstIndex, log.lastIndex)) rows += batch.length;
    return rows;
  },
  async state({directory, updates, rotate}) {
    const state = new RaftPersistence(path.join(directory, 'raft.pers'), []);
    await state.ready();
    await swept;
    for (const update of updates) await state.update(update);
    if (rotate) await state.rotate({});
    const {currentTerm, votedFor, peers, peersUpdateRequest, peersIndex} = state;
    await state.close();
    return {currentTerm, votedFor, peers, peersUpdateRequest, peersIndex};
  },
};

async function main() {
  for await (const line of readline.createInterface({input: process.stdin})) {
    const {command, now, ...fields} = JSON.parse(line);
    if (now) frozen = now;
    let answer;
    try {
      answer = {done: (await commands[command](fields)) ?? null};
    } catch (error) {
      answer = {error: String(error && error.message)};
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
}

main().then(() => process.exit(0));

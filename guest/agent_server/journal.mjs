// The journal: every frame that readers get, numbered and on disk, so that whoever reconnects goes on where they stopped.
import fs from "node:fs";
import path from "node:path";

const MOST_BYTES = 64 << 20; // of both parts together

/** Two files, an older and a newer one: when the newer is full, it becomes the older, and what was older is dropped. */
export class Journal {
  constructor(directory, mostBytes = MOST_BYTES) {
    fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.half = mostBytes / 2;
    this.paths = { older: path.join(directory, "older.jsonl"), newer: path.join(directory, "newer.jsonl") };
    this.parts = { older: read(this.paths.older), newer: read(this.paths.newer) };
    this.waiting = new Set();
  }

  /** The number of the last frame; 0 if there is none. */
  get last() {
    return end(this.parts.newer) || end(this.parts.older);
  }

  /** The number of the first frame that is still kept. */
  get first() {
    return this.parts.older.first || this.parts.newer.first || 1;
  }

  append(frame) {
    const { newer } = this.parts;
    if (newer.size >= this.half) this.#turn();
    const part = this.parts.newer;
    const numbered = { seq: this.last + 1, at: new Date().toISOString(), ...frame };
    const line = Buffer.from(`${JSON.stringify(numbered)}\n`);
    if (!part.places.length) part.first = numbered.seq;
    fs.writeSync(part.fd, line);
    part.places.push({ at: part.size, bytes: line.length });
    part.size += line.length;
    for (const wake of this.waiting) wake();
    this.waiting.clear();
    return numbered;
  }

  /** The line of a frame, as it was written; undefined if it is not there yet, or was dropped. */
  line(seq) {
    for (const part of [this.parts.newer, this.parts.older]) {
      const place = part.first && seq >= part.first ? part.places[seq - part.first] : undefined;
      if (place) {
        const line = Buffer.alloc(place.bytes - 1);
        fs.readSync(part.fd, line, 0, line.length, place.at);
        return line.toString();
      }
    }
    return undefined;
  }

  /** Until a frame is appended. */
  next() {
    return new Promise((resolve) => this.waiting.add(resolve));
  }

  #turn() {
    fs.closeSync(this.parts.older.fd);
    fs.renameSync(this.paths.newer, this.paths.older);
    this.parts = { older: this.parts.newer, newer: read(this.paths.newer) };
  }
}

function end(part) {
  return part.places.length ? part.first + part.places.length - 1 : 0;
}

/** A part with the place of each line. A last line that was cut by a crash is taken off. */
function read(file) {
  const fd = fs.openSync(file, "a+", 0o600);
  const content = fs.readFileSync(file);
  const places = [];
  let at = 0;
  let first = 0;
  for (let end = content.indexOf(10); end !== -1; end = content.indexOf(10, at)) {
    if (!places.length) first = JSON.parse(content.subarray(at, end).toString()).seq;
    places.push({ at, bytes: end + 1 - at });
    at = end + 1;
  }
  if (at < content.length) fs.ftruncateSync(fd, at);
  return { fd, places, first, size: at };
}

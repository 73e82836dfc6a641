// Who may use the server: tokens that were given to this very sandbox, kept as hashes together with its id.
// Templates, snapshots and forks are shared, so no token can be part of one: whoever may run commands here admits one.
import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const MOST_TOKENS = 16;

export class Admission {
  constructor(directory, identity = "/run/e2b/.E2B_SANDBOX_ID") {
    this.directory = path.join(directory, "tokens");
    this.identity = identity;
  }

  get sandbox() {
    try {
      return fs.readFileSync(this.identity, "utf8").trim();
    } catch {
      return "";
    }
  }

  newToken() {
    const token = `sla_${crypto.randomBytes(32).toString("base64url")}`;
    this.admit(digest(token));
    return token;
  }

  admit(sha256) {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw new Error("a token is admitted by its SHA-256: 64 hexadecimal digits");
    fs.mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    const record = JSON.stringify({ sandbox: this.sandbox, sha256, at: Date.now() });
    fs.writeFileSync(path.join(this.directory, `${sha256.slice(0, 16)}.json`), record, { mode: 0o600 });
    const kept = this.#records().sort((one, other) => other.at - one.at);
    for (const old of kept.slice(MOST_TOKENS)) fs.rmSync(old.file, { force: true });
  }

  allows(token) {
    const given = Buffer.from(digest(token ?? ""));
    const own = this.#records().filter((record) => record.sandbox === this.sandbox);
    return own.filter((record) => crypto.timingSafeEqual(given, Buffer.from(record.sha256))).length > 0;
  }

  #records() {
    if (!fs.existsSync(this.directory)) return [];
    const records = [];
    for (const name of fs.readdirSync(this.directory).filter((one) => one.endsWith(".json"))) {
      const file = path.join(this.directory, name);
      try {
        const record = JSON.parse(fs.readFileSync(file, "utf8"));
        if (/^[0-9a-f]{64}$/.test(record.sha256)) records.push({ ...record, file });
      } catch {
        continue; // it is just being written
      }
    }
    return records;
  }
}

function digest(token) {
  return crypto.createHash("sha256").update(token).digest("hex");
}

// What programs need to use this server's sandboxes by E2B's own SDKs: the environment, and the first lines.
import { SegmentedControl, Select } from "@mantine/core";
import { useState } from "react";
import { CodeBlock } from "../../ui/copy";
import table from "../../ui/table.module.css";

const SDKS = {
  python: { label: "Python", install: "pip install e2b", lines: 'from e2b import Sandbox\n\nsandbox = Sandbox.create()\nprint(sandbox.commands.run("echo hello").stdout)' },
  js: { label: "JavaScript", install: "npm install e2b", lines: 'import { Sandbox } from "e2b";\n\nconst sandbox = await Sandbox.create();\nconsole.log((await sandbox.commands.run("echo hello")).stdout);' },
  interpreter: { label: "Code interpreter", install: "pip install e2b-code-interpreter", lines: 'from e2b_code_interpreter import Sandbox\n\nsandbox = Sandbox.create()\nprint(sandbox.run_code("6 * 7").text)' },
  desktop: { label: "Desktop", install: "pip install e2b-desktop", lines: 'from e2b_desktop import Sandbox\n\ndesktop = Sandbox.create()\nopen("screen.png", "wb").write(desktop.screenshot())' },
  cli: { label: "E2B’s CLI", install: "npm install -g @e2b/cli", lines: "e2b sandbox list" },
} as const;
type Sdk = keyof typeof SDKS;

/** `{port}-{id}.DOMAIN` must lead here: an address has no names below it, but `localhost` has. */
function domain(): string {
  const isAddress = /^[\d.]+$|^\[/.test(location.hostname);
  return isAddress ? `localhost${location.port ? `:${location.port}` : ""}` : location.host;
}

function variables(sdk: Sdk, tls: boolean): string {
  const set = (name: string, value: string) => `export ${name}=${value}`;
  const url = `${tls ? "https" : "http"}://${tls ? domain() : location.host}`;
  const trust = sdk === "js" || sdk === "cli" ? ["NODE_EXTRA_CA_CERTS"] : ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"];
  return [
    set("E2B_API_URL", url),
    set("E2B_API_KEY", "e2b_…"),
    set("E2B_DOMAIN", domain()),
    ...(tls ? ["unset E2B_SANDBOX_URL", ...trust.map((name) => set(name, "sandlot-ca.pem"))] : [set("E2B_SANDBOX_URL", url)]),
  ].join("\n");
}

export function SdkEnvironment() {
  const [sdk, setSdk] = useState<Sdk>("python");
  const [tls, setTls] = useState(location.protocol === "https:");
  const { install, lines } = SDKS[sdk];
  return (
    <section className={table.below} aria-labelledby="sdks">
      <div className="row" style={{ flexWrap: "wrap" }}>
        <h2 id="sdks" className="grow">Sandboxes by E2B’s SDKs</h2>
        <Select aria-label="SDK" w={150} allowDeselect={false} value={sdk} onChange={(value) => setSdk(value as Sdk)} data={Object.entries(SDKS).map(([value, { label }]) => ({ value, label }))} />
        <SegmentedControl aria-label="Connection" value={tls ? "tls" : "plain"} onChange={(value) => setTls(value === "tls")} data={[{ value: "plain", label: "Plain" }, { value: "tls", label: "TLS" }]} />
      </div>
      <p className="dim">
        Keys of sandboxes are made with <code>./sandlot key create NAME</code>, apart from those above. On the server’s own machine <code>eval "$(./sandlot env)"</code> sets all of this
        {tls && <>; elsewhere, <code>sandlot-ca.pem</code> is the file <code>tls/ca.crt</code> of the data directory, unless the certificate is a public one</>}.
      </p>
      <div className={table.columns}>
        <CodeBlock label="Environment" text={variables(sdk, tls)} />
        <CodeBlock label="Program" text={`# ${install}\n${lines}`.replace(/^# /, sdk === "js" ? "// " : "# ")} />
      </div>
    </section>
  );
}

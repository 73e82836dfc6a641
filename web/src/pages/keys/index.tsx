// Keys of the platform: made, shown once, revoked; with the lines that programs need.
import { Button, Checkbox, Modal, SegmentedControl, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus } from "lucide-react";
import { useState, type FormEvent } from "react";
import { api, type Schemas } from "../../api/client";
import { mayWrite, useMe } from "../../app/session";
import { failed } from "../../tasks/acts";
import { confirm } from "../../ui/confirm";
import { CodeBlock } from "../../ui/copy";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import { SdkEnvironment } from "./environment";
import table from "../../ui/table.module.css";
import { Ago } from "../../ui/time";

type Scope = Schemas["Scope"];
const SCOPES: readonly Scope[] = ["read", "write", "admin"];

export default function Keys() {
  const me = useMe();
  const queries = useQueryClient();
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<string | null>(null);
  const list = useQuery({ queryKey: ["keys"], queryFn: () => api.data(api.GET("/console/api/keys")), refetchInterval: 30_000 });
  async function revoke(key: Schemas["ConsoleKey"]) {
    if (!(await confirm(`Revoke “${key.name}”?`, "Programs with it stop working at once, and browsers that logged in with it are logged out.", "Revoke"))) return;
    try {
      await api.DELETE("/console/api/keys/{key_id}", { params: { path: { key_id: key.id } } });
      await queries.invalidateQueries({ queryKey: ["keys"] });
    } catch (error) {
      failed("The key was not revoked", error);
    }
  }
  const add = mayWrite(me) && <Button leftSection={<Plus size={14} />} onClick={() => setMaking(true)}>New key</Button>;
  return (
    <PageFrame head={<PageHead title="Keys">{add}</PageHead>}>
      <NewKey opened={making} onClose={() => setMaking(false)} onMade={(secret) => (setMaking(false), setMade(secret), void queries.invalidateQueries({ queryKey: ["keys"] }))} />
      <Modal opened={made !== null} onClose={() => setMade(null)} title="Your new key" size={560}>
        <p className="dim" style={{ marginBottom: 12 }}>It is shown this once. Keep it where secrets are kept.</p>
        {made && <><CodeBlock label="Key" text={made} /><div style={{ height: 14 }} /><Environment secret={made} /></>}
      </Modal>
      <Shown query={list}>
        {({ keys }) =>
          keys.length ? (
            <table className={table.table}>
              <thead><tr><th>Name</th><th>Key</th><th>Owner</th><th data-wide>May</th><th data-wide data-right>Made</th><th data-right>Last use</th><th><span className="hidden-text">Revoke</span></th></tr></thead>
              <tbody>
                {keys.map((key) => (
                  <tr key={key.id}>
                    <td><b style={{ fontWeight: 500 }}>{key.name}</b></td>
                    <td className="dim"><code>{key.hint}</code></td>
                    <td className="dim">{key.user_id ?? "nobody"}</td>
                    <td data-wide className="dim">{key.scopes.join(", ")}</td>
                    <td data-wide data-right className="faint"><Ago at={key.created_at} suffix=" ago" /></td>
                    <td data-right className="faint">{key.last_used_at ? <Ago at={key.last_used_at} suffix=" ago" /> : "never"}</td>
                    <td data-right>{mayWrite(me) && <Button variant="subtle" color="red" size="compact-sm" onClick={() => void revoke(key)}>Revoke</Button>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            <Empty icon={KeyRound} title="No keys" action={add} lines="./sandlot platform key create --user ada">Programs and other people use this server with a key of their own.</Empty>
          )
        }
      </Shown>
      <SdkEnvironment />
    </PageFrame>
  );
}

function NewKey({ opened, onClose, onMade }: { opened: boolean; onClose: () => void; onMade: (secret: string) => void }) {
  const me = useMe();
  const [name, setName] = useState("");
  const [user, setUser] = useState("");
  const [scopes, setScopes] = useState<readonly Scope[]>(["read", "write"]);
  const [busy, setBusy] = useState(false);
  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    try {
      onMade((await api.data(api.POST("/console/api/keys", { body: { name: name.trim(), user_id: user.trim() || null, scopes: [...scopes] } }))).secret);
      setName("");
    } catch (error) {
      failed("No key was made", error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <Modal opened={opened} onClose={onClose} title="New key" size={420}>
      <form onSubmit={(event) => void submit(event)} style={{ display: "grid", gap: 12 }}>
        <TextInput data-autofocus required label="Name" placeholder="ci" value={name} onChange={(event) => setName(event.currentTarget.value)} />
        {me.is_admin && <TextInput label="Whose" description="A user’s name; empty for a key of an admin." placeholder="ada" value={user} onChange={(event) => setUser(event.currentTarget.value)} />}
        <fieldset style={{ border: 0, padding: 0, margin: 0, display: "flex", gap: 16 }}>
          <legend style={{ padding: 0, marginBottom: 6, fontWeight: 500 }}>May</legend>
          {SCOPES.filter((scope) => me.is_admin || me.scopes.includes(scope)).map((scope) => <Checkbox key={scope} label={scope} checked={scopes.includes(scope)} onChange={() => setScopes(scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope])} />)}
        </fieldset>
        <div className="row" style={{ justifyContent: "flex-end" }}><Button variant="default" onClick={onClose}>Cancel</Button><Button type="submit" loading={busy} disabled={!scopes.length}>Make it</Button></div>
      </form>
    </Modal>
  );
}

function Environment({ secret }: { secret: string }) {
  const [kind, setKind] = useState("client");
  const url = location.origin;
  const text: Record<string, string> = {
    client: `from sandlot.client import Client\n\nasync with Client("${url}", "${secret}") as client:\n    session = await client.create(session_id="work")`,
    curl: `curl -X POST ${url}/sandboxes/create \\\n  -H "X-API-KEY: ${secret}" \\\n  -H "Content-Type: application/json" -d '{"session_id": "work"}'`,
    mcp: JSON.stringify({ mcpServers: { sandlot: { type: "http", url: `${url}/mcp`, headers: { "X-API-KEY": secret } } } }, null, 2),
    git: `git clone ${url.replace("://", `://key:${secret}@`)}/git/REPOSITORY.git`,
  };
  return (
    <div style={{ display: "grid", gap: 10 }}>
      <SegmentedControl aria-label="For what" value={kind} onChange={setKind} data={[{ value: "client", label: "Python" }, { value: "curl", label: "curl" }, { value: "mcp", label: "MCP" }, { value: "git", label: "git" }]} />
      <CodeBlock label={kind === "mcp" ? "Configuration" : "Lines"} text={text[kind]!} />
    </div>
  );
}

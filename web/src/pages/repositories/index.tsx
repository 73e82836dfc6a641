// Repositories that tasks work on: hosted here, at GitHub, or anywhere by URL.
import { Button, Modal, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { FolderGit2, Plus } from "lucide-react";
import { useState, type FormEvent } from "react";
import { api } from "../../api/client";
import { mayWrite, useMe } from "../../app/session";
import { failed } from "../../tasks/acts";
import { CopyIcon } from "../../ui/copy";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import table from "../../ui/table.module.css";
import { Ago } from "../../ui/time";

export const FORGES: Record<string, string> = { local: "hosted here", github: "GitHub", remote: "elsewhere" };

export default function Repositories() {
  const me = useMe();
  const [adding, setAdding] = useState(false);
  const list = useQuery({ queryKey: ["repositories"], queryFn: () => api.data(api.GET("/repositories")) });
  const add = mayWrite(me) && <Button leftSection={<Plus size={14} />} onClick={() => setAdding(true)}>Add a repository</Button>;
  return (
    <PageFrame head={<PageHead title="Repositories">{add}</PageHead>}>
      <Add opened={adding} onClose={() => setAdding(false)} />
      <Shown query={list}>
        {({ repositories }) =>
          repositories.length ? (
            <table className={table.table}>
              <thead><tr><th>Repository</th><th>Where</th><th data-wide>Branch</th><th data-wide>Owner</th><th>Clone</th><th data-right data-wide>Added</th></tr></thead>
              <tbody>
                {repositories.map((one) => (
                  <tr key={one.name}>
                    <td><Link to={`/repositories/${encodeURIComponent(one.name)}` as string}>{one.name}</Link>{one.problem && <span style={{ color: "var(--red)" }}> {one.problem}</span>}</td>
                    <td className="dim">{FORGES[one.forge] ?? one.forge}</td>
                    <td data-wide className="dim"><code>{one.default_branch}</code></td>
                    <td data-wide className="dim">{one.user_id ?? "everybody"}</td>
                    <td><span className="row"><code className="cut">{one.clone_url}</code><CopyIcon text={`git clone ${one.clone_url}`} label="Copy the command" /></span></td>
                    <td data-right data-wide className="faint"><Ago at={one.created_at} suffix=" ago" /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            <Empty icon={FolderGit2} title="No repositories" action={add} lines="./sandlot repo create shop">Host one here, or add one by its URL.</Empty>
          )
        }
      </Shown>
    </PageFrame>
  );
}

function Add({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [busy, setBusy] = useState(false);
  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    try {
      await api.POST("/repositories", { body: { name: name.trim(), url: url.trim() || null, empty: false } });
      await queries.invalidateQueries({ queryKey: ["repositories"] });
      setName("");
      setUrl("");
      onClose();
    } catch (error) {
      failed("The repository was not added", error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <Modal opened={opened} onClose={onClose} title="Add a repository" size={460}>
      <form onSubmit={(event) => void submit(event)} style={{ display: "grid", gap: 12 }}>
        <TextInput data-autofocus required label="Name" placeholder="shop" value={name} onChange={(event) => setName(event.currentTarget.value)} />
        <TextInput label="URL" description="Empty: it is hosted here. A token for a private one is given with ./sandlot repo add." placeholder="https://github.com/acme/shop.git" value={url} onChange={(event) => setUrl(event.currentTarget.value)} />
        <div className="row" style={{ justifyContent: "flex-end" }}><Button variant="default" onClick={onClose}>Cancel</Button><Button type="submit" loading={busy}>Add</Button></div>
      </form>
    </Modal>
  );
}

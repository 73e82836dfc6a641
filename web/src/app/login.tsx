// The login page: a key, or the link that `./sandlot console` prints.
import { Button, PasswordInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { api } from "../api/client";
import { Mark } from "./mark";
import classes from "./login.module.css";

export function Login({ onDone }: { onDone: () => void }) {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await api.POST("/console/login", { body: { key: key.trim() } });
      onDone();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  }
  return (
    <main className={classes.page}>
      <form className={classes.card} onSubmit={(event) => void submit(event)}>
        <Mark size={32} />
        <h1>Log in to Sandlot</h1>
        <p className="dim">With a key of this server. It is kept in no script’s reach, and ends with the key.</p>
        <PasswordInput
          size="sm"
          label="API key"
          value={key}
          onChange={(event) => setKey(event.currentTarget.value)}
          autoComplete="current-password"
          error={problem}
          autoFocus
          required
          withAsterisk={false}
        />
        <Button type="submit" size="sm" loading={busy} disabled={!key.trim()} fullWidth>
          Log in
        </Button>
        <div className={classes.or}>On the server’s own machine, a link that works once:</div>
        <pre className={classes.line}>./sandlot console</pre>
      </form>
    </main>
  );
}

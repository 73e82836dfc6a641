// A new task: what to do, where, by whom, within which limits; beside it the same as a command and as a call.
import { Button, Collapse, MultiSelect, NumberInput, Select, Switch, Tabs, TagsInput, Textarea, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ChevronRight, FolderGit2, Paperclip } from "lucide-react";
import { useEffect, useRef, useState, type FormEvent } from "react";
import { useKeys } from "../../app/keys";
import { useGo } from "../../app/navigation";
import { mayWrite, useMe } from "../../app/session";
import { api, type Schemas } from "../../api/client";
import { failed } from "../../tasks/acts";
import { isEnded } from "../../tasks/lanes";
import { keep, useTaskList } from "../../tasks/store";
import { CodeBlock } from "../../ui/copy";
import { PageFrame, PageHead } from "../../ui/page";
import { Failed } from "../../ui/states";
import { body, commandLine, curl, EMPTY, type Form } from "./form";
import classes from "./new.module.css";

const DRAFT = "sandlot-new-task";
const LARGEST = 100_000;

function draft(): Form {
  try {
    return { ...EMPTY, ...(JSON.parse(localStorage.getItem(DRAFT) ?? "{}") as Partial<Form>) };
  } catch {
    return EMPTY;
  }
}

export default function NewTask() {
  const [form, setForm] = useState(draft);
  const [more, setMore] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const once = useRef(crypto.randomUUID?.() ?? String(Math.random())); // sending twice makes one task
  const queries = useQueryClient();
  const go = useGo();
  const me = useMe();
  const set = (changes: Partial<Form>) => setForm((old) => ({ ...old, ...changes }));
  const repositories = useQuery({ queryKey: ["repositories"], queryFn: () => api.data(api.GET("/repositories")) });
  const agents = useQuery({ queryKey: ["agents"], queryFn: () => api.data(api.GET("/platform/agents")), staleTime: 300_000 });
  const branches = useQuery({
    queryKey: ["branches", form.repository],
    queryFn: () => api.data(api.GET("/repositories/{name}/branches", { params: { path: { name: form.repository! } } })),
    enabled: form.repository !== null,
    retry: false,
  });
  const open = useTaskList().filter((task) => !isEnded(task));
  useEffect(() => {
    localStorage.setItem(DRAFT, JSON.stringify(form));
  }, [form]);
  const names = repositories.data?.repositories.map((each) => each.name) ?? [];
  useEffect(() => {
    if (form.repository === null && names.length === 1) set({ repository: names[0]! });
  }, [names.length]); // eslint-disable-line
  const isReady = Boolean((form.repository && form.prompt.trim()) || form.issue.trim()) && (form.agent !== "command" || Boolean(form.command.trim()));
  async function submit(event?: FormEvent) {
    event?.preventDefault();
    if (!isReady || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const made = await api.data(api.POST("/tasks", { body: body(form) as Schemas["CreateTask"], params: { header: { "idempotency-key": once.current } } }));
      keep(queries, made);
      localStorage.removeItem(DRAFT);
      go(`/tasks/${made.id}`);
    } catch (error) {
      setProblem(error);
      once.current = crypto.randomUUID?.() ?? String(Math.random());
    } finally {
      setBusy(false);
    }
  }
  useKeys([{ keys: "mod+enter", label: "Make the task", group: "New task", run: () => void submit() }]);
  return (
    <PageFrame head={<PageHead title="New task" />}>
      <div className={classes.page}>
        <form className={classes.form} onSubmit={(event) => void submit(event)}>
          {repositories.isError && <Failed error={repositories.error} retry={() => void repositories.refetch()} />}
          {repositories.data && !names.length ? (
            <FirstRepository onMade={(repository) => set({ repository })} />
          ) : (
            <div className={classes.two}>
              <Select label="Repository" placeholder="Choose one" searchable allowDeselect={false} data={names} value={form.repository} onChange={(repository) => set({ repository, base: null })} />
              <Select label="Base branch" placeholder={repositories.data?.repositories.find((each) => each.name === form.repository)?.default_branch ?? "The default branch"} searchable clearable data={[...new Set((branches.data?.branches ?? []).map((branch) => branch.name))]} value={form.base} onChange={(base) => set({ base })} disabled={!form.repository} />
            </div>
          )}
          <Prompt form={form} set={set} />
          <div className={classes.two}>
            <Select label="Agent" placeholder="The server’s default" clearable allowDeselect={false} data={(agents.data?.agents ?? []).map((agent) => ({ value: agent.id, label: agent.title }))} value={form.agent} onChange={(agent) => set({ agent })} />
            {form.agent === "command" ? (
              <TextInput label="Command" required placeholder="make fix" value={form.command} onChange={(event) => set({ command: event.currentTarget.value })} />
            ) : (
              <TextInput label="Model" placeholder="The agent’s default" value={form.model} onChange={(event) => set({ model: event.currentTarget.value })} />
            )}
          </div>
          <TagsInput label="Checks" description="Done when each of these commands ends with 0. Enter adds one." placeholder={form.checks.length ? "" : "pytest -q"} value={form.checks} onChange={(checks) => set({ checks })} splitChars={[]} acceptValueOnBlur />
          <button type="button" className={classes.more} aria-expanded={more} onClick={() => setMore(!more)}><ChevronRight size={14} aria-hidden />Limits, network, attempts, dependencies</button>
          <Collapse expanded={more}>
            <div className={classes.rest}>
              <div className={classes.three}>
                <NumberInput label="Minutes" min={1} max={1380} value={form.minutes} onChange={(value) => set({ minutes: Number(value) || 60 })} />
                <NumberInput label="Budget in USD" placeholder="None" min={0.01} decimalScale={2} value={form.cost ?? ""} onChange={(value) => set({ cost: Number(value) || null })} />
                <NumberInput label="Turns" placeholder="Any" min={1} value={form.turns ?? ""} onChange={(value) => set({ turns: Number(value) || null })} />
                <NumberInput label="Tries at the checks" min={1} max={20} value={form.tries} onChange={(value) => set({ tries: Number(value) || 3 })} />
                <NumberInput label="Attempts side by side" min={1} max={8} value={form.attempts} onChange={(value) => set({ attempts: Number(value) || 1 })} />
                <TextInput label="Title" placeholder="From the prompt" value={form.title} onChange={(event) => set({ title: event.currentTarget.value })} />
              </div>
              <Switch label="The sandbox reaches the internet" checked={form.internet} onChange={(event) => set({ internet: event.currentTarget.checked })} />
              {!form.internet && <TagsInput label="Hosts that it reaches all the same" placeholder="pypi.org" value={form.allow} onChange={(allow) => set({ allow })} acceptValueOnBlur />}
              <TagsInput label="Secrets, by name" description="As they are called in sandlot.toml. Their values are never shown." value={form.secrets} onChange={(secrets) => set({ secrets })} acceptValueOnBlur />
              <TagsInput label="Labels" value={form.labels} onChange={(labels) => set({ labels })} acceptValueOnBlur />
              <MultiSelect size="xs" label="Waits for" searchable data={open.map((task) => ({ value: task.id, label: task.title }))} value={form.blockedBy} onChange={(blockedBy) => set({ blockedBy })} />
            </div>
          </Collapse>
          {problem !== null && <Failed error={problem} />}
          <div className={classes.foot}>
            <Switch label="Start at once" checked={form.start} onChange={(event) => set({ start: event.currentTarget.checked })} />
            <span className="grow" />
            <Button variant="subtle" color="gray" onClick={() => setForm(EMPTY)}>Clear</Button>
            <Button type="submit" loading={busy} disabled={!isReady || !mayWrite(me)}>{form.start ? "Start the task" : "Add to To do"}</Button>
          </div>
        </form>
        <aside className={classes.same} aria-label="The same by command line or API">
          <Tabs defaultValue="cli">
            <Tabs.List><Tabs.Tab value="cli">Command line</Tabs.Tab><Tabs.Tab value="api">API</Tabs.Tab></Tabs.List>
            <Tabs.Panel value="cli" pt={10}><CodeBlock text={commandLine(form)} /></Tabs.Panel>
            <Tabs.Panel value="api" pt={10}><CodeBlock text={curl(form)} /></Tabs.Panel>
          </Tabs>
          <p className="faint">The same task, made elsewhere. It changes while you type.</p>
        </aside>
      </div>
    </PageFrame>
  );
}

function Prompt({ form, set }: { form: Form; set: (changes: Partial<Form>) => void }) {
  const picker = useRef<HTMLInputElement>(null);
  async function attach(files: FileList | null) {
    let text = form.prompt;
    for (const file of files ?? []) {
      const content = await file.text();
      if (content.length > LARGEST || content.includes("\0")) failed(`${file.name} was not attached`, new Error("Only texts of up to 100 kB can be attached: they become part of the prompt."));
      else text += `\n\n${file.name}:\n\`\`\`\n${content.replace(/\n$/, "")}\n\`\`\``;
    }
    set({ prompt: text.trimStart() });
  }
  return (
    <div>
      <Textarea label="What is to be done" description="Markdown. The more exactly you say when it is done, the better." autosize minRows={7} maxRows={22} placeholder="Add a /health route that answers 200 with the version, and a test for it." value={form.prompt} onChange={(event) => set({ prompt: event.currentTarget.value })} data-autofocus autoFocus />
      <div className={classes.under}>
        <Button variant="subtle" color="gray" size="compact-xs" leftSection={<Paperclip size={12} />} onClick={() => picker.current?.click()}>Attach a text file</Button>
        <input ref={picker} type="file" multiple hidden aria-label="Text files to attach" onChange={(event) => void attach(event.currentTarget.files)} />
        <TextInput className="grow" variant="unstyled" placeholder="…or the address of an issue: https://github.com/…/issues/1" aria-label="Address of an issue" value={form.issue} onChange={(event) => set({ issue: event.currentTarget.value })} classNames={{ input: classes.issue }} />
      </div>
    </div>
  );
}

function FirstRepository({ onMade }: { onMade: (name: string) => void }) {
  const [name, setName] = useState("demo");
  const [busy, setBusy] = useState(false);
  const queries = useQueryClient();
  async function make() {
    setBusy(true);
    try {
      await api.POST("/repositories", { body: { name } as Schemas["CreateRepository"] });
      await queries.invalidateQueries({ queryKey: ["repositories"] });
      onMade(name);
    } catch (error) {
      failed("The repository was not made", error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <div className={classes.first}>
      <FolderGit2 size={18} aria-hidden />
      <div className="grow">
        <b>There is no repository yet.</b> <span className="dim">Make one here, or add yours: <code>./sandlot repo add NAME URL</code></span>
      </div>
      <TextInput aria-label="Name of the repository" value={name} onChange={(event) => setName(event.currentTarget.value)} w={120} />
      <Button variant="default" loading={busy} disabled={!name.trim()} onClick={() => void make()}>Make it</Button>
    </div>
  );
}

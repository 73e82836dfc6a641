// The frame around every page: navigation, connection, capacity, palette; on phones a bar at the bottom.
import { ActionIcon, Menu, Tooltip, useMantineColorScheme } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet } from "@tanstack/react-router";
import { Keyboard, LogOut, Monitor, Moon, Search, Settings2, Sun } from "lucide-react";
import { useEffect } from "react";
import { api } from "../api/client";
import { useLiveStatus } from "../live/provider";
import { PAGES, type Page } from "../pages";
import { needsPerson } from "../tasks/lanes";
import { useFollowedTasks, useTaskList } from "../tasks/store";
import { Confirmations } from "../ui/confirm";
import { plural } from "../ui/format";
import { timeOfDay, useNow } from "../ui/time";
import { Keycaps, useKeys } from "./keys";
import { Mark } from "./mark";
import { useGo, usePath } from "./navigation";
import { Palette } from "./palette";
import { logOut, useMe } from "./session";
import { StateAnnouncer } from "./announcer";
import classes from "./shell.module.css";

const GROUPS = { work: null, sandboxes: "Sandboxes", manage: "Manage" } as const;

export function usePages(): Page[] {
  const me = useMe();
  return PAGES.filter((page) => page.nav && (!page.adminsOnly || me.is_admin));
}

export function Shell() {
  useFollowedTasks();
  const go = useGo();
  const path = usePath();
  const pages = usePages();
  const [searching, palette] = useDisclosure(false);
  const waiting = useTaskList().filter(needsPerson).length;
  const current = pages.find((page) => path.startsWith(page.path));
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ""}${current?.title ?? "Sandlot"} · Sandlot`;
  }, [waiting, current]);
  useKeys([
    { keys: "mod+k", label: "Search and commands", group: "Anywhere", run: palette.toggle },
    { keys: "/", label: "Search and commands", group: "Anywhere", run: palette.open, hidden: true },
    { keys: "c", label: "New task", group: "Anywhere", run: () => go("/new") },
    ...pages.filter((page) => page.nav?.key).map((page) => ({ keys: `g ${page.nav!.key!}`, label: page.title, group: "Go to", run: () => go(page.path) })),
  ]);
  return (
    <div className={classes.frame}>
      <a href="#main" className="skip">Skip to the page</a>
      <nav className={classes.side} aria-label="Pages">
        <div className={classes.brand}>
          <Mark />
          <span>Sandlot</span>
          <Account />
        </div>
        <button type="button" className={classes.search} onClick={palette.open}>
          <Search size={14} aria-hidden />
          <span>Search</span>
          <Keycaps keys="mod+k" />
        </button>
        <div className={classes.links}>
          {(Object.keys(GROUPS) as (keyof typeof GROUPS)[]).map((group) => {
            const listed = pages.filter((page) => page.nav!.group === group);
            return listed.length ? (
              <div key={group} className={classes.group}>
                {GROUPS[group] && <div className={classes.heading}>{GROUPS[group]}</div>}
                {listed.map((page) => <NavLink key={page.path} page={page} count={page.path === "/inbox" ? waiting : 0} />)}
              </div>
            ) : null;
          })}
        </div>
        <Capacity />
        <Connection />
      </nav>
      <main id="main" className={classes.main} tabIndex={-1}>
        <StaleBanner />
        <div className={classes.page}><Outlet /></div>
      </main>
      <nav className={classes.bottom} aria-label="Pages">
        {pages.filter((page) => page.nav!.phone).map((page) => <NavLink key={page.path} page={page} count={page.path === "/inbox" ? waiting : 0} />)}
        <button type="button" className={classes.link} onClick={palette.open}><Search size={18} aria-hidden /><span>More</span></button>
      </nav>
      <Palette opened={searching} onClose={palette.close} />
      <StateAnnouncer />
      <Confirmations />
    </div>
  );
}

function NavLink({ page, count }: { page: Page; count: number }) {
  const Icon = page.nav!.icon;
  return (
    <Link to={page.path as string} className={classes.link} activeProps={{ className: classes.on, "aria-current": "page" }}>
      <Icon size={16} strokeWidth={1.75} aria-hidden />
      <span>{page.title}</span>
      {count > 0 && <span className={`${classes.count} num`} aria-label={`${count} waiting`}>{count}</span>}
    </Link>
  );
}

function Account() {
  const me = useMe();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const go = useGo();
  const themes = [["auto", "As the system", Monitor], ["light", "Light", Sun], ["dark", "Dark", Moon]] as const;
  return (
    <Menu position="bottom-start" width={220}>
      <Menu.Target>
        <ActionIcon aria-label="Account and appearance" ml="auto"><Settings2 size={15} /></ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{me.user_id ?? "Admin"}{me.is_admin && me.user_id ? " · admin" : ""} · {me.version}</Menu.Label>
        {themes.map(([name, label, Icon]) => (
          <Menu.Item key={name} leftSection={<Icon size={14} />} onClick={() => setColorScheme(name)} aria-current={colorScheme === name} rightSection={colorScheme === name ? "✓" : null}>
            {label}
          </Menu.Item>
        ))}
        <Menu.Divider />
        {PAGES.some((page) => page.path === "/settings") && <Menu.Item leftSection={<Settings2 size={14} />} onClick={() => go("/settings")}>Settings</Menu.Item>}
        <Menu.Item leftSection={<Keyboard size={14} />} onClick={() => document.dispatchEvent(new KeyboardEvent("keydown", { key: "?" }))}>Keys</Menu.Item>
        <Menu.Item leftSection={<LogOut size={14} />} onClick={() => void logOut()}>Log out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

function Capacity() {
  const queue = useQuery({ queryKey: ["queue"], queryFn: () => api.data(api.GET("/console/api/queue")), refetchInterval: 10_000 });
  const tasks = useTaskList();
  const working = tasks.filter((task) => task.state === "working").length;
  const queued = tasks.filter((task) => task.state === "queued").length;
  if (!queue.data) return <div className={classes.capacity} />;
  const { running, limit, waiting } = queue.data;
  const share = limit ? Math.min(1, running / limit) : 0;
  return (
    <Tooltip label={`${plural(running, "sandbox", "sandboxes")} of ${limit || "any number"} run; ${plural(waiting.length, "session")} and ${plural(queued, "task")} wait`} position="right">
      <div className={classes.capacity}>
        <div className={classes.figures}><span>{plural(working, "agent")} at work</span><span className="num">{running}{limit ? `/${limit}` : ""}</span></div>
        {limit > 0 && <div className={classes.meter}><div style={{ width: `${share * 100}%` }} data-full={share >= 0.9 || undefined} /></div>}
      </div>
    </Tooltip>
  );
}

function Connection() {
  const status = useLiveStatus();
  const words = status.state === "live" ? "Live" : status.state === "connecting" ? "Connecting" : "Reconnecting";
  return <div className={classes.connection} data-state={status.state}><i aria-hidden />{words}</div>;
}

function StaleBanner() {
  const status = useLiveStatus();
  const now = useNow(1000);
  if (status.state !== "stale" || now - status.since < 1500) return null;
  return <div className={classes.stale} role="status">As of {timeOfDay(status.since)}, reconnecting…</div>;
}

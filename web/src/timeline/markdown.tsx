// The part of Markdown that agents use, as elements. What an agent writes is never taken as HTML, and links go to the web only.
import { Fragment, type ReactNode } from "react";
import classes from "./markdown.module.css";

const MOST = 60_000;

export function Markdown({ text }: { text: string }) {
  return <div className={classes.text}>{blocks(text.slice(0, MOST))}</div>;
}

function blocks(text: string): ReactNode[] {
  const lines = text.replaceAll("\r", "").split("\n");
  const out: ReactNode[] = [];
  let n = 0;
  while (n < lines.length) {
    const line = lines[n]!;
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      const body: string[] = [];
      for (n += 1; n < lines.length && !lines[n]!.trimStart().startsWith(fence[1]!); n += 1) body.push(lines[n]!);
      out.push(<pre key={out.length} tabIndex={0}>{body.join("\n")}</pre>);
      n += 1;
    } else if (/^<details>/.test(line)) {
      const body: string[] = [line.replace("<details>", "")];
      for (n += 1; n < lines.length && !lines[n]!.includes("</details>"); n += 1) body.push(lines[n]!);
      n += 1;
      const [, summary = "Details", rest = ""] = /^\s*(?:<summary>([^\n]*?)<\/summary>)?([^]*)$/.exec(body.join("\n")) ?? [];
      out.push(<details key={out.length}><summary>{inline(summary.replace(/<\/?code>/g, "`"))}</summary>{blocks(rest.replaceAll("<details>", ""))}</details>);
    } else if (/^\s*([-*+]|\d{1,9}[.)])\s+/.test(line)) {
      const items: string[] = [];
      const ordered = /^\s*\d/.test(line);
      for (; n < lines.length && (/^\s*([-*+]|\d{1,9}[.)])\s+/.test(lines[n]!) || (/^\s+\S/.test(lines[n]!) && items.length)); n += 1) {
        const item = /^\s*(?:[-*+]|\d{1,9}[.)])\s+(.*)$/.exec(lines[n]!);
        if (item) items.push(item[1]!);
        else items[items.length - 1] += ` ${lines[n]!.trim()}`;
      }
      const List = ordered ? "ol" : "ul";
      out.push(<List key={out.length}>{items.map((item, at) => <li key={at}>{inline(item)}</li>)}</List>);
    } else if (/^#{1,6}\s/.test(line)) {
      out.push(<p key={out.length} className={classes.heading}>{inline(line.replace(/^#+\s+/, ""))}</p>);
      n += 1;
    } else if (/^>\s?/.test(line)) {
      const body: string[] = [];
      for (; n < lines.length && /^>\s?/.test(lines[n]!); n += 1) body.push(lines[n]!.replace(/^>\s?/, ""));
      out.push(<blockquote key={out.length}>{inline(body.join("\n"))}</blockquote>);
    } else if (!line.trim()) {
      n += 1;
    } else {
      const body: string[] = [];
      for (; n < lines.length && lines[n]!.trim() && !/^\s*(```|~~~|[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|>|<details>)/.test(lines[n]!); n += 1) body.push(lines[n]!);
      if (!body.length) body.push(lines[n++]!);
      out.push(<p key={out.length}>{inline(body.join("\n"))}</p>);
    }
  }
  return out;
}

const PARTS = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(\*[^*\s][^*\n]*\*)|\[([^\]\n]+)\]\((https?:\/\/[^)\s]+)\)|(https?:\/\/[^\s<>)\]]+)/g;

function inline(text: string): ReactNode[] {
  const out: ReactNode[] = [];
  let from = 0;
  for (const found of text.matchAll(PARTS)) {
    if (found.index > from) out.push(<Fragment key={out.length}>{text.slice(from, found.index)}</Fragment>);
    const [all, code, strong, soft, label, target, bare] = found;
    const key = out.length;
    if (code) out.push(<code key={key}>{code.slice(1, -1)}</code>);
    else if (strong) out.push(<strong key={key}>{strong.slice(2, -2)}</strong>);
    else if (soft) out.push(<em key={key}>{soft.slice(1, -1)}</em>);
    else out.push(<a key={key} href={target ?? bare} target="_blank" rel="noreferrer noopener nofollow">{label ?? bare}</a>);
    from = found.index + all.length;
  }
  if (from < text.length) out.push(<Fragment key={out.length}>{text.slice(from)}</Fragment>);
  return out;
}

// A line that can be copied, and the button that does it.
import { ActionIcon, CopyButton, Tooltip } from "@mantine/core";
import { Check, Copy } from "lucide-react";
import classes from "./copy.module.css";

export function CopyIcon({ text, label = "Copy" }: { text: string; label?: string }) {
  return (
    <CopyButton value={text} timeout={1200}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? "Copied" : label}>
          <ActionIcon aria-label={label} onClick={copy} size={24}>
            {copied ? <Check size={14} /> : <Copy size={14} />}
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}

export function CodeBlock({ text, label }: { text: string; label?: string }) {
  return (
    <div className={classes.block}>
      {label && <div className={classes.label}>{label}</div>}
      <pre tabIndex={0} aria-label={label ?? "Code"}>{text}</pre>
      <div className={classes.button}>
        <CopyIcon text={text} label={`Copy ${label ?? "this"}`} />
      </div>
    </div>
  );
}

// Asks before something that cannot be undone, and says what is lost.
import { Button, Modal } from "@mantine/core";
import { useSyncExternalStore } from "react";

interface Question {
  title: string;
  words: string;
  yes: string;
  isDangerous: boolean;
  answer: (yes: boolean) => void;
}
let asked: Question | null = null;
const listeners = new Set<() => void>();

function set(question: Question | null) {
  asked = question;
  listeners.forEach((tell) => tell());
}

export function confirm(title: string, words: string, yes: string, isDangerous = true): Promise<boolean> {
  return new Promise((resolve) => {
    set({ title, words, yes, isDangerous, answer: (said) => (set(null), resolve(said)) });
  });
}

export function Confirmations() {
  const question = useSyncExternalStore((tell) => (listeners.add(tell), () => listeners.delete(tell)), () => asked);
  return (
    <Modal opened={question !== null} onClose={() => question?.answer(false)} title={question?.title} size={420}>
      <p className="dim">{question?.words}</p>
      <div className="row" style={{ justifyContent: "flex-end", marginTop: 18 }}>
        <Button variant="default" onClick={() => question?.answer(false)}>Cancel</Button>
        <Button data-autofocus color={question?.isDangerous ? "red.8" : undefined} onClick={() => question?.answer(true)}>{question?.yes}</Button>
      </div>
    </Modal>
  );
}

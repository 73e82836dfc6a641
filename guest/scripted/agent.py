"""An agent without a model: follows the script in its prompt, really changes files and runs commands, and tells of it as Claude Code does.

It is copied into sandboxes as this one file and started there by whatever Python is found, so it needs Python 3.8 and the standard
library. `agents/README.md` describes the scripts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time

MOST_OUTPUT = 100_000
COMMAND_S = 900
MOST_PACE_S = float(os.environ.get("SCRIPTED_PACE") or 3600)  # for those who cannot wait
NOTES = "SCRIPTED.md"
DIVIDER = "===="
SCRIPTS = os.path.join(".sandlot", "scripts")
FENCE = re.compile(r"^```script(?:ed)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^script:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
HERE = re.compile(r"(?:^|\s)<<(\w+)$")
REST = re.compile(r"^#!scripted[ \t]*\n", re.MULTILINE)


WHEN = re.compile(r"^# when: (.+)$", re.MULTILINE)


class ScriptProblem(Exception):
    """The script cannot be followed; the message says where."""


class Finished(Exception):
    """The turn is over."""

    def __init__(self, text, failed=False):
        super().__init__(text)
        self.text, self.failed = text, failed


class Told:
    """What was told of this turn so far, as events on standard output."""

    def __init__(self, session, directory):
        self.session, self.directory = session, directory
        self.turns = 0
        self.last = ""
        self.input = self.output = self.cached = 0
        self.cost = 0.0
        self.began = time.time()

    def event(self, kind, **more):
        print(json.dumps({"type": kind, **more, "session_id": self.session}), flush=True)

    def begin(self):
        tools = ["Bash", "Read", "Edit", "Write", "TodoWrite", "AskUserQuestion"]
        self.event("system", subtype="init", cwd=self.directory, model="scripted", tools=tools, permissionMode="none")

    def assistant(self, part):
        self.turns += 1
        message = {"id": "msg_%d" % self.turns, "role": "assistant", "model": "scripted", "content": [part]}
        self.event("assistant", message=message)

    def say(self, text):
        self.last = text
        self.assistant({"type": "text", "text": text})

    def call(self, tool, given):
        self.assistant({"type": "tool_use", "id": "call_%d" % (self.turns + 1), "name": tool, "input": given})
        return "call_%d" % self.turns

    def returned(self, call, text, failed=False, result=None):
        part = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}
        self.event("user", message={"role": "user", "content": [part]}, tool_use_result=result)

    def end(self, text, failed):
        usage = {
            "input_tokens": self.input - self.cached,
            "cache_read_input_tokens": self.cached,
            "output_tokens": self.output,
        }
        self.event(
            "result",
            subtype="success",
            is_error=failed,
            num_turns=self.turns,
            duration_ms=int((time.time() - self.began) * 1000),
            result=text,
            total_cost_usd=round(self.cost, 6),
            usage=usage,
        )


class Actions:
    """Everything that a script can do, by its first word."""

    def __init__(self, told, prompt):
        self.told, self.prompt = told, prompt
        self.pace_s = 0.0

    def do(self, word, text):
        act = getattr(self, "do_" + word, None)
        if act is None:
            known = sorted(name[3:] for name in dir(self) if name.startswith("do_"))
            raise ScriptProblem("there is no action %r; there are %s" % (word, ", ".join(known)))
        act(text.replace("{prompt}", self.prompt.strip()))

    def do_say(self, text):
        self.told.say(text)

    def do_think(self, text):
        self.told.assistant({"type": "thinking", "thinking": text, "signature": ""})

    def do_wait(self, text):
        time.sleep(float(text))

    def do_pace(self, text):
        self.pace_s = float(text)

    def do_print(self, text):
        print(text, flush=True)

    def do_complain(self, text):
        print(text, file=sys.stderr, flush=True)

    def do_read(self, path):
        call = self.told.call("Read", {"file_path": self.full(path)})
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(MOST_OUTPUT)
        except OSError as problem:
            self.told.returned(call, str(problem), failed=True)
            return
        self.told.returned(call, text)

    def do_run(self, command):
        call = self.told.call("Bash", {"command": command})
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_S,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            self.told.returned(call, str(problem), failed=True)
            return
        output = done.stdout[-MOST_OUTPUT:].decode("utf-8", "replace")
        if done.returncode:
            output = "Exit code %d\n%s" % (done.returncode, output)
        self.told.returned(call, output, failed=done.returncode != 0)

    def do_write(self, text):
        path, content = self.parts(text)
        call = self.told.call("Write", {"file_path": self.full(path), "content": content})
        self.put(call, path, content)

    def do_append(self, text):
        path, content = self.parts(text)
        before = self.current(path)
        call = self.told.call(
            "Edit", {"file_path": self.full(path), "old_string": before, "new_string": before + content}
        )
        self.put(call, path, before + content)

    def do_edit(self, text):
        path, change = self.parts(text)
        old, found, new = change.partition(DIVIDER + "\n")
        if not found:
            raise ScriptProblem("edit needs the old text, a line %s, and the new text" % DIVIDER)
        given = {"file_path": self.full(path), "old_string": old, "new_string": new}
        call = self.told.call("Edit", given)
        before = self.current(path)
        if old not in before:
            self.told.returned(call, "String to replace not found in file.", failed=True)
            return
        self.put(call, path, before.replace(old, new, 1))

    def do_delete(self, path):
        self.do_run("rm -r -- '%s'" % path.replace("'", "'\\''"))

    def do_todo(self, text):
        items = [{"content": item.strip(), "status": "pending"} for item in text.split(";") if item.strip()]
        call = self.told.call("TodoWrite", {"todos": items})
        self.told.returned(call, "Todos have been modified.")

    def do_usage(self, text):
        numbers = text.split()
        self.told.input += int(numbers[0])
        self.told.output += int(numbers[1])
        self.told.cost += float(numbers[2]) if len(numbers) > 2 else 0.0
        self.told.cached += int(numbers[3]) if len(numbers) > 3 else 0

    def do_ask(self, text):
        question, *options = [part.strip() for part in text.split("|")]
        choices = [{"label": option, "description": ""} for option in options]
        asked = {"question": question, "header": "Question", "options": choices, "multiSelect": False}
        call = self.told.call("AskUserQuestion", {"questions": [asked]})
        self.told.returned(call, "Nobody answered yet.", failed=True)
        raise Finished(question)

    def do_done(self, text):
        self.told.say(text)
        raise Finished(text)

    def do_fail(self, text):
        raise Finished(text, failed=True)

    def do_exit(self, text):
        sys.exit(int(text))

    def put(self, call, path, content):
        before = self.current(path)
        os.makedirs(os.path.dirname(self.full(path)), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        result = {"filePath": self.full(path), "originalFile": before}
        self.told.returned(call, "The file %s has been updated." % path, result=result)

    def full(self, path):
        return os.path.join(self.told.directory, path)

    @staticmethod
    def current(path):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    @staticmethod
    def parts(text):
        """A path, and what follows in the next lines, or after a space in the same one."""
        first, newline, rest = text.partition("\n")
        if newline:
            return first.strip(), rest
        path, _, content = text.partition(" ")
        return path, content + "\n"


def parse(script):
    """Turns of actions, each a word, its text and its line."""
    turns, lines, number = [[]], script.splitlines(), 0
    while number < len(lines):
        line, start = lines[number].strip(), number + 1
        number += 1
        if not line or line.startswith("#"):
            continue
        here = HERE.search(line)
        if here:
            body = []
            while number < len(lines) and lines[number].strip() != here.group(1):
                body.append(lines[number] + "\n")
                number += 1
            if number == len(lines):
                raise ScriptProblem("line %d: no line %s ends its text" % (start, here.group(1)))
            number += 1
            line = line[: here.start()].rstrip()
            word, _, text = line.partition(" ")
            text = text.strip() + "\n" + "".join(body) if text.strip() else "".join(body).rstrip("\n")
        else:
            word, _, text = line.partition(" ")
            text = text.strip()
        if word == "turn":
            turns.append([])
        else:
            turns[-1].append((word, text, start))
    return turns


def script_in(prompt):
    """The script that a prompt has or names; None if it has none."""
    fenced = FENCE.search(prompt)
    if fenced:
        return fenced.group(1)
    rest = REST.search(prompt)
    if rest:
        return prompt[rest.end() :]
    named = FILE.search(prompt)
    if named:
        try:
            with open(named.group(1), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as problem:
            raise ScriptProblem("the script %s cannot be read: %s" % (named.group(1), problem)) from problem
    return None


def script_for(prompt):
    """The script of the repository whose pattern fits the prompt; None if none does."""
    try:
        names = sorted(name for name in os.listdir(SCRIPTS) if name.endswith(".script"))
    except OSError:
        return None
    for name in names:
        with open(os.path.join(SCRIPTS, name), encoding="utf-8", errors="replace") as file:
            script = file.read()
        when = WHEN.match(script)
        if when and re.search(when.group(1), prompt):
            return script
    return None


def without_script(told, prompt):
    """What it does when nobody told it what to do."""
    actions = Actions(told, prompt)
    told.say("I have no script for this. I write down what I was asked.")
    quoted = "".join("> %s\n" % line for line in prompt.strip().splitlines())
    actions.do_append("%s\n\n%s" % (NOTES, quoted))
    raise Finished("I wrote what I was asked into %s." % NOTES)


def next_turn(state, prompt, resumed):
    """The actions of this turn, and what to remember; None if there is no script, or nothing is left of it."""
    script, number = script_in(prompt), 0
    if script is None and resumed:
        script, number = remembered(state)
    if script is None or number >= len(parse(script)):
        script, number = script_for(prompt), 0
    if script is None:
        return None
    os.makedirs(os.path.dirname(state), exist_ok=True)
    with open(state, "w", encoding="utf-8") as file:
        json.dump({"script": script, "turn": number}, file)
    return parse(script)[number]


def remembered(state):
    """The script that it followed before, and the turn that comes next."""
    try:
        with open(state, encoding="utf-8") as file:
            known = json.load(file)
        return str(known["script"]), int(known["turn"]) + 1
    except (OSError, ValueError, KeyError, TypeError):
        return None, 0


def follow(told, prompt, actions):
    acting = Actions(told, prompt)
    for word, text, line in actions:
        try:
            acting.do(word, text)
        except (ScriptProblem, ValueError, IndexError, OSError) as problem:
            raise ScriptProblem("line %d: %s: %s" % (line, word, problem)) from problem
        time.sleep(min(acting.pace_s, MOST_PACE_S))
    raise Finished(told.last or "Done.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", required=True)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    told = Told(given.session, os.getcwd())
    told.begin()
    name = re.sub(r"[^A-Za-z0-9-]", "_", given.session)[:100]
    state = os.path.join(os.path.expanduser("~"), ".sandlot", "scripted", name + ".json")
    try:
        actions = next_turn(state, prompt, given.resume)
        if actions is None:
            without_script(told, prompt)
        follow(told, prompt, actions)
    except Finished as end:
        told.end(end.text, end.failed)
        return 1 if end.failed else 0
    except ScriptProblem as problem:
        told.end("The script cannot be followed: %s" % problem, True)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

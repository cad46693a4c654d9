"""A stand-in for `docker` that keeps its containers as files in `$FAKE_DOCKER`.

It knows what the launch script says to it, and can break in the middle of a launch as `$FAKE_BREAK` says: `ps`, `rm`,
`create` (dies when the container is created), `start` (the engine cannot start it), `answer` (dies when it runs). With
`late` a start that was under way comes through, and the container has ended, before `inspect` answers; with `stuck` a
container that was created before can never be started; with `hang` a start never begins. What has been started is in
the file `started`.

Each of its calls is a start of Python, to which an import of json or re would add as much again: containers are written
as Python does.
"""

import fcntl
import os
import sys
import time

FOLDER, BREAK = os.environ["FAKE_DOCKER"], os.environ.get("FAKE_BREAK")
DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
SWITCHES = {"--detach", "--privileged", "--all", "--quiet", "--no-trunc"}


def fail(words, code):
    print(words, file=sys.stderr)
    sys.exit(code)


def read():
    found = []
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".container"):
            with open(f"{FOLDER}/{name}") as file:
                found.append(eval(file.read()))
    return found


def write(container):
    fresh = f"{FOLDER}/{os.urandom(8).hex()}"
    with open(fresh, "w") as file:
        file.write(ascii(container))
    os.rename(fresh, f"{FOLDER}/{container['name']}.container")


def parse(words):
    options = []
    while words and words[0].startswith("-"):
        option = words.pop(0)
        options.append((option, None if option in SWITCHES else words.pop(0)))
    return options, words


def ps(words):
    if BREAK == "ps":
        fail(DOWN, 1)
    options, _ = parse(words)
    filters = [value.partition("=")[::2] for option, value in options if option == "--filter"]
    asked = {value for key, value in filters if key == "status"}
    for container in read():
        wanted = not asked or container["state"] in asked
        for key, value in filters:
            if key == "label":
                label, equals, text = value.partition("=")
                wanted = wanted and label in container["labels"]
                wanted = wanted and (not equals or container["labels"][label] == text)
            if key == "name":
                wanted = wanted and value == f"^/?{container['name']}$"
        if wanted:
            status = "Created" if container["state"] == "created" else "Up 5 minutes"
            line = dict(options)["--format"]
            for key, value in (("ID", container["id"]), ("Names", container["name"]), ("Status", status)):
                line = line.replace("{{." + key + "}}", value)
            begin, *labels = line.split('{{.Label "')
            for label in labels:
                key, _, text = label.partition('"}}')
                begin += container["labels"].get(key, "") + text
            print(begin)


def create(words):
    with open(f"{FOLDER}/runs", "ab") as runs:
        runs.write(b"\0".join(os.fsencode(word) for word in words) + b"\n\0\n")
    options, (image, *command) = parse(words)
    name = dict(options)["--name"]
    env = {}
    for value in (value for option, value in options if option == "--env"):
        key, equals, text = value.partition("=")
        if equals or key in os.environ:
            env[key] = text if equals else os.environ[key]
    labels = dict(value.partition("=")[::2] for option, value in options if option == "--label")
    if image == "nosuch":
        fail("docker: Error response from daemon: No such image: nosuch:latest.\nSee 'docker create --help'.", 125)
    if os.path.exists(f"{FOLDER}/{name}.container"):
        fail(f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use.', 125)
    time.sleep(0.03)  # a real engine takes longer; the wider the gap, the surer a lock that does not hold is found out
    container = {"id": os.urandom(32).hex(), "name": name, "state": "created", "labels": labels, "env": env}
    if BREAK == "stuck":
        container["late"] = True  # not one of those that were created before
    write(container | {"command": command})
    if BREAK == "create":
        fail("docker: error during connect: EOF.", 125)
    print(container["id"])


def start(container):
    if BREAK == "start":
        fail('Error response from daemon: unable to start: exec: "x": executable file not found in $PATH.', 1)
    with open(f"{FOLDER}/started", "a") as started:
        started.write(container["name"] + "\n")
    write(container | {"state": "running"})
    if BREAK == "answer":
        fail("error during connect: EOF.", 1)


def main():
    verb, *words = sys.argv[1:]
    if (verb, BREAK) == ("start", "hang"):
        time.sleep(60)
    with open(f"{FOLDER}/mutex", "w") as mutex:
        if verb != "create":
            fcntl.flock(mutex, fcntl.LOCK_EX)
        if verb == "ps":
            ps(words)
        elif verb == "create":
            create(words)
        elif verb == "inspect":
            (container,) = (c for c in read() if c["id"] == words[-1])
            if BREAK == "late":
                container["state"] = "exited"
                write(container)
            print(container["state"])
        elif verb == "start":
            (container,) = (c for c in read() if c["id"] == words[0])
            if BREAK == "stuck" and "late" not in container:
                fail("Error response from daemon: failed to start shim: mkdir /run/x: file exists: unknown", 1)
            start(container)
            print(words[0])
        elif verb == "rm":
            if BREAK == "rm":
                fail(DOWN, 1)
            (container,) = (c for c in read() if c["id"] == words[0])
            os.remove(f"{FOLDER}/{container['name']}.container")


main()

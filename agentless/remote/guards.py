"""The text that is written to a shell on a node, with guards that end commands nobody waits for any more.

A guard is a process on the node. It works without the controller, and without the link.
"""

from __future__ import annotations

import math
import shlex

from agentless.model.command import Command

GUARD_GRACE = 5.0
"""Seconds by which the node's guard ends a command later than the controller does: it is for when that is gone."""
PIPE_GRACE = 5
"""Seconds between SIGTERM and SIGKILL for the script of a pipe that was closed or broke: it may have to tidy up."""
_HAS_TERMINAL = "(: </dev/tty) || exit\n"
"""A script is never told of a hang-up before it had the terminal: then nothing is run."""

_LIMIT = """\
while read -r _al_a _al_b _al_c _al_d; do case $_al_a$_al_b in Maxprocesses) _al_p=$_al_c ;; esac; \
done </proc/$$/limits; while read -r _al_a _al_b _al_c; do case $_al_a$_al_b in Uid:0) _al_p= ;; esac; \
done </proc/$$/status; case $_al_p in *[!0-9]* | ???????*) _al_p= ;; esac
"""
"""How many processes the login may have, without one more: `ulimit` has another option for it in each shell. Nothing
for root, whom the kernel allows any number."""
_GREETING = """\
read -r _al_a _al_b _al_c _al_d _al_g _al_e </proc/$$/stat; [ "$_al_g" = $$ ] || exec setsid sh -c '\
printf "%s%s;" {mark} $$; printf "%s%s;" {mark} "$1" >&2; exec sh' sh "${{_al_p:-0}}"; \
printf '%s%s;' {mark} $$; printf '%s%s;' {mark} "${{_al_p:-0}}" >&2
"""
"""Says the process group of the shell, whatever an rc file has printed before. Not every SSH server gives a shell a
group of its own (OpenSSH does, dropbear does not); `setsid` does then."""

_PRELUDE = """\
exec 4>&2 2>/dev/null
_al_guard() { ( trap '[ "$!" = "$_al_w" ] || kill -9 "$!"; exit' TERM; eval "exec $1" & wait "$!" && kill -9 0 ) \
</dev/null >/dev/null 4>&- & _al_w=$!; }
_al_mark() { printf '%s' "$1"; printf '%s' "$1" >&4; }
_al_script() { ( _al_s=$1; set --; eval "$_al_s" ) 2>&4 4>&-; }
_al_run() { _al_mark "$2<0;"; _al_guard "sleep $1"; _al_script "$3"; _al_c=$?; kill "$_al_w"; \
_al_mark "$2>$_al_c;"; wait "$_al_w"; }
_al_leash() { _al_guard 'cat <&3'; _al_script "$1" 3<&-; _al_c=$?; kill "$_al_w"; exit "$_al_c"; }
_al_parent() { read -r _al_a _al_b _al_c _al_p _al_d </proc/$$/stat; }
_al_second() { sleep 1 & wait "$!"; }
_al_tether() { ( trap '' HUP TERM; trap 'kill -9 "$!"; exit' USR1; \
while _al_second && _al_parent && [ "$_al_p" = "$1" ]; do :; done; \
kill -s TERM 0; for _al_i in $2; do _al_second; done; kill -9 0 ) </dev/null >/dev/null 4>&- & _al_w=$!; }
_al_pipe() { trap : HUP TERM; _al_parent; _al_tether "$_al_p" "$3"; _al_mark "$1<0;"; _al_script "$2"; \
_al_c=$?; kill -s USR1 "$_al_w"; wait "$_al_w"; exit "$_al_c"; }
"""
"""The functions that a shell is given first.

A guard waits for a program to end, and then kills the group it is in, itself included. SIGTERM calls it off; it then
kills its program too, with SIGKILL, which a child that has not yet exec'd cannot lose. It touches only a child of its
own (`$!` is inherited). `_al_run` is guarded by time, `_al_leash` by the shell's stdin. `_al_pipe` has given its stdin
to the command, so it checks each second that the process which started the shell is still there."""


def greeting(mark: str, *, asks: bool) -> bytes:
    """Have a shell print its process group after this mark, as `MARK GROUP;` without the space.

    On its standard error it prints instead how many processes the login may have if it `asks`; 0: any number.
    """
    return (_LIMIT * asks + _GREETING.format(mark=mark)).encode()


def prelude() -> bytes:
    """Define the functions that the texts below call."""
    return _PRELUDE.encode()


def run(command: Command, number: str, *, is_last: bool) -> bytes:
    """Run a command, guarded by its time, between the marks `NUMBER<0;` and `NUMBER>EXIT CODE;`.

    The last one (`is_last`) has the shell's own stdin, and the shell ends with it.
    """
    seconds = str(math.ceil(command.timeout + GUARD_GRACE))
    return _line("_al_run", seconds, number, command.text()) + (b"; exit\n" if is_last else b" </dev/null\n")


def leash(command: Command) -> bytes:
    """Run a command that ends at the latest with the shell's stdin, and the shell with it."""
    return _line("_al_leash", command.text()) + b" 3<&0 </dev/null; exit\n"


def dialogue(command: Command) -> bytes:
    """Run a command that reads the shell's own stdin, unguarded, and end."""
    return _line("_al_script", command.text()) + b"; exit\n"


def pipe(command: Command, number: str) -> bytes:
    """After the mark `NUMBER<0;`, run a command that reads the shell's own stdin. It ends with the shell's parent."""
    return _line("_al_pipe", number, command.text(), "i " * PIPE_GRACE) + b"; exit\n"


def on_terminal(command: Command) -> str:
    """The script of a shell on a terminal, which has none of the functions."""
    return _HAS_TERMINAL + command.text()


def kill(group: int) -> bytes:
    """End a process group, from another shell."""
    return b"kill -s KILL -- -%d\n" % group


def end(group: int) -> bytes:
    """Likewise, but let it tidy up for `PIPE_GRACE` seconds."""
    gone = b"kill -s 0 -- -%d 2>/dev/null || exit; " % group
    return b"kill -s TERM -- -%d\n" % group + (gone + b"sleep 1\n") * PIPE_GRACE + kill(group)


def _line(*words: str) -> bytes:
    """The words of a shell command as bytes; what is no UTF-8 in an argument passes unchanged."""
    return shlex.join(words).encode("utf-8", "surrogateescape")

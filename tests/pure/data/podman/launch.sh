export TOKEN=***
# Lock, check, run: a GPU is handed out once, whoever else launches on this node at this moment.
# The lock is the kernel's, on the root folder, and goes with the processes that hold it.
exec 9< /
tries=0
# Tried in turns, since BusyBox's flock cannot wait for a limited time.
until flock -n 9; do
  code=$?
  if [ "$code" -ne 1 ]; then
    exit "$code"
  fi
  tries=$((tries + 1))
  if [ "$tries" -gt 200 ]; then
    exit 76
  fi
  sleep 0.1
done
# Nobody may be listening any more: then another try may have come meanwhile, and its task may be over and removed.
printf ' ' >&2 || exit 76
# What podman starts and leaves, like the `conmon` of a container, must not hold the lock.
unlocked() {
  "$@" 9<&-
}
live=$(unlocked sudo podman ps --no-trunc --filter label=agentless.task --filter status=created --filter status=initialized --filter status=running --filter status=paused --format '{{index .Labels "agentless.signature"}}|{{$state := .ListContainer.State}}{{$down := and (eq $state "created") (gt .StartedAt 0)}}{{.ID}}|{{.Names}}|{{if $down}}Down{{else if eq $state "initialized"}}Created{{else}}{{.Status}}{{end}}|{{if not $down}}{{index .Labels "agentless.gpus"}}{{end}}|{{if not $down}}{{index .Labels "agentless.exclusive"}}{{end}}|{{index .Labels "agentless.gpu_share"}}|{{index .Labels "agentless.gpu_memory"}}|{{index .Labels "agentless.task"}}|{{index .Labels "agentless.owner"}}') || exit 77
# A signature is this launch's alone: before it nobody could write it. A line that is part of a label begins with none.
own="
$(printf '%s\n' "$live" | sed -n 's/^1:57a0209d126c057cec9938d76704aea65f1aae20da8e55c0f2b1c2be71b49537|//p')"
live=$(printf '%s\n' "$live" | sed 's/^[^|]*|//')
if [ ! -r /proc/1/cmdline ]; then
  echo 'hidepid: processes of others cannot be seen' >&2
  exit 77
fi
# Whom the engine that was asked has listed. What a process says of itself may be anybody's words: it adds a claim, and
# takes none away.
listed="
$live"
is_listed() {
  case $listed in
    *"
$1|"*) ;;
    *) return 1 ;;
  esac
}
# Lines `/proc/PID/comm:NAME`. Only these programs are looked into: who asks a process that a driver has hung may hang as
# well. What is inside a container has a PID more than we have, one in each namespace that it is in.
programs=$(grep -Hsx -e sh -e conmon -e dockerd -e rootlesskit /proc/[0-9]*/comm)
# The `uid` of the process in a folder of /proc, and in how many namespaces it is (`depth`): no program is started for it.
status() {
  uid= depth=0
  while read -r key first rest; do
    case $key in
      Uid:) uid=$first ;;
      NSpid:) set -- $first $rest && depth=$# && return ;;
    esac
  done < "$1/status"
} 2> /dev/null
status /proc/self
ours=$depth
# Those who hold GPUs without Docker say so in an argument of a process that lives as long as they do.
holders() {
  set --
  for each in $programs; do
    case $each in
      *:sh | *:conmon) set -- "$@" "${each%comm:*}cmdline" ;;
    esac
  done
  set -- $(grep -ls agentless-claim= "$@" /dev/null)
  for each; do
    status "${each%/cmdline}"
    if [ "$depth" -eq "$ours" ]; then
      tr '\000\n' '\n ' < "$each" | sed -n 's/^agentless-claim=//p'
    fi
  done | sort -u
} 2> /dev/null
live="$live
$(holders)"
# Each user's podman knows his own containers alone; their `conmon` processes are there for everybody to see. A name says
# what its container claims: agentless-TASK.OWNER.ALONE.LIMIT.FLOOR.GPU.GPU
conmons() {
  for each in $programs; do
    case $each in
      *:conmon)
        status "${each%/comm:*}"
        if [ "$depth" -eq "$ours" ]; then
          tr '\000\n' '\n ' < "${each%comm:*}cmdline" | claimed
        fi ;;
    esac
  done
} 2> /dev/null
claimed() {
  id= name= before=
  while IFS= read -r word; do
    case $before in
      -c) id=${id:-$word} ;;
      -n) name=${name:-$word} ;;
    esac
    before=$word
  done
  case $name in
    agentless-*.*.*.*.*) ;;
    *) return ;;
  esac
  ! is_listed "$id" || return
  printf '%s\n' "$name" | {
    IFS=. read -r name owner alone limit floor gpus
    gpus=$(printf %s "$gpus" | tr . ,)
    printf '%s|%s|Up|%s|%s|%s|%s|%s|%s\n' "$id" "$name" "$gpus" "$alone" "$limit" "$floor" "${name#agentless-}" "$owner"
  }
}
live="$live
$(conmons)"
# Another Docker engine may be asked by its own users alone, but everybody can read the control groups of a process. One of
# those that a container is in says what it claims: agentless_claim.ALONE.LIMIT.FLOOR.OWNER.GPU.GPU, with the first digits
# of each GPU.
groups() {
  grep -hsm 1 'agentless_claim[^/]*/' /proc/[0-9]*/cgroup | sed -n 's|^.*agentless_claim\.\([^/]*\)/\(.*\)$|\1/\2|p' | sort -u | while read -r each; do
    id=$(printf '%s\n' "${each#*/}" | grep -oE '[0-9a-f]{64}' | head -n 1)
    [ -z "$id" ] || is_listed "$id" || { is_on_node "$id" && claimed_by_group "$each"; }
  done | sort -u
} 2> /dev/null
# Of those who are deeper than in a container of the node itself another node has to know.
is_on_node() {
  for member in $(grep -ls "$1" /proc/[0-9]*/cgroup); do
    status "${member%/cgroup}"
    [ "$depth" -gt $((ours + 1)) ] || return 0
  done
  return 1
}
claimed_by_group() {
  printf '%s\n' "${1%%/*}" | sed 's/\.slice$//' | {
    IFS=. read -r alone limit floor owner some
    gpus=
    case .$some. in *.8b4b9de2.* | *.all.*) gpus=$gpus,GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a ;; esac
    case .$some. in *.1c9f3c1e.* | *.all.*) gpus=$gpus,GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f ;; esac
    printf '%s||Up|%s|%s|%s|%s|container %.12s|%s\n' "$id" "$gpus" "$alone" "$limit" "$floor" "$id" "$(printf %s "$owner" | sed 's/__/@/')"
  }
}
live="$live
$(groups)"
# Whether the processes of others can be seen at all.
hidden() {
  [ -r /proc/1/cmdline ] || is_accepted all || echo 'unseen||'
}
is_accepted() {
  for one in ; do
    [ "$one" != all ] && [ "$one" != "$1" ] || return 0
  done
  return 1
}
# What a rootless engine knows of who holds what, and then a last line. Another user may have stopped it.
asked() {
  docker --host "unix://$1" ps --no-trunc --filter label=agentless.task --filter status=created --filter status=running --filter status=paused --filter status=restarting --format '{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}' 9<&- &
  asking=$! tries=0
  while kill -0 "$asking"; do
    tries=$((tries + 1))
    [ "$tries" -le 50 ] || kill -s KILL "$asking"
    sleep 0.1
  done
  wait "$asking" && echo asked
}
# What all rootless engines of the node itself know, as lines `live|…`; of those that we may not ask a line
# `unseen|USER|PID`. One of root's needs no asking: its containers are in control groups with a name.
rootless() {
  known=:
  # One in a PID namespace of its own shows no more than its parent.
  for each in $(printf '%s\n' "$programs" | grep -e ':dockerd$'; printf '%s\n' "$programs" | grep -e ':rootlesskit$'); do
    folder=${each%/comm:*}
    status "$folder"
    if [ "${uid:-0}" -eq 0 ] || [ "$depth" -ne "$ours" ]; then
      continue
    fi
    words=$(head -c 16384 "$folder/cmdline" | tr '\000\n' '\n ')
    case $words in *dockerd*) ;; *) continue ;; esac
    socket=$(printf '%s\n' "$words" | sed -n 's|^\(-H=*\|--host=\)*unix://||p' | head -n 1)
    socket=${socket:-/run/user/$uid/docker.sock}
    case $each/$known in
      */*":$uid $socket:"* | *:rootlesskit/*":$uid "*) continue ;;
    esac
    known="$known$uid $socket:"
    # The engine that was asked already is one of them.
    for own in  ; do
      [ "$own" != "unix://$socket" ] || continue 2
    done
    said=$(asked "$socket" | head -c 262144)
    case $said in
      asked | *'
asked')
        printf '%s\n' "$said" | sed '$d; s/^/live|/'
        continue ;;
    esac
    user=$(getent passwd "$uid" || grep "^[^:]*:[^:]*:$uid:" /etc/passwd)
    user=${user%%:*}
    is_accepted "${user:-$uid}" || printf 'unseen|%s|%s\n' "${user:-$uid}" "${folder#/proc/}"
  done
} 2> /dev/null
rootless=$(hidden; rootless)
case $rootless in
  *'unseen|'*) printf '%s\n' "$rootless" | grep '^unseen|'; exit 81 ;;
  ?*) live="$live
$(printf '%s\n' "$rootless" | while IFS='|' read -r _ id name claim; do
    # Whatever name it has, it is not the container of this task.
    is_listed "$id" || printf '%s||%s\n' "$id" "$claim"
  done)" ;;
esac
# What podman says goes to this shell: one that warns of something when nobody listens any more ends in the middle.
begin() {
  # When memory ran out, conmon leaves a file in its folder, and some podmans look for that in the container's. Where we
  # may not go there, no folder is to have it.
  folder=$(unlocked sudo podman inspect --format '{{.StaticDir}}' "$1") && said=$(
    cd "$folder" 2> /dev/null || cd /proc || exit
    unlocked sudo podman start "$1" 2>&1
  )
  answer "$?"
}
answer() {
  if [ "$1" -eq 0 ]; then
    printf '%s\n' "$said"
  else
    printf '%s\n' "$said" >&2
  fi
  return "$1"
}
held=
told=
unstarted=
renamed=
while IFS='|' read -r id name status _; do
  case $status in
    '') ;;
    # The lock is ours, so the launch that created it has died before the start.
    Created) [ -n "$unstarted" ] && [ "$name" != agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f ] || unstarted=$id ;;
    # Somebody may have renamed it, or copied its labels.
    *)
      [ "$name" != agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f ] || { echo "$id"; exit 0; }
      renamed=$id ;;
  esac
done <<OWN
$own
OWN
if [ -n "$renamed" ] && [ -z "$unstarted" ]; then
  echo "$renamed"
  exit 0
fi
seen=
while IFS='|' read -r id name status gpus alone limit floor task owner; do
  seen=1
  case $own in
    *"
$id|"*) continue ;;
  esac
  # Where nothing lives there is one line all the same, an empty one.
  if [ -n "$alone" ] && [ -n "$id" ]; then
    printf 'held||%s|%s\n' "$task" "$owner"
    held=1
  fi
  for gpu in GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f; do
    case ",$gpus," in
      *",$gpu,"*)
        case $told in
          *" $id|$gpu "*) ;;
          *) printf 'held|%s|%s|%s\n' "$gpu" "$task" "$owner" ;;
        esac
        told="$told $id|$gpu " held=1 ;;
    esac
  done
done <<LIVE
$live
LIVE
# Some shells want room on a disk for this.
[ -n "$seen" ] || exit 77
if [ -n "$held" ]; then
  exit 75
fi
# It has failed for certain only when nothing of that name is left: an engine that could not start a container leaves it
# behind as created, with its claim; one that broke off may have started it.
clear_up() {
  left=$(unlocked sudo podman ps --all --no-trunc --filter name='^/?agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f$' --filter label=agentless.signature=1:57a0209d126c057cec9938d76704aea65f1aae20da8e55c0f2b1c2be71b49537 --format '{{$state := .ListContainer.State}}{{$down := and (eq $state "created") (gt .StartedAt 0)}}{{.ID}}|{{.Names}}|{{if $down}}Down{{else if eq $state "initialized"}}Created{{else}}{{.Status}}{{end}}|{{if not $down}}{{index .Labels "agentless.gpus"}}{{end}}|{{if not $down}}{{index .Labels "agentless.exclusive"}}{{end}}|{{index .Labels "agentless.gpu_share"}}|{{index .Labels "agentless.gpu_memory"}}|{{index .Labels "agentless.task"}}|{{index .Labels "agentless.owner"}}') || exit 78
  case $left in
    '') ;;
    *'|Created|'*) unlocked sudo podman rm --force --time 0 "${left%%|*}" > /dev/null || exit 78 ;;
    *) exit 78 ;;
  esac
}
if [ -n "$unstarted" ]; then
  # That launch may have asked for the start before it died. The engine describes a container only when no start of it
  # is under way, and to start one that has run already would run it twice.
  state=$(unlocked sudo podman inspect --format '{{if not .State.StartedAt.IsZero}}begun{{else if eq .State.Status "initialized"}}created{{else}}{{.State.Status}}{{end}}' "$unstarted") || exit 78
  if [ "$state" != created ]; then
    echo "$unstarted"
    exit 0
  fi
  # Of a start in which the engine was killed enough may be left over that this container never starts: another will.
  begin "$unstarted" && exit 0
  clear_up
fi
if said=$(unlocked sudo --preserve-env=TOKEN podman create --pull never --name agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f --label agentless.task=t3 --label agentless.owner=me@here --label agentless.gpus=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a,GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f --label agentless.controller=c1 --label agentless.share= --label agentless.exclusive= --label agentless.cores=2 --label agentless.memory= --label agentless.limit= --label agentless.numa= --label agentless.gpu_share= --label agentless.gpu_memory= --label 'agentless.spec={"target":"node1::0,1","batch":"t3","created_at":1799999900.0,"gpus":[0,1],"spec":{"command":["python","train.py"],"image":"busybox","cores":2.0,"env":{},"secret_env":["TOKEN"],"mounts":[],"uploads":[],"outputs":[],"volumes":[],"privileged":false,"stop_grace":10.0,"share":false,"labels":{},"parameters":{},"needs":{"gpus":2,"gpu_types":[],"nodes":["node1"],"exclude":[],"on":{},"indices":[0,1],"exclusive":false,"gpu_share":1},"terms":{"priority":0,"signal":"TERM","retries":0,"retry_on":["failed","oom"],"backoff":10.0}},"version":2}' --label agentless.signature=1:57a0209d126c057cec9938d76704aea65f1aae20da8e55c0f2b1c2be71b49537 --device nvidia.com/gpu=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a --device nvidia.com/gpu=GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f --env NVIDIA_VISIBLE_DEVICES=void --log-driver k8s-file --pids-limit -1 --env AGENTLESS_TASK_ID=t3 --env AGENTLESS_NODE=node1 --env AGENTLESS_GPUS=0,1 --env TOKEN --cpus 2 --stop-timeout 10 busybox python train.py 2>&1); then
  # Its last line is the container's id.
  begin "${said##*
}"
else
  answer "$?"
fi
code=$?
if [ "$code" -ne 0 ]; then
  clear_up
fi
exit "$code"

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
live=$(unlocked sudo podman ps --no-trunc --filter label=agentless.task --filter status=created --filter status=initialized --filter status=running --filter status=paused --format '{{$state := .ListContainer.State}}{{$down := and (eq $state "created") (gt .StartedAt 0)}}{{.ID}}|{{.Names}}|{{if $down}}Down{{else if eq $state "initialized"}}Created{{else}}{{.Status}}{{end}}|{{if not $down}}{{index .Labels "agentless.gpus"}}{{end}}|{{if not $down}}{{index .Labels "agentless.exclusive"}}{{end}}|{{index .Labels "agentless.gpu_share"}}|{{index .Labels "agentless.gpu_memory"}}|{{index .Labels "agentless.task"}}|{{index .Labels "agentless.owner"}}') || exit 77
# Those who hold GPUs without Docker say so in an argument of a process that lives as long as they do. Only shells and
# conmon are looked into (who asks a process that a driver has hung may hang as well), and none inside a container, which
# has a PID more than we have: one in each namespace it is in.
holders() {
  set --
  for each in $(grep -lsx -e sh -e conmon /proc/[0-9]*/comm); do
    set -- "$@" "${each%comm}cmdline"
  done
  set -- $(grep -ls agentless-claim= "$@" /dev/null)
  [ "$#" -gt 0 ] || return
  ours=$(sed -n 's/^NSpid://p' /proc/self/status | wc -w)
  for each; do
    theirs=$(sed -n 's/^NSpid://p' "${each%cmdline}status" | wc -w)
    if [ "$theirs" -eq "$ours" ]; then
      tr '\000\n' '\n ' < "$each" | sed -n 's/^agentless-claim=//p'
    fi
  done | sort -u
} 2> /dev/null
live="$live
$(holders)"
# Each user's podman knows his own containers alone; their `conmon` processes are there for everybody to see. A name says
# what its container claims: agentless-TASK.OWNER.ALONE.LIMIT.FLOOR.GPU.GPU
conmons() {
  if [ ! -r /proc/1/cmdline ]; then
    echo 'hidepid: processes of others cannot be seen' >&2
    return 1
  fi
  ours=$(sed -n 's/^NSpid://p' /proc/self/status | wc -w)
  for file in $(grep -lsx conmon /proc/[0-9]*/comm); do
    theirs=$(sed -n 's/^NSpid://p' "${file%comm}status" 2> /dev/null | wc -w)
    if [ "$theirs" -eq "$ours" ]; then
      tr '\000\n' '\n ' 2> /dev/null < "${file%comm}cmdline" | claimed
    fi
  done
  return 0
}
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
  case $live in
    *"$id"*) return ;;
  esac
  printf '%s\n' "$name" | {
    IFS=. read -r name owner alone limit floor gpus
    gpus=$(printf %s "$gpus" | tr . ,)
    printf '%s|%s|Up|%s|%s|%s|%s|%s|%s\n' "$id" "$name" "$gpus" "$alone" "$limit" "$floor" "${name#agentless-}" "$owner"
  }
}
others=$(conmons) || exit 77
live="$live
$others"
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
unstarted=
seen=
while IFS='|' read -r id name status gpus alone limit floor task owner; do
  seen=1
  # By its label too: a container may have been renamed.
  if [ "$name" = agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f ] || [ "$task" = t3 ]; then
    case $status in
      # The lock is ours, so the launch that created it has died before the start.
      Created) unstarted=$id ;;
      *) echo "$id"; exit 0 ;;
    esac
    continue
  fi
  # Where nothing lives there is one line all the same, an empty one.
  if [ -n "$alone" ] && [ -n "$id" ]; then
    printf 'held||%s|%s\n' "$task" "$owner"
    held=1
  fi
  for gpu in GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f; do
    case ",$gpus," in
      *",$gpu,"*)
        printf 'held|%s|%s|%s\n' "$gpu" "$task" "$owner"; held=1 ;;
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
  left=$(unlocked sudo podman ps --all --no-trunc --filter name='^/?agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f$' --format '{{$state := .ListContainer.State}}{{$down := and (eq $state "created") (gt .StartedAt 0)}}{{.ID}}|{{.Names}}|{{if $down}}Down{{else if eq $state "initialized"}}Created{{else}}{{.Status}}{{end}}|{{if not $down}}{{index .Labels "agentless.gpus"}}{{end}}|{{if not $down}}{{index .Labels "agentless.exclusive"}}{{end}}|{{index .Labels "agentless.gpu_share"}}|{{index .Labels "agentless.gpu_memory"}}|{{index .Labels "agentless.task"}}|{{index .Labels "agentless.owner"}}') || exit 78
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
if said=$(unlocked sudo --preserve-env=TOKEN podman create --pull never --name agentless-t3.me_here....GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a.GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f --label agentless.task=t3 --label agentless.owner=me@here --label agentless.gpus=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a,GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f --label agentless.controller=c1 --label agentless.cores=2 --label 'agentless.spec={"target":"node1::0,1","batch":"t3","created_at":1799999900.0,"gpus":[0,1],"spec":{"command":["python","train.py"],"image":"busybox","cores":2.0,"env":{},"secret_env":["TOKEN"],"mounts":[],"uploads":[],"outputs":[],"volumes":[],"privileged":false,"stop_grace":10.0,"share":false,"labels":{},"parameters":{},"needs":{"gpus":2,"gpu_types":[],"nodes":["node1"],"exclude":[],"on":{},"indices":[0,1],"exclusive":false,"gpu_share":1},"terms":{"priority":0,"signal":"TERM","retries":0,"retry_on":["failed","oom"],"backoff":10.0}},"version":2}' --device nvidia.com/gpu=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a --device nvidia.com/gpu=GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f --log-driver k8s-file --pids-limit -1 --env AGENTLESS_TASK_ID=t3 --env AGENTLESS_NODE=node1 --env AGENTLESS_GPUS=0,1 --env TOKEN --cpus 2 --stop-timeout 10 busybox python train.py 2>&1); then
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

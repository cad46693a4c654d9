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
live=$(docker ps --no-trunc --filter label=agentless.task --filter status=created --filter status=running --filter status=paused --filter status=restarting --format '{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}') || exit 77
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
held=
unstarted=
seen=
while IFS='|' read -r id name status gpus alone limit floor task owner; do
  seen=1
  # By its label too: a container may have been renamed.
  if [ "$name" = agentless-t1 ] || [ "$task" = t1 ]; then
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
  for gpu in ; do
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
  left=$(docker ps --all --no-trunc --filter name='^/?agentless-t1$' --format '{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}') || exit 78
  case $left in
    '') ;;
    *'|Created|'*) docker rm "${left%%|*}" > /dev/null || exit 78 ;;
    *) exit 78 ;;
  esac
}
if [ -n "$unstarted" ]; then
  # That launch may have asked for the start before it died. The engine describes a container only when no start of it
  # is under way, and to start one that has run already would run it twice.
  state=$(docker inspect --format '{{.State.Status}}' "$unstarted") || exit 78
  if [ "$state" != created ]; then
    echo "$unstarted"
    exit 0
  fi
  # Of a start in which the engine was killed enough may be left over that this container never starts: another will.
  docker start "$unstarted" && exit 0
  clear_up
fi
docker run --detach --pull never --name agentless-t1 --label agentless.task=t1 --label agentless.owner=me@here --label agentless.gpus= --label agentless.controller=c1 --label 'agentless.spec={"target":"node1","batch":"t1","created_at":1799999900.0,"gpus":[],"spec":{"command":["true"],"image":"busybox","env":{},"secret_env":[],"mounts":[],"uploads":[],"outputs":[],"volumes":[],"privileged":false,"stop_grace":10.0,"share":false,"labels":{},"parameters":{},"needs":{"gpus":0,"gpu_types":[],"nodes":["node1"],"exclude":[],"on":{},"indices":[],"exclusive":false,"gpu_share":1},"terms":{"priority":0,"signal":"TERM","retries":0,"retry_on":["failed","oom"],"backoff":10.0}},"version":2}' --env NVIDIA_VISIBLE_DEVICES=void --env AGENTLESS_TASK_ID=t1 --env AGENTLESS_NODE=node1 --env AGENTLESS_GPUS= --stop-timeout 10 busybox true
code=$?
if [ "$code" -ne 0 ]; then
  clear_up
fi
exit "$code"

# Lock, check, create; start without the lock: a GPU is handed out once, whoever else launches here at this moment.

# The lock is the kernel's, on the root folder, and goes with the processes that hold it.
exec 9< /
flock -n 9
code=$?
if [ "$code" -eq 1 ]; then
  # BusyBox's flock cannot wait for a limited time.
  flock 9 &
  waiter=$!
  (
    trap '[ "$!" = "$waiter" ] || kill "$!"; exit' TERM
    sleep 20 &
    wait "$!" && kill "$waiter"
  ) > /dev/null 2>&1 9<&- &
  wait "$waiter"
  code=$?
  kill "$!"
  [ "$code" -le 128 ] || code=76
fi 2> /dev/null
[ "$code" -eq 0 ] || exit "$code"
# Nobody may be listening any more: then another try may have come meanwhile, and its task may be over and removed.
printf ' ' >&2 || exit 76
# Lines `/proc/PID/comm:NAME`. Only these programs are looked into: who asks a process that a driver has hung may hang as
# well. What is inside a container has a PID more than we have, one in each namespace that it is in.
programs() {
  grep -Hsx -e sh -e dockerd -e rootlesskit /proc/[0-9]*/comm
  [ "$?" -le 2 ]
}
# Who cannot look does not know who holds what. A shell that may have no further process has said so.
programs=$(programs) || exit 77
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
# Those who hold GPUs without an engine that can be asked say so in an argument of a process that lives as long as they
# do: a task of systemd, and what starts a container, until it runs.
holders() {
  set --
  for each in $programs; do
    case $each in *:sh) set -- "$@" "${each%comm:*}cmdline" ;; esac
  done
  found=$(grep -ls agentless-claim= "$@" /dev/null)
  set --
  for each in $found; do
    status "${each%/cmdline}"
    [ "$depth" -ne "$ours" ] || set -- "$@" "$each"
  done
  [ "$#" -eq 0 ] || cat "$@" | tr '\000\n' '\n ' | sed -n -e 's/^agentless-claim=//p' -e '/^agentless-start=/p' | sort -u
} 2> /dev/null
holders=$(holders) || {
  echo 'cannot list which tasks hold GPUs' >&2
  exit 77
}
marked=$(docker ps --no-trunc --filter label=agentless.task --filter status=created --filter status=running --filter status=paused --filter status=restarting --format '{{.Label "agentless.signature"}}|{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}') || exit 77
live=
[ -z "$marked" ] || live=$(printf '%s\n' "$marked" | sed 's/^[^|]*|//') || exit 77
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
[ -z "$holders" ] || live="$live
$(printf '%s\n' "$holders" | sed '/^agentless-start=/d')" || exit 77
running=$(grep -Hsm 1 -e '^conmon$' -e 'agentless_claim[^/]*/' /proc/[0-9]*/comm /proc/[0-9]*/cgroup)
# Each user's podman knows his own containers alone; their `conmon` processes are there for everybody to see. A name says
# what its container claims: agentless-TASK.OWNER.ALONE.LIMIT.FLOOR.GPU.GPU
conmons() {
  for each in $running; do
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
# of each GPU, and of part of one GPU_PART behind it.
groups() {
  # The container is the group right below it.
  printf '%s\n' "$running" | sed -n -e 's|^.*agentless_claim\.\([^/]*\)/\([^/]*\).*$|\1/\2|' \
    -e 's|^\([^/]*\)/\(.*[^0-9a-f]\)\{0,1\}\([0-9a-f]\{64\}\).*$|\3 \1|p' | sort -u | while read -r id claim; do
    is_listed "$id" || { is_on_node "$id" && claimed_by_group "$claim"; }
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
  printf '%s\n' "$1" | sed 's/\.slice$//' | {
    IFS=. read -r alone limit floor owner some
    gpus=
    set -f
    IFS=.
    for one in $some; do
      :
      case $one in
        8b4b9de2 | all) gpus=$gpus,GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a ;;
        8b4b9de2_*) gpus=$gpus,GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a_${one#*_} ;;
      esac
    done
    unset IFS
    printf '%s||Up|%s|%s|%s|%s|container %.12s|%s\n' "$id" "$gpus" "$alone" "$limit" "$floor" "$id" "$(printf %s "$owner" | sed 's/__/@/')"
  }
}
case $running in
  */cgroup:*) live="$live
$(groups)" ;;
esac
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
    for own in  "${DOCKER_HOST:-}"; do
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
claim() {
  alone=$1 most=$2 own_floor=$3 total=$4 wanted=$5 own=$6 said= told= sharers=
  set -f
  IFS='
'
  for line in $live; do
    IFS='|'
    set -- $line
    case $own in
      *"
$1
"*) continue ;;
    esac
    # Where nothing lives there is one line all the same, an empty one.
    if [ -n "$alone$5" ] && [ -n "$1" ]; then
      case $told in
        *" $1| "*) ;;
        *) hold "held||$8|$9" ;;
      esac
      told="$told $1| "
    fi
    IFS=' '
    for gpu in $wanted; do
      whole=${gpu%%_*} parts=
      case ",$4," in
        *",${whole}_"*) parts=1 ;;
        *",$whole,"*) ;;
        *) continue ;;
      esac
      # Who shares says with how many, and how much memory is its own; anybody else has it alone.
      limit=$6 floor=$7
      [ "$most" -gt 1 ] || floor=
      # Nobody shares a whole GPU with who has a part of it.
      case $parts$gpu in
        1*_*)
          case ",$4," in
            *",$gpu,"*) ;;
            *)
              divided_anew "$4" || continue
              floor= ;;
          esac ;;
        1* | *_*) floor= ;;
      esac
      case $limit in '' | 0* | *[!0-9]* | ????*) floor= ;; esac
      case $floor in
        '' | 0* | *[!0-9]* | ????????????????*)
          case $told in
            *" $1|$gpu "*) ;;
            *) hold_gpu "$4" "$8|$9" ;;
          esac
          told="$told $1|$gpu " ;;
        *)
          case $told in
            *" $1|$limit|$floor|$gpu "*) ;;
            *) sharers="$sharers $limit|$floor|$gpu" ;;
          esac
          told="$told $1|$limit|$floor|$gpu " ;;
      esac
    done
  done
  IFS=' '
  for gpu in $wanted; do
    count=0 least=$most sum=$own_floor
    IFS=' '
    for sharer in $sharers; do
      IFS='|'
      set -- $sharer
      if [ "$3" = "$gpu" ]; then
        count=$((count + 1)) sum=$((sum + $2))
        [ "$least" -le "$1" ] || least=$1
      fi
    done
    if [ "$count" -gt 0 ] && { [ "$count" -ge "$least" ] || [ "$sum" -gt "$total" ]; }; then
      hold "full|$gpu|$count"
    fi
  done
  unset IFS
  set +f
  [ -z "$said" ]
}
# Whether the other has a partition of an AMD card from when it was divided in another way than for this one: AMD-MODE3-ID,
# of which a control group has the first letters. What it would get is not known then.
divided_anew() {
  case $gpu in *_AMD-*) ;; *) return 1 ;; esac
  mode=${gpu#*_AMD-}
  mode=${mode%%[0-9]*} other=
  IFS=,
  for part in $1; do
    case $part in
      "${whole}_AMD-$mode"[0-9]* | "${whole}_$mode"[0-9]*) ;;
      "${whole}_"*) other=yes ;;
    esac
  done
  IFS=' '
  [ -n "$other" ]
}
# Of a whole GPU that was wanted, each part that the other has.
hold_gpu() {
  before=$said
  IFS=,
  for part in $1; do
    case $part in "$gpu"_?*) hold "held|$part|$2" ;; esac
  done
  IFS=' '
  [ "$said" != "$before" ] || hold "held|$gpu|$2"
}
hold() {
  said="${said:+$said
}$1"
}
answer() {
  # What a launch is refused for is for a program, what an engine complains of for people.
  case $1 in
    0 | 75 | 8?) printf '%s\n' "$2" ;;
    *) printf '%s\n' "$2" >&2 ;;
  esac
  trap - EXIT
  exit "$1"
}
# A launch has failed for certain only when nothing of that name is left: an engine that could not start a container leaves
# it behind as created, with its claim; one that broke off may be about to start it, or have done so.
clear_up() {
  left=$(docker ps --all --no-trunc --filter "name=^/?$name\$" --filter "label=agentless.signature=$signature" --format '{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}') || return
  left=${left%%|*}
  [ -z "$left" ] || {
    [ "$(docker inspect --format '{{.State.Status}}' "$left")" = created ] && docker rm "$left" > /dev/null
  }
}
create_1() {
  docker create --pull never --name agentless-t2 --label agentless.task=t2 --label agentless.owner=me@here --label agentless.gpus=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a --label agentless.controller=c1 --label agentless.share= --label agentless.exclusive= --label agentless.cores= --label agentless.memory= --label agentless.limit= --label agentless.numa= --label agentless.gpu_share= --label agentless.gpu_memory= --label 'agentless.spec={"target":"node1::0","batch":"t2","created_at":1799999900.0,"gpus":[0],"spec":{"command":["sh","-c","echo '"'"'it'"'"''"'"'s'"'"' \"$HOME\"\nexit 3"],"image":"busybox","env":{},"secret_env":[],"mounts":[],"uploads":[],"outputs":[],"volumes":[],"privileged":false,"stop_grace":10.0,"share":false,"labels":{},"parameters":{},"needs":{"gpus":1,"gpu_types":[],"nodes":["node1"],"exclude":[],"on":{},"indices":[0],"exclusive":false,"gpu_share":1},"terms":{"priority":0,"signal":"TERM","retries":0,"retry_on":["failed","oom"],"backoff":10.0,"snapshot_on_stop":0,"requires":[],"preemptible":false,"on_preempt":"requeue"},"ports":[],"public_keys":[],"no_ssh":false},"version":2}' --label agentless.signature=1:1cc17c4bea11b01b037c1cba4bf161da52686e0634a3c9f86e32fb1b690f049d --gpus '"device=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a"' --env NVIDIA_VISIBLE_DEVICES=GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a --env AMD_VISIBLE_DEVICES=none --env AGENTLESS_TASK_ID=t2 --env AGENTLESS_NODE=node1 --env AGENTLESS_GPUS=0 --env AGENTLESS_LOCAL_TEMP=/tmp --env AGENTLESS_SHARED= --stop-timeout 10 busybox sh -c 'echo '"'"'it'"'"''"'"'s'"'"' "$HOME"
exit 3'
}
# Create launch `number`, and become what starts it.
create() {
  said=$("create_$number" 2>&1)
  code=$?
  find_id
  if [ "$code" -eq 79 ] || [ "$code" -eq 80 ]; then
    answer "$code" "$said"
  elif [ "$code" -eq 0 ] && [ -n "$id" ]; then
    start "$id" ''
  elif ! clear_up || [ "$code" -gt 127 ]; then
    answer 78 "$said"
  else
    answer 70 "$said"
  fi
}
# The line that is the container's id: the client may warn of something before it and after it.
find_id() {
  id=
  set -f
  IFS='
'
  for line in $said; do
    case $line in
      *[!0-9a-f]*) ;;
      *) [ "${#line}" -ne 64 ] || id=$line ;;
    esac
  done
  unset IFS
  set +f
}
# Become what starts a container; a second word says that somebody may have tried before. A member of a gang is `held`
# until all others have been created, too.
start() {
  if [ -n "$held" ]; then
    answer 0 "$1"
    exit
  fi
  exec /bin/sh -c 'exec 9<&-
number=$2 name=$3 signature=${1#agentless-start=} id=$4 again=$5
answer() {
  # What a launch is refused for is for a program, what an engine complains of for people.
  case $1 in
    0 | 75 | 8?) printf '"'"'%s\n'"'"' "$2" ;;
    *) printf '"'"'%s\n'"'"' "$2" >&2 ;;
  esac
  trap - EXIT
  exit "$1"
}
# A launch has failed for certain only when nothing of that name is left: an engine that could not start a container leaves
# it behind as created, with its claim; one that broke off may be about to start it, or have done so.
clear_up() {
  left=$(docker ps --all --no-trunc --filter "name=^/?$name\$" --filter "label=agentless.signature=$signature" --format '"'"'{{.ID}}|{{.Names}}|{{.Status}}|{{.Label "agentless.gpus"}}|{{.Label "agentless.exclusive"}}|{{.Label "agentless.gpu_share"}}|{{.Label "agentless.gpu_memory"}}|{{.Label "agentless.task"}}|{{.Label "agentless.owner"}}'"'"') || return
  left=${left%%|*}
  [ -z "$left" ] || {
    [ "$(docker inspect --format '"'"'{{.State.Status}}'"'"' "$left")" = created ] && docker rm "$left" > /dev/null
  }
}
begin() {
  docker start "$1"
}
state=created said=
# A launch that died may have asked for the start before that: the engine describes a container only when no start of it
# is under way, and to start one that has run already would run it twice.
if [ -n "$again" ] && ! state=$(docker inspect --format '"'"'{{.State.Status}}'"'"' "$id"); then
  answer 78 '"'"''"'"'
elif [ "$state" != created ] || said=$(begin "$id" 2>&1); then
  answer 0 "$id"
# Of a start in which the engine was killed enough may be left over that this container never starts: the next launch
# will create another.
elif clear_up && [ -z "$again" ]; then
  answer 70 "$said"
else
  answer 78 "$said"
fi' "agentless-claim=$1||Up|$claimed" "agentless-start=$signature" "$number" "$name" "$1" "$2"
}
# Another launch of this task is starting it, without the lock.
await() {
  exec 9<&-
  tries=0
  while is_starting; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || break
    sleep 0.2
    programs=$(programs)
    holders=$(holders)
  done
  state=$(docker inspect --format '{{.State.Status}}' "$unstarted")
  case $state in
    created | '') answer 78 '' ;;
    *) answer 0 "$unstarted" ;;
  esac
}
is_starting() {
  case $holders in
    *"agentless-start=$signature"*) ;;
    *) return 1 ;;
  esac
}
# What this launch has on the node already: `own` are the ids, of which one lives or was never started.
find_own() {
  alive= unstarted= called= own='
'
  case "
$marked" in
    *"
$signature|"*) ;;
    *) return ;;
  esac
  set -f
  IFS='
'
  for line in $marked; do
    case $line in
      "$signature|"*) ;;
      *) continue ;;
    esac
    IFS='|'
    set -- $line
    own="$own$2
"
    # Somebody may have renamed it, or copied its labels.
    case $4 in
      Created) [ -n "$unstarted" ] && [ "$3" != "$name" ] || unstarted=$2 ;;
      *) [ -n "$alive" ] && [ "$3" != "$name" ] || alive=$2 called=$3 ;;
    esac
  done
  unset IFS
  set +f
  [ -z "$unstarted" ] || [ "$called" = "$name" ] || alive=
}
launch() {
  number=$1 name=$2 signature=$3 claimed=$9
  find_own
  if [ -n "$alive" ]; then
    answer 0 "$alive"
  elif [ -n "$unstarted" ] && is_starting; then
    await &
  elif ! claim "$4" "$5" "$6" "$7" "$8" "$own"; then
    answer 75 "$said"
  else
    # One that is there was created by a launch that has died, or for a member of a gang, which starts now.
    if [ -n "$unstarted" ]; then start "$unstarted" again & else create & fi
    # Those behind it in this script have to see it.
    live="$live
$name||Up|$claimed"
  fi
}
# From here on a shell that ends in the middle, as when it may have no further process, says nothing about what it began.
trap 'exec 9<&-; wait; exit 78' EXIT
held=''
launch 1 agentless-t2 1:1cc17c4bea11b01b037c1cba4bf161da52686e0634a3c9f86e32fb1b690f049d '' 1 0 0 GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a 'GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a||||t2|me@here'
exec 9<&-
wait "$!"
code=$?
trap - EXIT
case $code in 0 | 70 | 79 | 80) exit "$code" ;; *) exit 78 ;; esac


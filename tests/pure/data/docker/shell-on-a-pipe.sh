begin() {
  sudo docker exec "$@" c1 sh -c '
    printf "%s;" "$1"
    export AGENTLESS_TERMINAL="$$.$1"
    shift
    for variable; do
      shift
      [ "$variable" != -- ] || break
      export "$variable"
    done
    exec "$@"' sh m4rk 'A=it'"'"'s' -- echo 'it'"'"'s'
}
hang_up() {
  trap '' HUP TERM PIPE
  sudo docker exec c1 sh -c 'signal=HUP seen=
for second in 1 2 3 4; do
  found= sessions=
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    read -r stat <"$folder/stat" || continue
    set -- ${stat##*) }
    sessions="$sessions $pid/$4/"
    # It leads its session. Others are not looked into: who asks a process that a driver has hung may hang as well.
    if [ "$4" = "$pid" ] && [ "$pid" -ne 1 ] && grep -qs "AGENTLESS_TERMINAL=$pid[.]$0" "$folder/environ"; then
      found=$pid
    fi
  done
  if [ -n "$found" ]; then
    # A command may be a line of shell: what that has started hears of it as well. What does not want to, stays.
    [ "$signal" = KILL ] || for each in $sessions; do
      case $each in */"$found"/) kill -s HUP "${each%%/*}" ;; esac
    done
    kill -s "$signal" "$found"
    seen=yes
  elif [ -n "$seen" ]; then
    exit 0
  fi
  [ "$second" -lt 3 ] || signal=KILL
  sleep 1
done
exit 0' m4rk </dev/null >/dev/null 2>&1
}
trap 'hang_up; exit 129' HUP TERM PIPE
# In the background, since a shell hears of no signal while a program in front of it runs; it has no input there.
exec 3<&0
begin --interactive <&3 3<&- &
wait "$!"
code=$?
# Nobody reads its output any more, so that the client has ended and the program has not.
[ "$code" -ne 141 ] || hang_up
exit "$code"


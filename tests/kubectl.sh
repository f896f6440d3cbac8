#!/usr/bin/env bash
# Runs the commands that people use with the installed kubectl against the sandbox and checks what they
# did. One line per check; the last line says how many passed and failed, and the exit code agrees.
#
#   tests/kubectl.sh [path of windlass-sandbox [path of windlass]]
#
# With the second path the controllers are that daemon, in a process of its own; else the built-in ones.
# Everything is on the loopback interface, in a temporary directory, and gone at the end.
set -euo pipefail

sandbox=${1:-target/debug/windlass-sandbox}
daemon=${2:-}
work=$(mktemp -d)
pids=()
passed=0
failed=0

finish() {
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
  done
  for pid in "${pids[@]}"; do
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT

if ! command -v kubectl >/dev/null; then
  echo "kubectl is not installed" >&2
  exit 1
fi
if [[ ! -x $sandbox ]]; then
  echo "$sandbox is not there: cargo build --bin windlass-sandbox" >&2
  exit 1
fi

export KUBECONFIG=$work/kubeconfig
export KUBECACHEDIR=$work/cache
export HOME=$work
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY || true

# Every call of kubectl is bounded, so that a server that hangs fails a check and not the run.
k() { timeout 60 kubectl "$@"; }

pass() { passed=$((passed + 1)); echo "ok    $1"; }
fail() {
  failed=$((failed + 1))
  echo "FAIL  $1"
  [[ $# -lt 2 ]] || printf '%s\n' "$2" | sed -n 's/^/      | /;1,20p'
}

# check NAME COMMAND...: the command must succeed.
check() {
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then pass "$name"; else fail "$name" "$out"; fi
}

# refuse NAME PATTERN COMMAND...: the command must fail and say something that matches.
refuse() {
  local name=$1 pattern=$2 out
  shift 2
  if out=$("$@" 2>&1); then fail "$name" "did not fail: $out"; return; fi
  if grep -Eq -- "$pattern" <<<"$out"; then pass "$name"; else fail "$name" "$out"; fi
}

# says NAME PATTERN COMMAND...: the command must succeed and its output match.
says() {
  local name=$1 pattern=$2 out
  shift 2
  if ! out=$("$@" 2>&1); then fail "$name" "$out"; return; fi
  if grep -Eq -- "$pattern" <<<"$out"; then pass "$name"; else fail "$name" "no /$pattern/ in: $out"; fi
}

# equals NAME EXPECTED COMMAND...: the output must be exactly that.
equals() {
  local name=$1 expected=$2 out
  shift 2
  out=$("$@" 2>&1) || true
  if [[ $out == "$expected" ]]; then pass "$name"; else fail "$name" "expected '$expected', got '$out'"; fi
}

# eventually NAME SECONDS COMMAND...: the command must succeed within that time.
eventually() {
  local name=$1 seconds=$2 out end
  shift 2
  end=$((SECONDS + seconds))
  while ! out=$("$@" 2>&1); do
    if ((SECONDS >= end)); then fail "$name" "$out"; return; fi
    sleep 0.2
  done
  pass "$name"
}

# count KIND [ARGS...]: how many there are.
count() { k get "$@" -o name | wc -l | tr -d ' '; }
# given ARGS...: creates what is on standard input; the checks that follow show it if that fails.
given() { k create "$@" -f - >/dev/null || fail "given: create $*"; }
count_is() { local want=$1; shift; [[ $(count "$@") == "$want" ]]; }
path() { local expression=$1; shift; k get "$@" -o "jsonpath=$expression"; }
path_is() { local want=$1; shift; [[ $(path "$@") == "$want" ]]; }
# images_are IMAGE: all pods of web, those on their way out included, run this image.
images_are() {
  [[ $(path '{range .items[*]}{.spec.containers[0].image}{"\n"}{end}' pods -l app=web | sort -u) == "$1" ]]
}
revision() { path '{.metadata.annotations.deployment\.kubernetes\.io/revision}' deploy/"$1"; }
absent() { [[ -z $(k get "$@" --ignore-not-found -o name) ]]; }

deployment() { # NAME REPLICAS IMAGE
  cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $1
  labels: {app: $1}
spec:
  replicas: $2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: $3
YAML
}

# As short as the API allows: selector, labels and number come from the template and the defaults.
controller() { # NAME IMAGE
  cat <<YAML
apiVersion: v1
kind: ReplicationController
metadata:
  name: $1
spec:
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: $2
YAML
}

daemon_set() { # NAME IMAGE
  cat <<YAML
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: $1
  labels: {app: $1}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      nodeSelector: {zone: $1}
      containers:
      - name: main
        image: $2
YAML
}

"$sandbox" --write-kubeconfig "$KUBECONFIG" --ready-delay 200ms --shutdown-delay 200ms \
  --never-ready ':broken$' ${daemon:+--no-controllers} >"$work/out" 2>"$work/err" &
pids+=($!)
for _ in $(seq 100); do
  [[ -s $KUBECONFIG ]] && break
  kill -0 "${pids[0]}" 2>/dev/null || { cat "$work/err" >&2; exit 1; }
  sleep 0.1
done
if [[ -n $daemon ]]; then
  "$daemon" --kubeconfig "$KUBECONFIG" --kube-api-qps 500 --kube-api-burst 1000 2>"$work/daemon.log" &
  pids+=($!)
fi

echo "# server"
says "kubectl version reaches the server" 'Server Version' k version
says "kubectl api-resources lists deployments" '^deployments +deploy +apps/v1 +true +Deployment' k api-resources
eventually "three nodes are ready" 20 count_is 3 nodes
says "kubectl explain knows a Deployment" 'KIND: +Deployment' k explain deployment
says "kubectl explain describes a field" 'rollingUpdate' k explain deployment.spec.strategy
says "kubectl explain shows the type of a field" 'maxSurge.*<IntOrString>' \
  k explain deployment.spec.strategy.rollingUpdate
says "kubectl explain shows all fields at once" 'terminationGracePeriodSeconds' k explain pod --recursive
check "kubectl auth can-i ends in time" bash -c 'timeout 20 kubectl auth can-i list pods >/dev/null 2>&1; [ $? -lt 124 ]'

echo "# create and get"
deployment web 3 nginx:1.26 >"$work/web.yaml"
says "create -f" 'deployment.apps/web created' k create -f "$work/web.yaml"
refuse "create -f again" 'AlreadyExists' k create -f "$work/web.yaml"
# One unknown kind must not end the whole file: kubectl asks /openapi/v2 about it.
for object in 'v1 ConfigMap before' 'example.com/v1 Shelf fast' 'v1 ConfigMap after'; do
  read -r version kind name <<<"$object"
  printf -- '---\napiVersion: %s\nkind: %s\nmetadata: {name: %s}\n' "$version" "$kind" "$name"
done >"$work/shelf.yaml"
refuse "create -f with an unknown kind names it" 'no matches for kind "Shelf" in version "example.com/v1"' \
  k create -f "$work/shelf.yaml"
check "create -f with an unknown kind creates the rest" k delete configmap before after
says "create -f of a List" 'configmap/one created' k create -f - <<YAML
apiVersion: v1
kind: List
items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}]
YAML
check "the object of a List is there" k delete configmap one
says "create -f of kinds that nothing acts on" 'ingress.networking.k8s.io/front created' k create -f - <<YAML
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: front}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
YAML
says "get of a kind by its short name" 'CLASS +HOSTS +ADDRESS +PORTS' k get ing
says "explain of a kind that nothing acts on" 'KIND: +CronJob' k explain cj.spec
check "delete of a kind that nothing acts on" k delete ing front
# These are sent in protobuf.
says "create job" 'job.batch/hello created' k create job hello --image=busybox
equals "a job has its selector and defaults" '6 NonIndexed Never' k get job hello \
  -o 'jsonpath={.spec.backoffLimit} {.spec.completionMode} {.spec.template.spec.restartPolicy}'
says "create cronjob" 'cronjob.batch/nightly created' k create cronjob nightly --image=busybox --schedule='0 3 * * *'
refuse "create cronjob with a wrong schedule" 'expected exactly 5 fields, found 1: \[often\]' \
  k create cronjob odd --image=busybox --schedule=often
refuse "a time zone that does not exist" 'unknown time zone Mars/Olympus' \
  k patch cronjob nightly -p '{"spec": {"timeZone": "Mars/Olympus"}}'
refuse "a time zone that differs on each machine" 'must be an explicit time zone' \
  k patch cronjob nightly -p '{"spec": {"timeZone": "Local"}}'
check "a time zone that exists" k patch cronjob nightly -p '{"spec": {"timeZone": "Europe/Berlin"}}'
says "get cronjobs" '^nightly +0 3 \* \* \* +Europe/Berlin +False +0 +<none> ' k get cj nightly --no-headers
says "create job --from a cronjob" 'job.batch/by-hand created' k create job by-hand --from=cronjob/nightly
equals "the job belongs to the cronjob" 'nightly manual' k get job by-hand \
  -o 'jsonpath={.metadata.ownerReferences[0].name} {.metadata.annotations.cronjob\.kubernetes\.io/instantiate}'
check "the job completes" k wait --for=condition=Complete job/by-hand --timeout=30s
says "create ingress" 'ingress.networking.k8s.io/side created' k create ingress side --rule='a.example.com/=web:80'
equals "an ingress has its host and port" 'a.example.com 80' k get ingress side \
  -o 'jsonpath={.spec.rules[0].host} {.spec.rules[0].http.paths[0].backend.service.port.number}'
says "create role" 'role.rbac.authorization.k8s.io/reader created' k create role reader --verb=get --resource=pods
says "create rolebinding" 'rolebinding.rbac.authorization.k8s.io/reads created' \
  k create rolebinding reads --role=reader --user=me
says "create poddisruptionbudget" 'poddisruptionbudget.policy/web created' \
  k create pdb web --selector=app=web --min-available=1
says "create priorityclass" 'priorityclass.scheduling.k8s.io/high created' k create priorityclass high --value=5
says "autoscale" 'horizontalpodautoscaler.autoscaling/web autoscaled' k autoscale deployment web --max=3 --cpu-percent=50
says "get hpa" 'Deployment/web +cpu: <unknown>/50% +1 +3 ' k get hpa
check "delete of what was created with flags" bash -c 'timeout 60 kubectl delete --cascade=background hpa/web job/hello cj/nightly \
  ing/side role/reader rolebinding/reads pdb/web pc/high'
says "rollout status waits for the end" 'deployment "web" successfully rolled out' \
  k rollout status deploy/web --timeout=60s
check "wait --for=condition=Available" k wait --for=condition=Available deploy/web --timeout=30s
says "get deploy shows 3/3" '^web +3/3 +3 +3 ' k get deploy
says "get -o wide shows the image" '^deployment.apps/web .*nginx:1\.26' k get deploy,rs,pods -o wide
says "get pods -o wide shows nodes" 'sandbox-node-[123]' k get pods -o wide
equals "three pods run" 3 count pods -l app=web
equals "one ReplicaSet" 1 count rs -l app=web
says "get -o yaml has a status" 'readyReplicas: 3' k get deploy web -o yaml
says "describe shows the strategy and the events" 'RollingUpdateStrategy: +25% max unavailable, 25% max surge' \
  k describe deploy web
says "describe shows ScalingReplicaSet" 'ScalingReplicaSet.*Scaled up replica set web-[a-z0-9]+ from 0 to 3' \
  k describe deploy web
says "get events shows the events" 'ScalingReplicaSet' k get events
says "describe pod shows its node" 'Successfully assigned default/web-' \
  bash -c 'timeout 30 kubectl describe "$(timeout 30 kubectl get pods -l app=web -o name | head -1)"'
says "get --field-selector" '^pod/web-' k get pods --field-selector status.phase=Running -o name
says "get --show-labels" 'pod-template-hash=' k get rs --show-labels

echo "# server-side apply"
deployment applied 2 nginx:1.26 >"$work/applied.yaml"
says "apply --server-side creates" 'deployment.apps/applied serverside-applied' \
  k apply --server-side -f "$work/applied.yaml"
says "the same again" 'deployment.apps/applied serverside-applied' k apply --server-side -f "$work/applied.yaml"
equals "and writes nothing" 1 k get deploy applied -o 'jsonpath={.metadata.generation}'
says "the fields have an owner" 'manager: kubectl$' k get deploy applied -o yaml --show-managed-fields
deployment applied 3 nginx:1.26 >"$work/applied.yaml"
# It ends with 1 where there are differences.
says "diff --server-side shows the size" '^\+ +replicas: 3' \
  bash -c 'kubectl diff --server-side -f "$0" || [ $? = 1 ]' "$work/applied.yaml"
refuse "another manager is refused" 'conflict with "kubectl": \.spec\.replicas' \
  k apply --server-side --field-manager=other -f "$work/applied.yaml"
says "unless it forces" 'serverside-applied' \
  k apply --server-side --field-manager=other --force-conflicts -f "$work/applied.yaml"
equals "the size is the other's" 3 k get deploy applied -o 'jsonpath={.spec.replicas}'
check "rollout status of what was applied" k rollout status deploy/applied --timeout=60s
says "what kubectl apply created can be applied by the server" 'serverside-applied' \
  bash -c 'kubectl create configmap ssa --from-literal=a=1 --dry-run=client -o yaml >"$0/ssa.yaml" &&
    kubectl apply -f "$0/ssa.yaml" && kubectl apply --server-side -f "$0/ssa.yaml"' "$work"
check "delete what was applied" k delete deploy/applied configmap/ssa
# A default that the server adds within one field is a change of that field.
cat >"$work/creator.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: creator}
spec:
  containers: [{name: c, image: "img:1", env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]
YAML
for how in 'create kubectl-create' 'apply kubectl-client-side-apply'; do
  read -r verb manager <<<"$how"
  check "$verb" k "$verb" -f "$work/creator.yaml"
  refuse "the creator is named without a time" \
    "conflict with \"$manager\" using v1: .spec.containers\[name=\"c\"\].env\[name=\"NODE\"\].valueFrom.fieldRef\$" \
    k apply --server-side -f "$work/creator.yaml"
  check "delete what was created" k delete pod creator --grace-period=0 --force
done

echo "# no process"
for what in nodes pods; do
  refuse "top $what says why there is nothing" 'are simulated: there is no process whose usage could be measured' k top "$what"
done
says "the group of metrics is listed for nobody else" "^0$" \
  bash -c 'timeout 60 kubectl api-versions | grep -c metrics || true'

echo "# watch"
timeout 60 kubectl get deploy web -w >"$work/watch" 2>&1 &
watch=$!
pids+=("$watch")
eventually "get -w begins with the existing objects" 20 grep -q '^web ' "$work/watch"

echo "# apply"
deployment shop 2 httpd:2.4 >"$work/shop.yaml"
says "apply -f creates" 'deployment.apps/shop created' k apply -f "$work/shop.yaml"
says "apply -f again changes nothing" 'deployment.apps/shop unchanged' k apply -f "$work/shop.yaml"
deployment shop 4 httpd:2.5 >"$work/shop.yaml"
says "diff shows the change" 'httpd:2\.5' bash -c "timeout 60 kubectl diff -f '$work/shop.yaml' || [ \$? -eq 1 ]"
says "apply -f after an edit configures" 'deployment.apps/shop configured' k apply -f "$work/shop.yaml"
check "its rollout completes" k rollout status deploy/shop --timeout=60s
equals "the new image is there" httpd:2.5 path '{.spec.template.spec.containers[0].image}' deploy/shop
equals "four replicas" 4 path '{.status.readyReplicas}' deploy/shop
equals "it is revision 2" 2 revision shop
says "apply --dry-run=server stores nothing" 'created \(server dry run\)' \
  bash -c "sed s/shop/ghost/ '$work/shop.yaml' | timeout 60 kubectl apply --dry-run=server -f -"
check "the dry run left nothing" absent deploy ghost
refuse "an unknown field is refused" 'unknown field "spec.replcas"' \
  bash -c "sed 's/replicas:/replcas:/' '$work/web.yaml' | sed s/web/typo/ | timeout 60 kubectl create -f -"
refuse "a selector cannot be changed" 'field is immutable' \
  k patch deploy web --type=merge -p '{"spec":{"selector":{"matchLabels":{"app":"other"}}}}'

echo "# set image, scale, edit"
check "set image" k set image deploy/web main=nginx:1.27
check "its rollout completes" k rollout status deploy/web --timeout=60s
eventually "every pod has the new image" 30 images_are nginx:1.27
equals "it is revision 2" 2 revision web
check "scale" k scale deploy/web --replicas=5
eventually "five are ready" 30 path_is 5 '{.status.readyReplicas}' deploy/web
refuse "scale with a wrong precondition" 'Expected replicas to be 9, was 5' \
  k scale deploy/web --current-replicas=9 --replicas=2
equals "scaling is no new revision" 2 revision web
check "edit" env EDITOR='sed -i s/nginx:1.27/nginx:1.28/' timeout 60 kubectl edit deploy/web
check "its rollout completes" k rollout status deploy/web --timeout=60s
equals "the edit took effect" nginx:1.28 path '{.spec.template.spec.containers[0].image}' deploy/web
check "the watch shows the scaling" grep -Eq '^web +[0-9]/5' "$work/watch"
kill "$watch" 2>/dev/null || true

echo "# rollout"
says "rollout history lists revisions" '^3 ' k rollout history deploy/web
says "rollout history of one revision" 'nginx:1\.26' k rollout history deploy/web --revision=1
check "annotate a change cause" k annotate deploy/web kubernetes.io/change-cause='to 1.28'
eventually "history shows the change cause" 20 bash -c 'timeout 30 kubectl rollout history deploy/web | grep -q "to 1.28"'
check "rollout undo" k rollout undo deploy/web
check "its rollout completes" k rollout status deploy/web --timeout=60s
equals "undo brought the image back" nginx:1.27 path '{.spec.template.spec.containers[0].image}' deploy/web
equals "as revision 4" 4 revision web
check "rollout undo --to-revision" k rollout undo deploy/web --to-revision=1
check "its rollout completes" k rollout status deploy/web --timeout=60s
equals "revision 1 is back" nginx:1.26 path '{.spec.template.spec.containers[0].image}' deploy/web
check "rollout pause" k rollout pause deploy/web
check "set image while paused" k set image deploy/web main=nginx:1.29
sleep 1
equals "nothing rolls out while paused" nginx:1.26 bash -c \
  'timeout 30 kubectl get pods -l app=web -o "jsonpath={range .items[*]}{.spec.containers[0].image}{\"\n\"}{end}" | sort -u'
refuse "restart while paused is refused" 'paused' k rollout restart deploy/web
check "rollout resume" k rollout resume deploy/web
check "its rollout completes" k rollout status deploy/web --timeout=60s
eventually "the paused change rolled out" 30 bash -c \
  '[ "$(timeout 30 kubectl get pods -l app=web -o "jsonpath={range .items[*]}{.spec.containers[0].image}{\"\n\"}{end}" | sort -u)" = nginx:1.29 ]'
before=$(k get pods -l app=web -o name | sort)
check "rollout restart" k rollout restart deploy/web
check "its rollout completes" k rollout status deploy/web --timeout=60s
# A pod that is on its way out may outlive the rollout by its grace.
no_pod_of_before() { [[ -z $(comm -12 <(echo "$before") <(k get pods -l app=web -o name | sort)) ]]; }
eventually "every pod is a new one" 30 no_pod_of_before

echo "# a rollout that cannot complete"
check "set a broken image" k set image deploy/shop main=httpd:broken
check "set a short deadline" k patch deploy shop -p '{"spec":{"progressDeadlineSeconds":5}}'
refuse "rollout status fails at the deadline" 'exceeded its progress deadline' \
  k rollout status deploy/shop --timeout=60s
says "the pods show the reason" 'ImagePullBackOff' k get pods -l app=shop
check "most of the old version still serves" bash -c '[ "$(timeout 30 kubectl get deploy shop -o jsonpath={.status.availableReplicas})" -ge 3 ]'
check "rollout undo repairs it" k rollout undo deploy/shop
check "its rollout completes" k rollout status deploy/shop --timeout=60s

echo "# delete"
check "delete a pod" k delete pod --wait=false "$(path '{.items[0].metadata.name}' pods -l app=web)"
eventually "it is replaced" 30 path_is 5 '{.status.readyReplicas}' deploy/web
check "delete (background)" k delete deploy web --timeout=30s
eventually "its ReplicaSets are deleted" 30 count_is 0 rs -l app=web
eventually "its pods are deleted" 30 count_is 0 pods -l app=web
check "delete --cascade=foreground" k delete deploy shop --cascade=foreground --timeout=60s
equals "nothing of it is left at that moment" 0 count rs -l app=shop
given < <(deployment loose 2 nginx:1.27)
k rollout status deploy/loose --timeout=60s >/dev/null || true
check "delete --cascade=orphan" k delete deploy loose --cascade=orphan --timeout=30s
check "the Deployment is deleted" absent deploy loose
equals "its ReplicaSet stays" 1 count rs -l app=loose
equals "the ReplicaSet has no owner" "" path '{.items[0].metadata.ownerReferences}' rs -l app=loose
equals "its pods stay" 2 count pods -l app=loose
given < <(deployment loose 2 nginx:1.27)
check "a new Deployment rolls out" k rollout status deploy/loose --timeout=60s
eventually "it has adopted the ReplicaSet" 20 bash -c \
  '[ "$(timeout 30 kubectl get rs -l app=loose -o jsonpath="{.items[*].metadata.ownerReferences[0].kind}")" = Deployment ]'
equals "and made no other" 1 count rs -l app=loose
# Without a wait: kubectl sometimes mistakes a ReplicaSet recreated at once under the same name for the old one.
set_before=$(path '{.items[0].metadata.uid}' rs -l app=loose)
pods_before=$(path '{.items[*].metadata.uid}' pods -l app=loose)
check "delete rs --cascade=orphan" k delete rs -l app=loose --cascade=orphan --wait=false
eventually "another ReplicaSet is created" 20 bash -c \
  'uid=$(timeout 30 kubectl get rs -l app=loose -o jsonpath="{.items[*].metadata.uid}"); [[ -n $uid && $uid != "$0" ]]' \
  "$set_before"
equals "it has the pods of the first" "$pods_before" path '{.items[*].metadata.uid}' pods -l app=loose
check "delete by label" k delete deploy -l app=loose --timeout=30s

echo "# replication controllers"
controller old nginx:1.26 >"$work/old.yaml"
says "api-resources lists them" '^replicationcontrollers +rc +v1 +true +ReplicationController' k api-resources
says "kubectl explain knows one" 'KIND: +ReplicationController' k explain rc
says "create -f" 'replicationcontroller/old created' k create -f "$work/old.yaml"
refuse "create -f again" 'replicationcontrollers "old" already exists' k create -f "$work/old.yaml"
equals "its selector comes from its template" old path '{.spec.selector.app}' rc/old
equals "and so do its labels" old path '{.metadata.labels.app}' rc/old
says "get rc shows the numbers" '^old +1 +[01] +[01] ' k get rc
says "get -o wide shows the rest" '^old .* main +nginx:1\.26 +app=old' k get rc -o wide
says "get all lists it" '^replicationcontroller/old ' k get all
says "get --field-selector" '^replicationcontroller/old' k get rc --field-selector metadata.name=old -o name
says "describe shows the selector" 'Selector: +app=old' k describe rc old
check "scale" k scale rc/old --replicas=3
equals "three are wanted" 3 path '{.spec.replicas}' rc/old
equals "scaling is a new generation" 2 path '{.metadata.generation}' rc/old
eventually "three are ready" 30 path_is 3 '{.status.readyReplicas}' rc/old
equals "it has made three pods" 3 count pods -l app=old
equals "and owns them" "$(printf 'ReplicationController/old\n%.0s' 1 2 3)" path \
  '{range .items[*]}{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}{"\n"}{end}' pods -l app=old
eventually "describe shows the creator of the pods" 20 bash -c \
  'timeout 30 kubectl describe rc old | grep -Eq "SuccessfulCreate .* replication-controller +Created pod: old-[a-z0-9]{5}$"'
equals "its status has no terminatingReplicas" "" path '{.status.terminatingReplicas}' rc/old
refuse "scale with a wrong precondition" 'Expected replicas to be 9, was 3' \
  k scale rc/old --current-replicas=9 --replicas=2
check "set image" k set image rc/old main=nginx:1.27
equals "the template has it" nginx:1.27 path '{.spec.template.spec.containers[0].image}' rc/old
check "label" k label rc/old tier=x
refuse "a selector that misses the template is refused" '`selector` does not match template `labels`' \
  k patch rc old --type=merge -p '{"spec":{"selector":{"app":"other"}}}'
refuse "pods without restartPolicy Always are refused" 'Unsupported value: "Never": supported values: "Always"' \
  k patch rc old -p '{"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}'
refuse "an unknown field is refused" 'unknown field "spec.replcas"' \
  bash -c "sed 's/^spec:/spec:\n  replcas: 1/; s/old/typo/' '$work/old.yaml' | timeout 60 kubectl create -f -"
sed 's/old/new/; s/^spec:/spec:\n  replicas: 2/' "$work/old.yaml" >"$work/new.yaml"
says "apply -f creates" 'replicationcontroller/new created' k apply -f "$work/new.yaml"
says "apply -f again changes nothing" 'replicationcontroller/new unchanged' k apply -f "$work/new.yaml"
sed -i s/nginx:1.26/nginx:1.28/ "$work/new.yaml"
says "apply -f after an edit configures" 'replicationcontroller/new configured' k apply -f "$work/new.yaml"
check "expose" k expose rc old --port=80
equals "the service selects its pods" old path '{.spec.selector.app}' svc/old
check "delete" k delete rc old --timeout=30s
check "it is deleted" absent rc old
eventually "its pods are deleted as well" 30 count_is 0 pods -l app=old
eventually "the other has two ready" 30 path_is 2 '{.status.readyReplicas}' rc/new
check "delete --cascade=orphan" k delete rc new --cascade=orphan --timeout=30s
check "it is deleted as well" absent rc new
equals "its pods stay" 2 count pods -l app=new
equals "they have no owner" "" path '{.items[*].metadata.ownerReferences}' pods -l app=new

echo "# daemon sets"
# No node has the label that these ask for, so that whoever runs the controllers creates no pods.
daemon_set agent nginx:1.26 >"$work/agent.yaml"
says "api-resources lists them" '^daemonsets +ds +apps/v1 +true +DaemonSet' k api-resources
says "and their revisions" '^controllerrevisions +apps/v1 +true +ControllerRevision' k api-resources
says "kubectl explain knows one" 'KIND: +DaemonSet' k explain ds
says "create -f" 'daemonset.apps/agent created' k create -f "$work/agent.yaml"
refuse "create -f again" 'daemonsets.apps "agent" already exists' k create -f "$work/agent.yaml"
says "get ds shows the columns" '^NAME +DESIRED +CURRENT +READY +UP-TO-DATE +AVAILABLE +NODE SELECTOR +AGE$' k get ds
says "get ds shows the numbers" '^agent +0 +0 +0 +0 +0 +zone=agent ' k get ds
says "get -o wide shows the rest" '^agent .* main +nginx:1\.26 +app=agent' k get ds -o wide
says "get all lists it" '^daemonset.apps/agent ' k get all
says "describe shows the selector and the numbers" 'Desired Number of Nodes Scheduled: 0' k describe ds agent
equals "its strategy is the default" '1/0' \
  path '{.spec.updateStrategy.rollingUpdate.maxUnavailable}/{.spec.updateStrategy.rollingUpdate.maxSurge}' ds/agent
equals "it is generation 1" 1 path '{.metadata.generation}' ds/agent
check "set image" k set image ds/agent main=nginx:1.27
equals "that is generation 2" 2 path '{.metadata.generation}' ds/agent
equals "and the second template" 2 path '{.metadata.annotations.deprecated\.daemonset\.template\.generation}' ds/agent
check "label" k label ds/agent tier=x
equals "that is no generation" 2 path '{.metadata.generation}' ds/agent
check "rollout restart" k rollout restart ds/agent
refuse "rollout pause" 'not supported|unable to decode|pausing is not supported' k rollout pause ds/agent
refuse "surge and unavailability together are refused" 'may not be set when maxUnavailable is non-zero' \
  k patch ds agent -p '{"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":1}}}}'
refuse "a selector cannot be changed" 'field is immutable' \
  k patch ds agent --type=merge -p '{"spec":{"selector":{"matchLabels":{"app":"other"}}}}'
refuse "an unknown field is refused" 'unknown field "spec.replicas"' \
  bash -c "sed 's/^spec:/spec:\n  replicas: 1/; s/agent/typo/' '$work/agent.yaml' | timeout 60 kubectl create -f -"
daemon_set other nginx:1.26 >"$work/other.yaml"
says "apply -f creates" 'daemonset.apps/other created' k apply -f "$work/other.yaml"
says "apply -f again changes nothing" 'daemonset.apps/other unchanged' k apply -f "$work/other.yaml"
sed -i s/nginx:1.26/nginx:1.28/ "$work/other.yaml"
says "apply -f after an edit configures" 'daemonset.apps/other configured' k apply -f "$work/other.yaml"
cat >"$work/revision.yaml" <<'YAML'
apiVersion: apps/v1
kind: ControllerRevision
metadata: {name: lone, labels: {app: lone}}
revision: 3
data: {spec: {template: {$patch: replace, spec: {nodeName: null}}}}
YAML
says "create -f of a revision" 'controllerrevision.apps/lone created' k create -f "$work/revision.yaml"
says "get controllerrevisions" '^lone +<none> +3 ' k get controllerrevisions
equals "its data is what was sent" '{"spec":{"template":{"$patch":"replace","spec":{"nodeName":null}}}}' \
  path '{.data}' controllerrevision/lone
refuse "its data cannot be changed" 'data: Invalid value: .*: field is immutable' \
  k patch controllerrevision lone --type=merge -p '{"data":{"spec":{"other":1}}}'
check "delete a revision" k delete controllerrevision lone --timeout=30s
check "delete" k delete ds agent --timeout=30s
check "it is deleted" absent ds agent
check "delete --cascade=orphan" k delete ds other --cascade=orphan --timeout=30s
check "it is deleted as well" absent ds other

echo "# daemon sets that are rolled out"
# ds_images_are IMAGE: all pods of the DaemonSet run, those on their way out included, run this image.
ds_images_are() {
  [[ $(path '{range .items[*]}{.spec.containers[0].image}{"\n"}{end}' pods -l app=runs | sort -u) == "$1" ]]
}
# history_is NUMBERS: the revisions that kubectl lists.
history_is() { [[ $(k rollout history ds/runs | grep -Eo '^[0-9]+' | tr '\n' ' ') == "$1 " ]]; }
daemon_set runs nginx:1.26 | sed '/nodeSelector/d' >"$work/runs.yaml"
says "apply -f" 'daemonset.apps/runs created' k apply -f "$work/runs.yaml"
says "rollout status waits for the end" 'daemon set "runs" successfully rolled out' \
  k rollout status ds/runs --timeout=60s
says "get ds shows three of three" '^runs +3 +3 +3 +3 +3 +<none> ' k get ds runs
equals "each node has one pod" 'sandbox-node-1 sandbox-node-2 sandbox-node-3' bash -c \
  'timeout 30 kubectl get pods -l app=runs -o "jsonpath={range .items[*]}{.spec.nodeName}{\"\n\"}{end}" | sort | xargs'
says "describe shows who created them" 'SuccessfulCreate .* daemonset-controller +Created pod: runs-' k describe ds runs
says "its revision is there" '^runs-[a-z0-9]+ +daemonset.apps/runs +1 ' k get controllerrevisions -l app=runs
says "rollout history lists it" '^1 +<none>' k rollout history ds/runs
sed -i s/nginx:1.26/nginx:1.27/ "$work/runs.yaml"
check "apply -f after an edit" k apply -f "$work/runs.yaml"
check "its rollout completes" k rollout status ds/runs --timeout=60s
eventually "every pod has the new image" 30 ds_images_are nginx:1.27
check "history has two revisions" history_is '1 2'
says "rollout history of one revision" 'nginx:1\.26' k rollout history ds/runs --revision=1
check "rollout undo --to-revision" k rollout undo ds/runs --to-revision=1
check "its rollout completes" k rollout status ds/runs --timeout=60s
equals "revision 1 is back" nginx:1.26 path '{.spec.template.spec.containers[0].image}' ds/runs
eventually "on every node" 30 ds_images_are nginx:1.26
check "as revision 3" history_is '2 3'
check "rollout undo" k rollout undo ds/runs
check "its rollout completes" k rollout status ds/runs --timeout=60s
check "as revision 4" history_is '3 4'
refuse "an unknown revision is refused" 'unable to find specified revision 9 in history' \
  k rollout undo ds/runs --to-revision=9
# kubectl compares bytes, and before 1.34 it adds `creationTimestamp: null` to them.
if (($(k version --client -o json | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p') >= 34)); then
  says "rollout undo --to-revision of the same is skipped" 'skipped rollback' k rollout undo ds/runs --to-revision=4
fi
check "rollout restart" k rollout restart ds/runs
check "its rollout completes" k rollout status ds/runs --timeout=60s
check "as revision 5" history_is '3 4 5'
check "a surge" k patch ds runs -p \
  '{"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}}}'
check "set image" k set image ds/runs main=nginx:1.28
check "its rollout completes" k rollout status ds/runs --timeout=60s
eventually "every pod has the new image" 30 ds_images_are nginx:1.28
check "OnDelete" k patch ds runs --type=merge -p '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'
check "set image" k set image ds/runs main=nginx:1.29
refuse "rollout status is refused for OnDelete" 'only available for RollingUpdate' k rollout status ds/runs --timeout=20s
check "delete a pod" k delete pod --wait=false "$(path '{.items[0].metadata.name}' pods -l app=runs)"
eventually "it is replaced by one of the new template" 30 path_is 1 '{.status.updatedNumberScheduled}' ds/runs
eventually "the new pod is ready" 30 path_is 3 '{.status.numberReady}' ds/runs
check "taint a node" k taint node sandbox-node-2 out=yes:NoExecute
eventually "its pod is evicted" 30 path_is 2 '{.status.desiredNumberScheduled}' ds/runs
eventually "two are left" 30 count_is 2 pods -l app=runs
check "remove the taint" k taint node sandbox-node-2 out-
eventually "three are ready again" 30 path_is 3 '{.status.numberReady}' ds/runs
check "delete --cascade=orphan" k delete ds runs --cascade=orphan --timeout=30s
equals "its pods stay" 3 count pods -l app=runs
equals "they have no owner" "" path '{.items[*].metadata.ownerReferences}' pods -l app=runs
daemon_set runs nginx:1.29 | sed '/nodeSelector/d' >"$work/runs.yaml"
check "create it again" k create -f "$work/runs.yaml"
check "its rollout completes" k rollout status ds/runs --timeout=60s
eventually "every pod has its image" 30 ds_images_are nginx:1.29
check "delete" k delete ds runs --timeout=30s
eventually "its pods are deleted" 30 count_is 0 pods -l app=runs
eventually "its revisions are deleted as well" 30 count_is 0 controllerrevisions -l app=runs

echo "# namespaces"
check "create namespace" k create namespace ark
check "delete namespace" k delete namespace ark --timeout=60s
given < <(printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: zoo}\n')
eventually "it gets its ServiceAccount" 20 k get serviceaccount default -n zoo
given -n zoo < <(deployment lions 3 nginx:1.27)
check "a rollout in it completes" k rollout status deploy/lions -n zoo --timeout=60s
check "create configmap" k create configmap map --from-literal=key=value -n zoo
check "create deployment --image" k create deployment bears --image=nginx:1.27 --replicas=2 -n zoo
check "its rollout completes" k rollout status deploy/bears -n zoo --timeout=60s
check "expose" k expose deployment lions --port=80 -n zoo
check "run" k run keeper --image=busybox:1.36 -n zoo
check "the pod becomes ready" k wait --for=condition=Ready pod/keeper -n zoo --timeout=30s
says "get all -n" 'deployment.apps/lions' k get all -n zoo
check "delete namespace" k delete namespace zoo --timeout=60s
check "the namespace is deleted" absent namespace zoo
equals "and its pods" 0 count pods -A -l app=lions
refuse "the namespace default cannot be deleted" 'forbidden' k delete namespace default --timeout=30s

echo "# nodes"
for node in 1 2 3; do k cordon "sandbox-node-$node" >/dev/null || true; done
given < <(deployment homeless 1 nginx:1.27)
eventually "an unschedulable pod reports it" 20 bash -c \
  'timeout 30 kubectl get events | grep -q "FailedScheduling.*0/3 nodes are available: 3 node(s) were unschedulable"'
equals "and is pending" Pending path '{.items[0].status.phase}' pods -l app=homeless
check "drain moves a node's pods away" k drain sandbox-node-3 --ignore-daemonsets --force --timeout=60s
equals "none is left there" 0 count pods -A --field-selector spec.nodeName=sandbox-node-3
check "uncordon" k uncordon sandbox-node-2
check "it is bound and ready" k rollout status deploy/homeless --timeout=60s
equals "on the node that takes it" sandbox-node-2 path '{.items[0].spec.nodeName}' pods -l app=homeless

check "label a node" k label node sandbox-node-1 zone=a
says "get nodes -L shows it" '^sandbox-node-1 .* a$' k get nodes -L zone
check "taint a node" k taint node sandbox-node-1 gpu=yes:NoSchedule
says "describe shows the taint" 'gpu=yes:NoSchedule' k describe node sandbox-node-1
refuse "a taint without an effect is refused" 'effect' \
  k patch node sandbox-node-1 --type=merge -p '{"spec":{"taints":[{"key":"gpu"}]}}'
check "remove the taint" k taint node sandbox-node-1 gpu-
eventually "a cordoned node is tainted" 20 bash -c \
  'timeout 30 kubectl get node sandbox-node-3 -o jsonpath="{.spec.taints[*].key}" | grep -q node.kubernetes.io/unschedulable'
says "get nodes shows the cordon" '^sandbox-node-3 +Ready,SchedulingDisabled ' k get nodes
check "make a node NotReady" k patch node sandbox-node-1 --subresource=status \
  -p '{"status":{"conditions":[{"type":"Ready","status":"False"}]}}'
says "get nodes shows NotReady" '^sandbox-node-1 +NotReady' k get nodes
eventually "it is tainted" 20 bash -c \
  'timeout 30 kubectl describe node sandbox-node-1 | grep -q "node.kubernetes.io/not-ready:NoExecute"'
check "delete a node" k delete node sandbox-node-1 --timeout=30s
equals "two are left" 2 count nodes
given < <(printf 'apiVersion: v1\nkind: Node\nmetadata: {name: extra}\n')
eventually "a created node becomes ready" 20 bash -c 'timeout 30 kubectl get nodes | grep -Eq "^extra +Ready "'
equals "and has its labels" extra path '{.metadata.labels.kubernetes\.io/hostname}' node/extra

echo "# custom kinds"
widget() { # SIZE
  printf 'apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: %s}\n' "$1"
}
given <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, maximum: 9, description: How large.}
    subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
YAML
check "a definition is established" k wait --for=condition=Established crd/widgets.example.com --timeout=30s
says "explain knows the custom kind" 'How large' k explain widget.spec.size
says "create a custom object" 'widget.example.com/a created' k apply -f <(widget 2)
says "apply changes it" 'widget.example.com/a configured' k apply -f <(widget 3)
says "get shows its columns" '^a +3$' k get wd
refuse "the schema is enforced" 'spec.size in body should be less than or equal to 9' k apply -f <(widget 10)
check "scale a custom object" k scale wd/a --replicas=5
equals "its size follows" 5 path '{.spec.size}' wd/a
check "delete the definition" k delete crd widgets.example.com --timeout=30s
refuse "the kind is gone" 'could not find|the server doesn.t have a resource type' k get widgets

echo "# rights"
says "everybody may do everything" '^yes$' k auth can-i create pods
says "and is nobody" 'system:anonymous' k auth whoami
refuse "no token is issued" 'authenticates nobody' k create token default

# ends_well NAME PID LOG: SIGTERM must end this child in time and with code 0.
ends_well() {
  kill -TERM "$2"
  if timeout 15 tail --pid="$2" -f /dev/null && wait "$2"; then pass "$1"; else fail "$1" "$(cat "$3")"; fi
}

echo "# the end"
# The script breaks images, and the daemon says that those rollouts are stuck or blocked.
expected='rollout is (stuck|blocked)'
warned() { grep -E 'WARN|ERROR' "$1" | grep -vE "$expected"; }
if [[ -n $daemon ]]; then
  ends_well "SIGTERM ends the daemon with code 0" "${pids[1]}" "$work/daemon.log"
  refuse "the daemon warned of nothing else" '' warned "$work/daemon.log"
fi
ends_well "SIGTERM ends the sandbox with code 0" "${pids[0]}" "$work/err"
check "it logged no other warning" test "$(grep -cvE "^$|$expected" "$work/err")" = 0
[[ ! -s $work/err ]] || sed -n 's/^/      | /;1,20p' "$work/err"

echo "$passed passed, $failed failed"
((failed == 0))

"""Installs the chart into the sandbox with Helm's engine: refused beside another controller, otherwise rolled out."""

import json
import os
import subprocess
import time

import helm_python as helm
from helm_python import _native

NAMESPACE = "kube-system"
# Seconds; all of this takes a few on an idle machine.
TIMEOUT = 60


class Cluster:
    """A sandbox in a process of its own, with its built-in controllers."""

    def __init__(self, program, scratch):
        self.kubeconfig = scratch / "kubeconfig"
        self.log = open(scratch / "sandbox.log", "w")
        flags = ["--write-kubeconfig", self.kubeconfig, "--ready-delay=100ms", "--shutdown-delay=100ms"]
        self.process = subprocess.Popen([program, *flags], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.environment = os.environ | {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(scratch / "cache")}
        end = time.monotonic() + TIMEOUT
        while not self.kubeconfig.exists():
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit("the sandbox does not start")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def kubectl(self, *words, given=None):
        """Runs kubectl; returns whether it succeeded, and its output."""
        done = subprocess.run(["kubectl", *words], env=self.environment, input=given, capture_output=True,
                              text=True, timeout=2 * TIMEOUT, check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def apply(self, thing):
        fine, said = self.kubectl("apply", "-f", "-", given=json.dumps(thing))
        if not fine:
            raise SystemExit(said)


def helm_write(config, action, chart, values):
    """An installation or upgrade. The sandbox serves no server-side apply, which the binding's own function
    would use."""
    client_side = False if action == "helm_install" else "false"  # Their options differ in type.
    options = {"namespace": NAMESPACE, "server_side_apply": client_side, "timeout_seconds": TIMEOUT}
    with helm.Chart.load(chart) as loaded:
        none = _native.HANDLE(0)
        answer = _native.call_string(action, config._raw(), none, loaded._raw(), None, "windlass",
                                     json.dumps(values), json.dumps(options))
    return json.loads(answer)


def manager(flags, labels=None, in_shell=False):
    """A kube-controller-manager as kubeadm runs it, or with other labels."""
    command = ["kube-controller-manager", "--leader-elect=true", *flags]
    if in_shell:
        command = ["/bin/sh", "-c", f"exec {' '.join(command)} 2>&1"]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "kube-controller-manager-one", "namespace": NAMESPACE,
                     "labels": labels or LABELS[0]},
        "spec": {"containers": [{"name": "kube-controller-manager", "image": "kcm:1", "command": command}]},
    }


OFF = ("-deployment-controller,-replicaset-controller,-replicationcontroller-controller,-daemonset-controller,"
       "-statefulset-controller,-cronjob-controller,-ttl-after-finished-controller")
# The flags of a kube-controller-manager, the values of the chart, and what the error contains; None: not refused.
BESIDE = [
    ([], {}, "deployment-controller, replicaset-controller, replicationcontroller-controller, daemonset-controller, "
     "statefulset-controller, cronjob-controller, ttl-after-finished-controller"),
    (["--controllers=*,bootstrapsigner,tokencleaner"], {}, "runs deployment-controller"),
    (["--controllers=*,-deployment,-replicaset"], {}, "runs replicationcontroller-controller, daemonset-controller, statefulset-controller"),
    (["--controllers", "*,-deployment,-daemonset", "--controllers=-replicaset,-statefulset"], {},
     "runs replicationcontroller-controller"),
    (["--controllers=*,-deployment,-replicaset,-replicationcontroller,-statefulset"], {}, "runs daemonset-controller"),
    (["--controllers=*,-deployment,-replicaset,-replicationcontroller,-daemonset"], {}, "runs statefulset-controller"),
    ([f"--controllers=*,{OFF}"], {"controllers": ["*"]}, "runs job-controller"),
    (["--controllers=*,-deployment,-replicaset"],
     {"controllers": ["*", "-replicationcontroller", "-daemonset", "-statefulset", "-job", "-cronjob", "-ttl-after-finished"]}, None),
    (["--controllers=deployment,-deployment,namespace"], {}, "runs deployment-controller"),
    (["--controllers=namespace,garbagecollector"], {}, None),
    ([f"--controllers=*,bootstrapsigner,tokencleaner,{OFF}"], {}, None),
    ([], {"preflight": {"enabled": False}}, None),
]
# The labels of kubeadm's and kind's pods, and of kops'.
LABELS = [{"component": "kube-controller-manager", "tier": "control-plane"}, {"k8s-app": "kube-controller-manager"}]
# An older kops starts it through a shell.
SHELLS = [([], "runs deployment-controller"), ([f"--controllers=*,{OFF}"], None)]


def check_preflight(cluster, config, chart, check, done):
    managers = [(manager(flags), flags, values, words) for flags, values, words in BESIDE]
    managers += [(manager(flags, LABELS[1]), flags, values, words) for flags, values, words in BESIDE[:2]]
    managers += [(manager(flags, LABELS[1], in_shell=True), flags, {}, words) for flags, words in SHELLS]
    for found, flags, values, words in managers:
        cluster.kubectl("delete", "pod", "-n", NAMESPACE, "kube-controller-manager-one", "--ignore-not-found", "--now")
        cluster.apply(found)
        with helm.Chart.load(chart) as loaded:
            try:
                notes = config.render(loaded, values, name="windlass", namespace=NAMESPACE)["windlass/templates/NOTES.txt"]
                said = None
            except helm.HelmError as error:
                notes, said = "", str(error)
        told = f"beside {flags} with {values}"
        check((said is None) == (words is None), f"{told}: {said}")
        check(words is None or words in (said or ""), f"{told}: no «{words}» in {said}")
        if words is None and "preflight" not in values:
            check("found in kube-system: 1; none runs" in notes, f"{told}: {notes}")
    done(f"{len(managers)} kinds of kube-controller-manager detected or accepted")


def documents(text):
    return [found for part in ("\n" + text).split("\n---") if (found := helm.values_from_yaml(part))]


def bootstraps(cluster):
    """The Jobs of the bootstrap."""
    _, said = cluster.kubectl("get", "jobs", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=bootstrap", "-o", "name")
    return said.split()


def run_test_hook(cluster, hooks, scratch, check, done):
    """Runs the steps of `helm test` with the kubectl of this machine: each container in turn, with the volume's files
    at their mount path."""
    objects = [found for hook in hooks for found in documents(hook["manifest"])]
    pod = next(found for found in objects if found["kind"] == "Pod")
    files = next(found for found in objects if found["kind"] == "ConfigMap")["data"]
    mounted = scratch / "manifests"
    mounted.mkdir()
    for name, text in files.items():
        (mounted / name).write_text(text)
    steps = pod["spec"]["initContainers"] + pod["spec"]["containers"]
    for step in steps:
        words = [word.replace("/manifests/", f"{mounted}/") for word in step["args"]]
        fine, said = cluster.kubectl(*words)
        check(fine, f"helm test, {step['name']}: kubectl {' '.join(words)}: {said}")
    done(f"the {len(steps)} steps of helm test")


def check(chart, program, scratch, check_that, done):
    with Cluster(program, scratch) as cluster:
        config = helm.Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE, qps=1000, burst_limit=1000)
        check_preflight(cluster, config, chart, check_that, done)

        cluster.kubectl("delete", "pod", "-n", NAMESPACE, "kube-controller-manager-one", "--now")
        cluster.apply(manager([]))
        try:
            helm_write(config, "helm_install", chart, {})
            check_that(False, "installed beside a kube-controller-manager that runs everything")
        except helm.HelmError as error:
            check_that("preflight.enabled=false" in str(error), f"the error does not name preflight.enabled: {error}")
        cluster.kubectl("delete", "pod", "-n", NAMESPACE, "kube-controller-manager-one", "--now")

        helm_write(config, "helm_install", chart, {})
        installed = bootstraps(cluster)
        fine, said = cluster.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/windlass", f"--timeout={TIMEOUT}s")
        check_that(fine, f"the installed Deployment does not roll out: {said}")
        helm_write(config, "helm_upgrade", chart, {"replicas": 3, "logging": {"verbosity": 4}})
        fine, said = cluster.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/windlass", f"--timeout={TIMEOUT}s")
        check_that(fine and "successfully" in said, f"the upgraded Deployment does not roll out: {said}")
        _, ready = cluster.kubectl("get", "-n", NAMESPACE, "deployment/windlass", "-o", "jsonpath={.status.readyReplicas}")
        check_that(ready == "3", f"{ready} of 3 are ready after the upgrade")
        upgraded = bootstraps(cluster)
        check_that(len(installed) == len(upgraded) == 1 and installed != upgraded,
                   f"the upgrade replaces {installed} by {upgraded}")
        done("installed, upgraded and rolled out")
        run_test_hook(cluster, config.get_all("windlass")["hooks"], scratch, check_that, done)
        config.uninstall("windlass")
        _, left = cluster.kubectl("get", "-A", "-l", "app.kubernetes.io/name=windlass", "-o", "name",
                                  "deploy,sts,jobs,svc,sa,pdb,netpol,roles,rolebindings,clusterroles,clusterrolebindings,"
                                  "validatingadmissionpolicies,validatingadmissionpolicybindings")
        check_that("windlass" not in left, f"left after uninstalling: {left}")
        done("uninstalled without leftovers")

        for verb in ("apply", "apply", "delete"):
            fine, said = cluster.kubectl(verb, "-k", "deploy")
            check_that(fine, f"kubectl {verb} -k deploy: {said}")
            if verb == "apply":
                fine, said = cluster.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/windlass",
                                             f"--timeout={TIMEOUT}s")
                check_that(fine, f"deploy/ does not roll out: {said}")
        done("deploy/ applied twice, rolled out and deleted")

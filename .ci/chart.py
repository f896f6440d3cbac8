"""Renders deploy/ from the chart, and checks the chart: see .ci/chart."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import helm_python as helm
from helm_python import _native  # Its functions take all of the engine's options; the public ones only some.

import chart_in_sandbox
import chart_policy

CHART = pathlib.Path("charts/windlass")
DEPLOY = pathlib.Path("deploy")
# The oldest that Chart.yaml allows, and the one that k8s-openapi's types are of.
KUBERNETES = ["v1.30.0", "v1.37.0"]
MONITORING = ["monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule"]

# The contents of each file in deploy/: templates of the chart, with these values.
MONITORED = {
    "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "grafanaDashboard": {"enabled": True},
}
NAMESPACES = {"controllers": ["*", "namespace-controller"]}
GARBAGE = {"controllers": ["*", "garbage-collector-controller"]}
QUOTAS = {"controllers": ["*", "resourcequota-controller"]}
READERS = [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]
FILES = {
    "rbac.yaml": ["rbac.yaml"],
    "windlass.yaml": ["deployment.yaml", "bootstrap.yaml", "service.yaml", "poddisruptionbudget.yaml"],
    "networkpolicy.yaml": ["networkpolicy.yaml"],
    "admissionpolicy.yaml": ["admissionpolicy.yaml"],
    "flowschema.yaml": ["flowschema.yaml"],
    "monitoring/servicemonitor.yaml": ["servicemonitor.yaml"],
    "monitoring/prometheusrule.yaml": ["prometheusrule.yaml"],
    "monitoring/dashboard.yaml": ["dashboard.yaml"],
}
# Files for what is off by default, with the values that turn it on.
ON_REQUEST = {
    "namespaces/namespace-controller.yaml": ("namespace-controller.yaml", NAMESPACES),
    "garbage/garbage-collector.yaml": ("garbage-collector.yaml", GARBAGE),
    "quotas/resource-quota.yaml": ("resource-quota.yaml", QUOTAS),
    "garbage/admissionpolicy.yaml": ("admissionpolicy.yaml", GARBAGE),
    "policies/rollout-policy.yaml": ("policyvalidation.yaml", {"policyValidation": {"enabled": True}}),
}
# These are text, or are for Helm alone.
NO_FILES = {"NOTES.txt", "preflight.yaml", "tests/rollout.yaml"}
HEAD = """\
# Rendered from charts/windlass for the release `windlass` in kube-system; `.ci/chart render` writes it anew. For
# another namespace, name or scope render the chart with other values.
"""

# Invalid values, and what the error must contain: above all the path of the key.
REFUSED = [
    ("replica: 3", "additional properties 'replica' not allowed"),
    ("replicas: two", "at '/replicas': got string, want integer"),
    ("replicas: 0", "at '/replicas'"),
    ("image: {repo: a}", "at '/image': additional properties 'repo' not allowed"),
    ("image: {digest: latest}", "at '/image/digest'"),
    ("image: ghcr.io/a:1", "at '/image': got string, want object"),
    ("bootstrap: {replicas: 2}", "at '/bootstrap': additional properties 'replicas' not allowed"),
    ("controllers: [deployments]", "at '/controllers/0'"),
    ("controllers: []", "at '/controllers'"),
    ("scope: {namespaces: [a]}", "at '/scope': additional properties 'namespaces' not allowed"),
    ("scope: {namespace: A_b}", "at '/scope/namespace'"),
    ("onConflict: panic", "at '/onConflict'"),
    ("fieldManager: ''", "at '/fieldManager'"),
    ("flowSchema: true", "at '/flowSchema': got boolean, want object"),
    ("securePort: 0", "at '/securePort'"),
    ("securePort: 70000", "at '/securePort'"),
    ("logging: {verbosity: high}", "at '/logging/verbosity'"),
    ("kubeAPI: {qps: 0}", "at '/kubeAPI/qps'"),
    ("kubeApi: {qps: 1}", "additional properties 'kubeApi' not allowed"),
    ("extraArgs: [v=4]", "at '/extraArgs/0'"),
    ("extraArgs: {v: 4}", "at '/extraArgs': got object, want array"),
    ("extraEnv: [{name: A, vale: b}]", "at '/extraEnv/0': additional properties 'vale' not allowed"),
    ("preflight: false", "at '/preflight': got boolean, want object"),
    ("resources: {limit: {}}", "at '/resources': additional properties 'limit' not allowed"),
    ("resources: {limits: {memory: lots}}", "at '/resources/limits/memory'"),
    ("tolerations: [{operater: Exists}]", "at '/tolerations/0': additional properties 'operater' not allowed"),
    ("affinity: {podAffinty: {}}", "at '/affinity': additional properties 'podAffinty' not allowed"),
    ("affinity: {podAffinity: {preferred: []}}", "at '/affinity/podAffinity': additional properties 'preferred'"),
    ("extraEnv: [{name: A, valueFrom: {secretRef: {}}}]", "at '/extraEnv/0/valueFrom': additional properties"),
    ("topologySpreadConstraints: [{maxSkew: 1}]", "at '/topologySpreadConstraints/0': missing properties"),
    ("podSecurityContext: {runAsUser: 0}", "at '/podSecurityContext/runAsUser'"),
    ("podSecurityContext: {privileged: true}", "at '/podSecurityContext': additional properties 'privileged'"),
    ("podDisruptionBudget: {maxUnavailable: all}", "at '/podDisruptionBudget/maxUnavailable'"),
    ("networkPolicy: {apiServer: {cidrs: [here]}}", "at '/networkPolicy/apiServer/cidrs/0'"),
    ("metrics: {readers: [{kind: ServiceAccount, name: a}]}", "at '/metrics/readers/0'"),
    ("metrics: {serviceMonitor: {intervall: 1s}}", "at '/metrics/serviceMonitor': additional properties 'intervall'"),
    ("metrics: {serviceMonitor: {interval: 1 s}}", "at '/metrics/serviceMonitor/interval'"),
    ("podLabels: {a: 1}", "at '/podLabels/a': got number, want string"),
    ("test: {image: {name: a}}", "at '/test/image': additional properties 'name' not allowed"),
    ("podLabels: {app.kubernetes.io/instance: a}", "at '/podLabels/app.kubernetes.io~1instance'"),
    ("metrics: {serviceMonitor: {tokenSecret: a}}", "at '/metrics/serviceMonitor/tokenSecret'"),
    ("deploymentLabels: {app.kubernetes.io/component: a}", "at '/deploymentLabels/app.kubernetes.io~1component'"),
    ("networkPolicy: {extraEgress: [{port: 53}]}", "at '/networkPolicy/extraEgress/0': additional properties 'port'"),
    ("networkPolicy: {extraEgress: [{to: [{ipBlock: {cidr: dns}}]}]}", "at '/networkPolicy/extraEgress/0/to/0/ipBlock"),
    ("networkPolicy: {ingressFrom: [10.0.0.0/8]}", "at '/networkPolicy/ingressFrom/0': got string, want object"),
    ("networkPolicy: {ingressFrom: [{}]}", "at '/networkPolicy/ingressFrom/0': minProperties"),
    ("networkPolicy: {ingressFrom: [{cidr: 10.0.0.0/8}]}", "at '/networkPolicy/ingressFrom/0': additional properties 'cidr'"),
    ("networkPolicy: {ingressFrom: null}", "at '/networkPolicy': missing property 'ingressFrom'"),
    ("enabled: please", "at '/enabled': got string, want boolean"),
    ("leaderElection: {resourceNamespace: A_b}", "at '/leaderElection/resourceNamespace'"),
    # A null removes the default.
    ("replicas: null", "missing property 'replicas'"),
    ("image: null", "missing property 'image'"),
    ("controllers: null", "missing property 'controllers'"),
    ("securePort: null", "missing property 'securePort'"),
    ("podSecurityContext: null", "missing property 'podSecurityContext'"),
    ("scope: {namespace: null}", "at '/scope': missing property 'namespace'"),
    ("kubeAPI: {qps: null}", "at '/kubeAPI': missing property 'qps'"),
    ("test: {image: {repository: null}}", "at '/test/image': missing property 'repository'"),
    ("networkPolicy: {apiServer: {ports: null}}", "at '/networkPolicy/apiServer': missing property 'ports'"),
    ("extraArgs: [null]", "at '/extraArgs/0'"),
    # Rules that a schema cannot express.
    ("authentication: {enabled: false}\nmetrics: {serviceMonitor: {enabled: true}}", "authentication.enabled=false"),
    ("authentication: {enabled: false}\nmetrics: {readers: [{kind: User, name: a}]}", "authentication.enabled=false"),
    ("tls: {secretName: a}\nmetrics: {serviceMonitor: {enabled: true, namespace: b}}", "serviceMonitor.namespace=b"),
    ("controllers: ['*', -deployment, -replicaset, -replicationcontroller, -daemonset, -statefulset, -job, -cronjob, -ttl-after-finished]",
     "none of deployment-controller"),
    ("controllers: [namespace]\nscope: {namespace: a}", "namespace-controller needs all namespaces"),
    ("garbageCollection: {resources: [Pods]}", "at '/garbageCollection/resources/0'"),
    ("garbageCollection: {resource: [pods]}", "at '/garbageCollection': additional properties 'resource' not allowed"),
    ("garbageCollection: {resources: [pods]}", "garbageCollection.resources: the garbage collector does not run"),
    ("controllers: [garbage-collector]\ngarbageCollection: {owners: [pods]}", "garbageCollection.owners: without"),
    ("controllers: [garbage-collector]\ngarbageCollection: {clusterOwners: [nodes]}", "clusterOwners: without"),
    ("serviceAccount: {create: false}", "needs serviceAccount.name"),
    ("scope: {selector: team=shop}", "test.labels={}: scope.selector=team=shop does not match these labels"),
    ("scope: {selector: team=shop}\ntest: {labels: {team: web}}", "set test.enabled=false"),
]

# Release names that Helm accepts and not every object does, and the resulting names of the objects.
NAMES = {
    "windlass": "windlass",
    "my": "my-windlass",
    "team.windlass": "team-windlass",
    "123": "windlass-123-windlass",
    "1e3": "windlass-1e3-windlass",
    # A truncated name ends with a hash: these share a prefix.
    "a" * 53: "a" * 31 + "-e12e5210",
    "a" * 39 + ".b": "a" * 31 + "-ddc381e5",
    "a" * 39 + ".c": "a" * 31 + "-dc66c1b6",
}
# Names that YAML parses as another type if they are not quoted.
NOT_STRINGS = ["true", "no", "null", "on"]

# Selectors, and whether they match the labels {team: shop, tier: web, empty: ""}.
SELECTORS = [
    ("team", True), ("!team", False), ("legacy", False), ("!legacy", True), (" team = shop ", True),
    ("team==shop", True), ("team=web", False), ("team!=web", True), ("team!=shop", False), ("legacy!=yes", True),
    ("legacy=", False), ("empty=", True), ("tier in (web, db)", True), ("tier in(web)", True), ("tier in (db)", False),
    ("tier notin (web,db)", False), ("tier notin (db)", True), ("legacy notin (db)", True), ("legacy in (db)", False),
    ("team=shop,tier in (web, db),!legacy", True), ("team=shop,tier in (db, cache),!legacy", False),
    ("tier in (web, db),team=shop,legacy", False),
]
# Scopes, and whether the notes of the release `windlass` in kube-system warn that they exclude its own Deployment.
SCOPES = [
    ({}, False),
    ({"scope": {"namespace": "kube-system"}}, False),
    ({"scope": {"namespace": "shop"}}, True),
    ({"scope": {"selector": "!legacy"}}, False),
    ({"scope": {"selector": "app.kubernetes.io/component=controller-manager"}, "test": {"enabled": False}}, False),
    ({"scope": {"selector": "team=shop"}, "test": {"labels": {"team": "shop"}}}, True),
    ({"scope": {"selector": "team=shop"}, "test": {"labels": {"team": "shop"}}, "deploymentLabels": {"team": "shop"}}, False),
    ({"scope": {"selector": "team=shop"}, "test": {"enabled": False}, "deploymentLabels": {"team": "web"}}, True),
]

# Bounds of the garbage collector, and the rules that it gets: kind and namespace of the role, and each rule in one
# line.
ALL = "get list watch patch delete"
COLLECTED = [
    ({}, {("ClusterRole", None): [f"* */* {ALL}"]}),
    ({"scope": {"namespace": "shop"}}, {("Role", "shop"): [f"* */* {ALL}"]}),
    ({"garbageCollection": {"resources": ["pods", "jobs.batch", "secrets"], "ignoredResources": ["secrets"],
                            "owners": ["pods", "cronjobs.batch"], "clusterOwners": ["nodes"]}},
     {("ClusterRole", None): [f" pods,secrets {ALL}", f"batch jobs {ALL}", " nodes get", "batch cronjobs get"]}),
    ({"scope": {"namespace": "shop"}, "garbageCollection": {"resources": ["pods"], "owners": ["cronjobs.batch"],
                                                            "clusterOwners": ["nodes", "things.a.example.com"]}},
     {("Role", "shop"): [f" pods {ALL}", "batch cronjobs get"],
      ("ClusterRole", None): [" nodes get", "a.example.com things get"]}),
    ({"scope": {"namespace": "shop"}, "garbageCollection": {"clusterOwners": ["nodes"]}},
     {("Role", "shop"): [f"* */* {ALL}"], ("ClusterRole", None): [" nodes get"]}),
]

# The controllers, and the kind of the bootstrap.
BOOTSTRAPS = [
    (["*"], "Pod"),
    (["*", "-job"], "Job"),
    (["statefulset"], "Job"),
    (["job", "statefulset"], "Pod"),
    (["job"], "StatefulSet"),
    (["*", "-statefulset"], "StatefulSet"),
    (["deployment", "replicaset-controller"], "StatefulSet"),
]

# The peers that may connect, and the rules of ingress: an empty list of peers would be none in some languages, and is
# all in this one.
PEERS = [
    ([], [{"ports": [{"port": "https", "protocol": "TCP"}]}]),
    ([{"podSelector": {"matchLabels": {"app": "prometheus"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
     [{"ports": [{"port": "https", "protocol": "TCP"}],
       "from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]}]),
]

failures = []


def check(holds, what):
    if not holds:
        failures.append(what)
        print(f"FAIL  {what}", flush=True)


def done(what):
    """Prints a success, unless a check has failed since the last call."""
    if len(failures) == done.failures:
        print(f"ok    {what}", flush=True)
    done.failures = len(failures)


done.failures = 0


def render(values, *, version=KUBERNETES[-1], apis=MONITORING, namespace="kube-system", name="windlass"):
    """Every template's text by its name. A missing value is an error, not an empty text."""
    options = {"name": name, "namespace": namespace, "kube_version": version, "api_versions": apis, "strict": True}
    with helm.Chart.load(CHART) as chart:
        text = _native.call_string("helm_render", chart._raw(), json.dumps(values), json.dumps(options))
    return {name.removeprefix("windlass/templates/"): text for name, text in json.loads(text).items()}


def documents(text):
    """The objects in a text of YAML documents."""
    parts = ("\n" + text).split("\n---")
    return [found for part in parts if (found := helm.values_from_yaml(part))]


def plain(text):
    """Removes the labels that mark the objects as Helm's."""
    ours = ("app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ")
    return "".join(line for line in text.splitlines(True) if not line.strip().startswith(ours))


def deployed():
    """The text of each file in deploy/ that is rendered."""
    rendered = render(MONITORED)
    known = {name for names in FILES.values() for name in names} | {name for name, _ in ON_REQUEST.values()} | NO_FILES
    check(set(rendered) == known, f"deploy/ leaves out {set(rendered) ^ known}")
    texts = {}
    for file, names in FILES.items():
        parts = [plain(rendered[name]).strip() + "\n" for name in names]
        texts[file] = HEAD + "---\n".join(parts)
    for file, (name, values) in ON_REQUEST.items():
        texts[file] = HEAD + plain(render(values)[name]).strip() + "\n"
    return texts


def value_sets():
    """The defaults, and each file of values in ci/, by name."""
    all_values = {"default": {}}
    for file in sorted(CHART.glob("ci/*-values.yaml")):
        all_values[file.name.removesuffix("-values.yaml")] = helm.values_from_yaml(file.read_text())
    return all_values


def keys(values, at=""):
    """The paths of all keys, except those that a user chooses."""
    chosen = {"nodeSelector", "labels", "annotations", "requests", "limits"}
    for key, value in values.items():
        yield f"{at}/{key}"
        if isinstance(value, dict) and key not in chosen:
            yield from keys(value, f"{at}/{key}")


def schema_keys(schema, at=""):
    """The paths of the keys in the schema."""
    for key, value in schema.get("properties", {}).items():
        yield f"{at}/{key}"
        yield from schema_keys(value, f"{at}/{key}")


def check_schema():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def closed(part, at):
        if isinstance(part, dict):
            # A map whose keys the user chooses has a type for its values; `global` is Helm's.
            is_open = part.get("additionalProperties", True) is True
            if part.get("type") == "object" and is_open and at != ("properties", "global"):
                check(False, f"values.schema.json is open at {'/'.join(at)}")
            for key, value in part.items():
                closed(value, (*at, key))

    closed(schema, ())
    defaults = helm.values_from_yaml((CHART / "values.yaml").read_text())

    def required(part, values, at):
        # In parts that are passed on to Kubernetes unchanged, every key is optional.
        if part.get("additionalProperties") is False and at not in ("/resources", "/affinity", "/podSecurityContext"):
            missing = set(values) - set(part.get("required", []))
            check(not missing, f"values.schema.json takes a null for {missing} at '{at}'")
            for key, value in values.items():
                if isinstance(value, dict):
                    required(part["properties"].get(key, {}), value, f"{at}/{key}")

    required(schema, defaults, "")
    values = set(keys(defaults))
    missing = values - set(schema_keys(schema))
    check(not missing, f"values.schema.json does not know {missing}")
    # Keys without a default are optional parts of what is passed on to Kubernetes unchanged.
    handed_on = ("/resources/", "/affinity/", "/podSecurityContext/", "/deploymentLabels/", "/podLabels/", "/global", "/enabled")
    extra = {key for key in set(schema_keys(schema)) - values if not key.startswith(handed_on)}
    check(not extra, f"values.yaml does not say what {extra} is")


def check_refusals():
    for text, words in REFUSED:
        try:
            render(helm.values_from_yaml(text))
            check(False, f"not refused: {text}")
        except helm.HelmError as error:
            check(words in str(error), f"{text}: no «{words}» in: {error}")


def check_names():
    for release, name in NAMES.items():
        for namespace in ("kube-system", "1e3"):
            rendered = render(MONITORED | {"metrics": MONITORED["metrics"] | {"readers": READERS}}, name=release,
                              namespace=namespace)
            told = f"release {release} in {namespace}"
            for file, text in rendered.items():
                for found in documents(text) if file != "NOTES.txt" else []:
                    metadata = found["metadata"]
                    title = f"{told}: {found['kind']} {metadata['name']}"
                    fits = re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", metadata["name"])
                    check(fits and metadata["name"].startswith(name), title)
                    texts = [metadata["name"], metadata.get("namespace", ""), *metadata["labels"].values()]
                    check(all(isinstance(text, str) and len(text) <= 63 for text in texts), f"{title}: {metadata}")
                    allowed = ("kube-system", namespace)
                    check(metadata.get("namespace", namespace) in allowed, f"{title}: {metadata}")
                    for subject in found.get("subjects", []):
                        check(isinstance(subject.get("namespace", ""), str), f"{title}: {subject}")


    for name in NOT_STRINGS:
        rendered = render(MONITORED | {"fullnameOverride": name})
        for found in (found for file, text in rendered.items() if file != "NOTES.txt" for found in documents(text)):
            check(str(found["metadata"]["name"]).startswith(name), f"fullnameOverride {name}: {found['metadata']}")
            for key in ("serviceName", "policyName"):
                check(found.get("spec", {}).get(key, name) == name, f"fullnameOverride {name}: {key} of {found['kind']}")
            check(isinstance(found.get("roleRef", {}).get("name", name), str), f"fullnameOverride {name}: {found}")


def check_scopes():
    labels = {"team": "shop", "tier": "web", "empty": ""}
    for selector, takes in SELECTORS:
        try:
            render({"scope": {"selector": selector}, "test": {"labels": labels}})
            check(takes, f"{selector} takes {labels}")
        except helm.HelmError as error:
            check(not takes and "test.labels" in str(error), f"{selector} on {labels}: {error}")
    for values, is_told in SCOPES:
        notes = " ".join(render(values)["NOTES.txt"].split())
        check(("excludes deployment/windlass itself" in notes) == is_told, f"the notes with {values}: {notes}")
        without_labels = "with deploymentLabels" in notes
        check(without_labels == (is_told and "selector" in values.get("scope", {})), f"the notes with {values}: {notes}")


def check_collected():
    for values, expected in COLLECTED:
        rendered = render({"controllers": ["garbage-collector"], "test": {"enabled": False}} | values)
        found, bound = {}, set()
        for it in documents(rendered["garbage-collector.yaml"]):
            where = (it["kind"].removesuffix("Binding"), it["metadata"].get("namespace"))
            if it["kind"] in ("Role", "ClusterRole"):
                found[where] = [" ".join([*rule["apiGroups"], ",".join(rule["resources"]), *rule["verbs"]])
                                for rule in it["rules"]]
            elif it["kind"] in ("RoleBinding", "ClusterRoleBinding"):
                bound.add((*where, it["roleRef"]["kind"]))
        expected = {where: [rule.replace("*/*", "*") for rule in rules] for where, rules in expected.items()}
        check(found == expected, f"the rules of the garbage collector with {values}: {found}")
        check(bound == {(*where, where[0]) for where in expected}, f"its bindings with {values}: {bound}")


def check_bootstrap():
    def bootstrap(values):
        found = documents(render(values)["bootstrap.yaml"])
        return found[0] if found else None

    for controllers, kind in BOOTSTRAPS:
        found = bootstrap({"controllers": controllers})
        check(found["kind"] == kind, f"the bootstrap with {controllers} is a {found['kind']}")
    off = bootstrap({"bootstrap": {"enabled": False}})
    check(off is None, f"a bootstrap that is not wanted: {off}")
    # A Job with another template must have another name, and one with the same template is the same.
    name = bootstrap({})["metadata"]["name"]
    check(re.fullmatch("windlass-bootstrap-[0-9a-f]{8}", name), f"the name of the Job: {name}")
    check(bootstrap({"replicas": 5})["metadata"]["name"] == name, "the name of the Job depends on more than its template")
    other = bootstrap({"image": {"tag": "other"}})["metadata"]["name"]
    check(other != name, f"two templates have one Job {name}")
    # A bare pod is the pod that the Job would have made, but for what a Job does not take.
    values = {"podLabels": {"team": "a"}, "podAnnotations": {"note": "n"}}
    bare, of_job = bootstrap(values | {"controllers": ["*"]}), bootstrap(values | {"controllers": ["*", "-job"]})["spec"]["template"]
    labels, annotations = bare["metadata"]["labels"], bare["metadata"]["annotations"]
    check(of_job["metadata"]["labels"].items() <= labels.items(), f"labels of the bare pod: {labels}")
    check(of_job["metadata"]["annotations"].items() <= annotations.items(), f"annotations of the bare pod: {annotations}")
    specs = [spec | {"restartPolicy": None, "containers": None} for spec in (bare["spec"], of_job["spec"])]
    check(specs[0] == specs[1], f"the bare pod is {specs[0]}, and that of the Job {specs[1]}")


def check_peers():
    for peers, expected in PEERS:
        (policy,) = documents(render({"networkPolicy": {"ingressFrom": peers}})["networkpolicy.yaml"])
        check(policy["spec"]["ingress"] == expected, f"ingress with the peers {peers}: {policy['spec']['ingress']}")


def check_two_releases():
    """The alerts and the dashboard of a second release select its own metrics and do not collide with the first's."""
    charts = {name: render(MONITORED, name=name) for name in ("windlass", "another-windlass")}
    seen = {}
    for name, rendered in charts.items():
        (rule,) = documents(rendered["prometheusrule.yaml"])
        for it in (rule for group in rule["spec"]["groups"] for rule in group["rules"]):
            ours = r"\b(?:windlass|leader_election|running_managed|workqueue|rest_client)_\w+"
            others = re.findall(ours + r'(?!\w|{job="%s"[,}])' % name, it["expr"])
            check(not others and "{" in it["expr"], f"{it['alert']} of {name} looks at other jobs: {it['expr']}")
        (service,) = documents(rendered["service.yaml"])
        check(service["metadata"]["name"] == name, f"{name}: the job is {service['metadata']['name']}")
        (board,) = documents(rendered["dashboard.yaml"])
        ((file, text),) = board["data"].items()
        parsed = json.loads(text)
        for what, value in (("file", file), ("uid", parsed["uid"]), ("title", parsed["title"])):
            check(value not in seen, f"the dashboards of {name} and {seen.get(value)} have the same {what}: {value}")
            seen[value] = name
        check(len(parsed["uid"]) <= 40, f"Grafana takes 40 characters: {parsed['uid']}")
    longest = documents(render(MONITORED, name="a" * 53)["dashboard.yaml"])[0]["data"]
    check(len(json.loads(*longest.values())["uid"]) <= 40, f"Grafana takes 40 characters: {list(longest)}")


def check_sets(windlass, out):
    flags = set()
    for name, values in value_sets().items():
        for version in KUBERNETES:
            report = helm.lint(CHART, values, strict=True, namespace="kube-system", kube_version=version)
            found = [message for message in report["messages"] if message["severity"] >= 2]
            check(not report["errors"] and not found, f"lint of {name}, {version}: {report}")
        without = render(values, apis=[])
        check(not without["servicemonitor.yaml"].strip(), f"{name}: a ServiceMonitor where there is no such kind")
        check(not without["prometheusrule.yaml"].strip(), f"{name}: a PrometheusRule where there is no such kind")
        for namespace in ("kube-system", "windlass"):
            rendered = render(values, namespace=namespace)
            check(rendered["NOTES.txt"].strip(), f"{name}: no notes")
            parts = [text.strip() for file, text in rendered.items() if file != "NOTES.txt" and text.strip()]
            text = "\n---\n".join(parts) + "\n"
            (out / f"{name}-{namespace}.yaml").write_text(text)
            for found in documents(text):
                if found["kind"] in ("Deployment", "StatefulSet", "Job"):
                    flags.add(tuple(found["spec"]["template"]["spec"]["containers"][0]["args"]))
    # The program itself validates its command line.
    for words in sorted(flags):
        asked = subprocess.run([windlass, *words, "--print-config"], capture_output=True, text=True, check=False)
        check(asked.returncode == 0, f"windlass {' '.join(words)}: {asked.stderr}")
    return len(flags)


def policies_of(controllers):
    """The policies rendered for these controllers, which judge requests."""
    texts = render({"controllers": controllers})
    files = ("admissionpolicy.yaml", "garbage-collector.yaml", "namespace-controller.yaml")
    return [found for file in files for found in documents(texts[file])]


def check_deploy():
    for file, text in deployed().items():
        there = (DEPLOY / file).read_text() if (DEPLOY / file).exists() else ""
        check(there == text, f"deploy/{file} is out of date: .ci/chart render")
    for folder in (DEPLOY, DEPLOY / "monitoring"):
        built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
        check(built.returncode == 0, f"kustomize {folder}: {built.stderr}")
        wanted = {str(pathlib.Path(file).relative_to(folder.relative_to(DEPLOY))) for file in FILES
                  if (DEPLOY / file).parent == folder}
        listed = set(helm.values_from_yaml((folder / "kustomization.yaml").read_text())["resources"])
        check(listed == wanted, f"{folder}/kustomization.yaml lists {listed}, there are {wanted}")


def main(arguments):
    match arguments:
        case ["render"]:
            for file, text in deployed().items():
                (DEPLOY / file).parent.mkdir(exist_ok=True)
                (DEPLOY / file).write_text(text)
                print(f"deploy/{file}")
        case ["check", target, out]:
            target, out = pathlib.Path(target), pathlib.Path(out)
            out.mkdir(parents=True, exist_ok=True)
            check_schema()
            done("the schema is closed and has the keys of values.yaml")
            check_refusals()
            done(f"{len(REFUSED)} invalid values are refused with the name of the key")
            check_names()
            done(f"{len(NAMES)} release names give valid object names")
            check_scopes()
            done(f"{len(SELECTORS)} selectors parsed, and the notes for {len(SCOPES)} scopes are right")
            check_collected()
            done(f"{len(COLLECTED)} bounds of the garbage collector give it the rules that it needs")
            check_bootstrap()
            done(f"the bootstrap is of a kind that Windlass does not run, with {len(BOOTSTRAPS)} lists of controllers")
            check_peers()
            done("no peers are all peers, and others are the only ones")
            check_two_releases()
            done("two releases have alerts and dashboards of their own")
            number = chart_policy.check_all(policies_of, check)
            done(f"the admission policies allow or refuse {number} requests as expected")
            number = check_sets(target / "windlass", out)
            done(f"{len(value_sets())} files of values linted and rendered, {number} command lines accepted")
            check_deploy()
            done("deploy/ is what the chart renders")
            with tempfile.TemporaryDirectory() as scratch:
                chart_in_sandbox.check(CHART, target / "windlass-sandbox", pathlib.Path(scratch), check, done)
        case _:
            raise SystemExit(__doc__)
    if failures:
        raise SystemExit(f"{len(failures)} failed")


main(sys.argv[1:])
